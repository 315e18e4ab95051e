-- Gives up one level of a hold; with the last level the lock is freed and waiters are told.
-- A final release uses only commands that work when the server is out of memory.
--
-- KEYS[1]  the lock: hash, owner field -> hold count
-- ARGV[1]  owner field
-- ARGV[2]  hold count that is left, absolute; 0 frees the lock
-- ARGV[3]  channel of the lock
-- reply    1: done; 2: done, but the server refuses to publish; 0: not held by this owner;
--          from 3 on: done, and two less than that many connections were told
local lock = KEYS[1]
local owner, left, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]

if redis.call('HEXISTS', lock, owner) == 0 then
  return 0
end
if left > 0 then
  redis.call('HSET', lock, owner, left)
  return 1
end
redis.call('DEL', lock)
-- Last, and its errors ignored: a denied publish must not turn a done release into an error.
local told = redis.pcall('PUBLISH', channel, '0')
if type(told) == 'table' then
  return 2
end
return told > 0 and told + 2 or 1

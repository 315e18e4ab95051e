-- Gives up one level of a hold; with the last level the lock is freed and waiters are told.
-- A final release uses only commands that work when the server is out of memory.
--
-- preludes held, tell
-- KEYS[1]  the lock: hash, owner field -> hold count
-- ARGV[1]  owner field
-- ARGV[2]  hold count that is left, absolute; 0 frees the lock
-- ARGV[3]  channel of the lock
-- reply    1: a level was given up; 0: not held by this owner; else what tell returns
local lock = KEYS[1]
local owner, left, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local ours, failed = held(lock, owner)
if ours ~= 1 then
  return ours or failed
end
if left > 0 then
  redis.call('HSET', lock, owner, left)
  return 1
end
redis.call('DEL', lock)
return tell(channel)

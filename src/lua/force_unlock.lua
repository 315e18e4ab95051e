-- Frees the lock, whoever holds it, and tells waiters.
--
-- KEYS[1]  the lock: hash, owner field -> hold count
-- ARGV[1]  channel of the lock
-- reply    1: it was locked; 2: it was, but the server refuses to publish; 0: it was free
local lock, channel = KEYS[1], ARGV[1]

-- HLEN and not EXISTS: a key of another type is refused instead of deleted.
if redis.call('HLEN', lock) == 0 then
  return 0
end
redis.call('DEL', lock)
local told = redis.pcall('PUBLISH', channel, '0')
if type(told) == 'table' then
  return 2
end
return 1

-- Writes the hold count of a lock that is held, and prolongs it. Never creates the lock, never shortens it.
--
-- KEYS[1]  the lock: hash, owner field -> hold count
-- ARGV[1]  owner field
-- ARGV[2]  hold count, absolute
-- ARGV[3]  lease, ms
-- ARGV[4]  deadline of this attempt, us on the server's clock
-- reply    1: done; 0: lost; error STALE <server us>
local lock = KEYS[1]
local owner, count, lease, deadline = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now >= deadline then
  return redis.error_reply('STALE ' .. string.format('%.0f', now))
end

if redis.call('HEXISTS', lock, owner) == 0 then
  return 0
end
redis.call('HSET', lock, owner, count)
if redis.call('PTTL', lock) < lease then
  redis.call('PEXPIRE', lock, lease)
end
return 1

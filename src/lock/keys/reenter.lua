-- Writes the hold count of a lock that is held, and prolongs it. Never creates the lock, never shortens it.
--
-- preludes stale, held
-- KEYS[1]  the lock: hash, owner field -> hold count
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  lease, ms
-- ARGV[3]  owner field
-- ARGV[4]  hold count, absolute
-- reply    the deadline: done; 0: lost; error STALE <server us>
local lock = KEYS[1]
local lease, owner, count = tonumber(ARGV[2]), ARGV[3], ARGV[4]

local ours, failed = held(lock, owner)
if ours ~= 1 then
  return ours or failed
end
redis.call('HSET', lock, owner, count)
if redis.call('PTTL', lock) < lease then
  redis.call('PEXPIRE', lock, lease)
end
return deadline

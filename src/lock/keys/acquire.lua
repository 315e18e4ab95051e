-- Takes the lock if it is free; else says how long it is still held.
--
-- preludes stale, expire
-- KEYS[1]  the lock: hash, owner field -> hold count
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  lease, ms
-- ARGV[3]  owner field
-- ARGV[4]  hold count, absolute
-- reply    the deadline: acquired; integer: the holder's PTTL, ms (-1: none); error STALE <server us>
local lock = KEYS[1]
local lease, owner, count = tonumber(ARGV[2]), ARGV[3], ARGV[4]

local left = redis.call('PTTL', lock)
if left == -2 then
  redis.call('HSET', lock, owner, count)
  return expire(lock, lease) or deadline
end
if redis.call('HEXISTS', lock, owner) == 0 then
  return left
end
-- A copy of this very attempt was here before.
redis.call('HSET', lock, owner, count)
if left < lease then
  redis.call('PEXPIRE', lock, lease)
end
return deadline

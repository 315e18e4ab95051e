-- Takes several locks of one slot, all of them or none; if one is taken, says which.
--
-- preludes stale, expire
-- KEYS[i]  a lock: hash, owner field -> hold count
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  lease, ms
-- ARGV[3]  owner field of KEYS[1], and so on: ARGV[i + 2] for KEYS[i]
-- reply    the deadline: acquired; i: KEYS[i] is taken, and nothing was done; error STALE <server us>
local lease = tonumber(ARGV[2])
local owners_from = 3

-- Nothing is written before each lock was looked at.
local left = {}
for i, lock in ipairs(KEYS) do
  local owner = ARGV[owners_from + i - 1]
  left[i] = redis.call('PTTL', lock)
  -- A lock with our field was taken by a copy of this very attempt.
  if left[i] ~= -2 and redis.call('HEXISTS', lock, owner) == 0 then
    return i
  end
end

local made = {}
for i, lock in ipairs(KEYS) do
  local owner = ARGV[owners_from + i - 1]
  redis.call('HSET', lock, owner, 1)
  if left[i] == -2 then
    made[#made + 1] = lock
  end
  local failed = left[i] < lease and expire(lock, lease, made)
  if failed then
    return failed
  end
end
return deadline

-- Prolongs any number of locks of one slot. Never creates one, never shortens one.
--
-- preludes stale, held
-- KEYS[i]  a lock: hash, owner field -> hold count
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  lease, ms
-- ARGV[3]  owner field of KEYS[1], and so on: ARGV[i + 2] for KEYS[i]
-- reply    array: 1: prolonged, 0: lost; behind them the deadline; error STALE <server us>
local lease = tonumber(ARGV[2])
local owners_from = 3

local renewed = {}
for i, lock in ipairs(KEYS) do
  local owner = ARGV[owners_from + i - 1]
  local ours, failed = held(lock, owner)
  if failed then
    return failed
  end
  if ours == 1 then
    -- Always a write: a demoted master answers reads, and must not confirm a hold.
    redis.call('PEXPIRE', lock, math.max(redis.call('PTTL', lock), lease))
  end
  renewed[i] = ours
end
renewed[#KEYS + 1] = deadline
return renewed

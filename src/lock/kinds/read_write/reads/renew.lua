-- Prolongs any number of read holds of one slot: the lock and the time-out of each, which may go by a command each. Never creates
-- one, never shortens one. If a reader's time-out stands beside its lock here and is gone, the lock is not prolonged: it would
-- outlive its readers.
--
-- preludes stale, held
-- KEYS[i]  a lock: hash, owner field -> hold count; or the time-out of a hold: string
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  lease, ms
-- ARGV[3]  owner field of KEYS[1], empty if that is a time-out, and so on: ARGV[i + 2] for KEYS[i]
-- reply    array: 1: prolonged, 0: lost; behind them the deadline; error STALE <server us>
local lease = tonumber(ARGV[2])
local owners_from = 3

-- Whether the next key is the time-out of this owner, and is gone.
local function is_over(owner, timeout)
  local is_its_own = timeout and string.find(timeout, ':' .. owner .. ':rwlock_timeout:', 1, true)
  return is_its_own and redis.call('PTTL', timeout) == -2
end

local renewed = {}
for i, key in ipairs(KEYS) do
  local owner = ARGV[owners_from + i - 1]
  local ours, failed = 1, nil
  if owner ~= '' then
    ours, failed = held(key, owner)
  end
  if failed then
    return failed
  end
  if owner ~= '' and is_over(owner, KEYS[i + 1]) then
    ours = 0
  end
  -- Always a write: a demoted master answers reads, and must not confirm a hold. 0: a time-out that is gone.
  renewed[i] = ours == 1 and redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), lease)) or 0
end
renewed[#KEYS + 1] = deadline
return renewed

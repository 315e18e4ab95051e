-- Prolongs any number of read holds of one slot: of each the lock and its time-out, which may go by a command each. Never creates
-- one, never shortens one.
--
-- preludes stale, held
-- KEYS[i]  a lock: hash, owner field -> hold count; or the time-out of a hold: string
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  lease, ms
-- ARGV[3]  owner field of KEYS[1], empty if that is a time-out, and so on: ARGV[i + 2] for KEYS[i]
-- reply    array: 1: prolonged, 0: lost; error STALE <server us>
local lease = tonumber(ARGV[2])
local owners_from = 3

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
  -- Always a write: a master that was demoted answers reads, and must not confirm a hold. 0: a time-out that is gone.
  renewed[i] = ours == 1 and redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), lease)) or 0
end
return renewed

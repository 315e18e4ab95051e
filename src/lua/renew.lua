-- Prolongs any number of locks of one slot. Never creates one, never shortens one.
--
-- KEYS[i]  a lock: hash, owner field -> hold count
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  lease, ms
-- ARGV[3]  owner field of KEYS[1], and so on: ARGV[i + 2] for KEYS[i]
-- reply    array: 1: prolonged, 0: lost; error STALE <server us>
local deadline, lease = tonumber(ARGV[1]), tonumber(ARGV[2])
local owners_from = 3

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now >= deadline then
  return redis.error_reply('STALE ' .. string.format('%.0f', now))
end

local held = {}
for i, lock in ipairs(KEYS) do
  local owner = ARGV[owners_from + i - 1]
  local found = redis.pcall('HEXISTS', lock, owner)
  if type(found) == 'table' then
    -- A key of another type cannot hold our field: it must not fail the other locks of the batch.
    if not string.find(found.err, 'WRONGTYPE', 1, true) then
      return found
    end
    found = 0
  end
  if found == 1 and redis.call('PTTL', lock) < lease then
    redis.call('PEXPIRE', lock, lease)
  end
  held[i] = found
end
return held

-- Prolongs the permits of any number of holds. Gives none out, and never shortens a lease.
--
-- preludes stale
-- KEYS[i]  leases: zset, id of a permit that is out -> until when, ms
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  lease, ms
-- ARGV[3]  owner field of the hold in KEYS[1]
-- ARGV[4]  how many permits it has, and so on: ARGV[2 * i + 1] and the one behind it for KEYS[i]
-- reply    array: 1: prolonged, 0: one of its permits is gone; behind them the deadline; error STALE <server us>
local till = math.floor(now / 1000) + tonumber(ARGV[2])
local holds_from = 3

-- Until when the first of its permits is out; nil if one is gone.
local function first_end(leases, owner, permits)
  local first
  for i = 1, permits do
    local score = redis.pcall('ZSCORE', leases, owner .. ':' .. i)
    if type(score) ~= 'string' then
      return nil
    end
    first = math.min(first or tonumber(score), tonumber(score))
  end
  return first
end

local renewed = {}
for i, leases in ipairs(KEYS) do
  local owner, permits = ARGV[holds_from + 2 * (i - 1)], tonumber(ARGV[holds_from + 2 * (i - 1) + 1])
  local first = first_end(leases, owner, permits)
  renewed[i] = first and 1 or 0
  if first then
    -- Always a write: a demoted master answers reads, and must not confirm a hold. It needs no memory, and the ZADD behind it is then
    -- refused to nobody.
    redis.call('PERSIST', leases)
    for j = 1, permits do
      redis.call('ZADD', leases, 'XX', string.format('%.0f', math.max(first, till)), owner .. ':' .. j)
    end
  end
end
renewed[#KEYS + 1] = deadline
return renewed

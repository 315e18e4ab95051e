-- Takes permits of a leased semaphore if so many are left and nobody came before; else waits in a place.
--
-- preludes stale, number_of, reclaim, tell_first, places
-- KEYS[1]  the semaphore: string, permits left
-- KEYS[2]  the leases: zset, id of a permit that is out -> until when, ms
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  lease, ms
-- ARGV[3]  owner field: the ids are '<owner>:1' and so on
-- ARGV[4]  how many permits
-- ARGV[5]  channel of the semaphore
-- ARGV[6]  the places of those that wait; empty: they may be at another node
-- ARGV[7]  place of this wait; empty: it has none
-- ARGV[8]  for how long a place counts, ms; 0: this ask takes none
-- reply    the deadline: acquired; array of three: ms until the next permit comes back by itself (-1: none does), how many wait before,
--          1: nobody has set the permits (0: they are set); error STALE <server us>
local semaphore, leases = KEYS[1], KEYS[2]
local lease, owner, permits, channel = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5]
local places, place, ttl = ARGV[6], ARGV[7], tonumber(ARGV[8])
local ms = math.floor(now / 1000)

reclaim(semaphore, leases, channel, ms)
local left = number_of(semaphore)
-- An attempt of this very acquire was here before.
local is_mine = redis.call('ZSCORE', leases, owner .. ':1')
if not is_mine then
  local may, rank = may_take(places, place, permits, left or 0, now, ttl)
  if not may then
    tell_first(places, left or 0)
    return { next_return(leases, ms), rank, left and 0 or 1 }
  end
end
local ids, added = {}, {}
for i = 1, permits do
  ids[i] = owner .. ':' .. i
  added[2 * i - 1], added[2 * i] = string.format('%.0f', ms + lease), ids[i]
end
-- A JVM whose clock is ahead may have taken back some of them: the counter goes with what is new.
local new = redis.call('ZADD', leases, unpack(added))
if new > 0 then
  local taken = redis.pcall('DECRBY', semaphore, new)
  if type(taken) == 'table' then
    -- Scripts are not rolled back: these permits would come back from nobody.
    redis.call('ZREM', leases, unpack(ids))
    return taken
  end
  leave_place(places, place, taken)
end
return deadline

-- How many permits are left and how many are out, after those were returned whose leases are over; and when the next one comes back.
--
-- preludes stale, number_of, reclaim
-- KEYS[1]  the semaphore: string, permits left
-- KEYS[2]  the leases: zset, id of a permit that is out -> until when, ms
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  channel of the semaphore
-- reply    array of three: permits left; permits out; ms until the next comes back by itself (-1: none is out); nil: nobody has set them;
--          error STALE <server us>
local semaphore, leases, channel = KEYS[1], KEYS[2], ARGV[2]
local ms = math.floor(now / 1000)

reclaim(semaphore, leases, channel, ms)
local left = number_of(semaphore)
if not left then
  return nil
end
return { left, redis.call('ZCARD', leases), next_return(leases, ms) }

-- Sets how many permits there are in all, those that are out among them, and tells those that wait.
--
-- preludes stale, number_of, reclaim, once, tell_first
-- KEYS[1]  the semaphore: string, permits left
-- KEYS[2]  the operation's lane: string '<number>:<result>'
-- KEYS[3]  the leases: zset, id of a permit that is out -> until when, ms
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  number of the operation
-- ARGV[3]  for how long its result is kept, ms
-- ARGV[4]  how many permits in all
-- ARGV[5]  1: also if they are set; 0: only if they are not
-- ARGV[6]  channel of the semaphore
-- ARGV[7]  the places of those that wait; empty: they may be at another node
-- reply    1: set; 0: they were set before; error STALE <server us>
local semaphore, operation, leases = KEYS[1], KEYS[2], KEYS[3]
local number, kept, total, anew = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
local channel, places = ARGV[6], ARGV[7]

local done = done_before(operation, number)
if done then
  return tonumber(done)
end
reclaim(semaphore, leases, channel, math.floor(now / 1000))
local left, out = number_of(semaphore), redis.call('ZCARD', leases)
if left and not anew then
  note_done(operation, number, 0, kept)
  return 0
end
note_done(operation, number, 1, kept)
-- Below zero if more are out than there are now: then the first that come back are not given out again.
local value = string.format('%.0f', total - out)
redis.call('SET', semaphore, value)
tell_first(places, total - out)
redis.pcall('PUBLISH', channel, value)
return 1

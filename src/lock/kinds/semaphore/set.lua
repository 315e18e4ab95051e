-- Sets how many permits are left, if nobody has, and tells those that wait.
--
-- preludes stale, number_of, once, tell_first
-- KEYS[1]  the semaphore: string, permits left
-- KEYS[2]  the operation's lane: string '<number>:<result>'
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  number of the operation
-- ARGV[3]  for how long its result is kept, ms
-- ARGV[4]  how many permits
-- ARGV[5]  channel of the semaphore
-- ARGV[6]  the places of those that wait; empty: they may be at another node
-- reply    1: set; 0: they were set before; error STALE <server us>
local semaphore, operation = KEYS[1], KEYS[2]
local number, kept, permits, channel, places = tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local done = done_before(operation, number)
if done then
  return tonumber(done)
end
if number_of(semaphore) then
  note_done(operation, number, 0, kept)
  return 0
end
note_done(operation, number, 1, kept)
redis.call('SET', semaphore, permits)
tell_first(places, tonumber(permits))
redis.pcall('PUBLISH', channel, permits)
return 1

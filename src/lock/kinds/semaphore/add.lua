-- Adds permits, or takes some away, and tells those that wait.
--
-- preludes stale, number_of, once, tell_first
-- KEYS[1]  the semaphore: string, permits left
-- KEYS[2]  the operation's lane: string '<number>:<result>'
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  number of the operation
-- ARGV[3]  for how long its result is kept, ms
-- ARGV[4]  how many permits to add; fewer than zero: to take away
-- ARGV[5]  channel of the semaphore
-- ARGV[6]  the places of those that wait; empty: they may be at another node
-- ARGV[7]  1: also if nobody has set the permits; 0: permits of a semaphore that is gone are gone
-- reply    how many are left; error STALE <server us>
local semaphore, operation = KEYS[1], KEYS[2]
local number, kept, permits, channel, places = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6]
local makes = ARGV[7] == '1'

local done = done_before(operation, number)
if done then
  return tonumber(done)
end
local before = number_of(semaphore)
write_first(operation, kept)
if not before and not makes then
  -- Noted, too: somebody may set the permits before the next attempt.
  note_done(operation, number, 0, kept)
  return 0
end
note_done(operation, number, string.format('%.0f', (before or 0) + permits), kept)
-- After its result: an add that the server could not note would be done again by the next attempt.
local left = redis.pcall('INCRBY', semaphore, permits)
if type(left) == 'table' then
  redis.call('DEL', operation)
  return left
end
tell_first(places, left)
redis.pcall('PUBLISH', channel, left)
return left

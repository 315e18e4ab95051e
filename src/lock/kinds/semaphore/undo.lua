-- Gives back what an acquire took whose caller never learned of it, and tells those that wait. Not before the last copy of the acquire can
-- have been executed.
--
-- preludes number_of, tell, once, tell_first
-- KEYS[1]  the semaphore: string, permits left
-- KEYS[2]  the operation's lane: string '<number>:<result>'
-- ARGV[1]  number of the operation
-- ARGV[2]  how many permits it takes
-- ARGV[3]  channel of the semaphore
-- ARGV[4]  the places of those that wait; empty: they may be at another node
-- reply    0: it took none; else what tell returns
local semaphore, operation = KEYS[1], KEYS[2]
local number, permits, channel, places = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]

if not done_before(operation, number) then
  return 0
end
local is_there = number_of(semaphore)
-- DEL needs no memory, and after a write the server refuses INCRBY to nobody.
redis.call('DEL', operation)
if not is_there then
  -- Permits of a semaphore that is gone are gone.
  return 0
end
local left = redis.call('INCRBY', semaphore, permits)
tell_first(places, left)
return tell(channel, left)

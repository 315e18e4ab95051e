-- Takes permits of a semaphore if so many are left and nobody came before; else waits in a place.
--
-- preludes stale, number_of, tell_first, places, once
-- KEYS[1]  the semaphore: string, permits left
-- KEYS[2]  the operation's lane: string '<number>:<result>'
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  number of the operation
-- ARGV[3]  for how long its result is kept, ms
-- ARGV[4]  how many permits
-- ARGV[5]  the places of those that wait; empty: they may be at another node
-- ARGV[6]  place of this wait; empty: it has none
-- ARGV[7]  for how long a place counts, ms; 0: this ask takes none
-- reply    the deadline: acquired; array of two: how many wait before, 1: nobody has set the permits (0: they are set); error STALE <server us>
local semaphore, operation = KEYS[1], KEYS[2]
local number, kept, permits = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local places, place, ttl = ARGV[5], ARGV[6], tonumber(ARGV[7])

local done = done_before(operation, number)
if done then
  return deadline
end
local left = number_of(semaphore)
local may, rank = may_take(places, place, permits, left or 0, now, ttl)
if not may then
  tell_first(places, left or 0)
  return { rank, left and 0 or 1 }
end
note_done(operation, number, 'taken', kept)
local taken = redis.pcall('DECRBY', semaphore, permits)
if type(taken) == 'table' then
  redis.call('DEL', operation)
  return taken
end
leave_place(places, place, taken)
return deadline

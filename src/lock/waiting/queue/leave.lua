-- Takes a ticket out of the queue; if it was there and the lock is free, gives the lock to the next.
--
-- preludes give, leave_queue
-- KEYS[1]  the lock
-- ARGV[1]  the queue: zset, ticket -> arrival, us on the server's clock
-- ARGV[2]  the ticket
-- ARGV[3]  its earlier names, one of which may be there: the part behind the last colon of a ticket, with spaces in between
-- reply    how many were there
local lock = KEYS[1]
local queue, ticket, before = ARGV[1], ARGV[2], ARGV[3]

local left = leave_queue(queue, ticket, before)
if left > 0 and redis.call('PTTL', lock) == -2 then
  give(lock, queue)
end
return left

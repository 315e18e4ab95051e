-- Takes a ticket out of the queue; if that leaves a free lock to the next, tells it.
--
-- preludes tell_first
-- KEYS[1]  the lock
-- ARGV[1]  the queue: zset, ticket -> arrival, us on the server's clock
-- ARGV[2]  the mark: string, who has the turn
-- ARGV[3]  how long the turn is left to the head of the queue, ms
-- ARGV[4]  the ticket
-- ARGV[5]  its names before, by which it may be there: what stands behind the last colon of a ticket, with spaces in between
-- reply    how many were there
local lock = KEYS[1]
local queue, mark, turn, ticket, before = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local left = redis.call('ZREM', queue, ticket)
for name in string.gmatch(before, '%S+') do
  left = left + redis.call('ZREM', queue, string.match(ticket, '^.*:') .. name)
end
if left > 0 and redis.call('PTTL', lock) == -2 then
  tell_first(queue, mark, turn, true)
end
return left

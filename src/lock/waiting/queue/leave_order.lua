-- Takes a thread out of the queue of a fair lock, by each field that it may have there; if one was there and the lock is free, serves the next.
--
-- preludes tell, give, serve, serve_now
-- KEYS[1]  the lock
-- ARGV[1]  the queue: list of owner fields in order of arrival
-- ARGV[2]  zset, owner field -> until when it counts, ms
-- ARGV[3]  hash, owner field -> ticket
-- ARGV[4]  channel of the lock; with a colon and a field behind it, that of a thread
-- ARGV[5]  the fields, with spaces in between
-- reply    how many were there
local lock = KEYS[1]
local list, ends, tickets, channel, fields = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local left = 0
for field in string.gmatch(fields, '%S+') do
  left = left + drop(list, ends, tickets, field)
end
if left > 0 and redis.call('PTTL', lock) == -2 and not pcall(serve_now, lock, list, ends, tickets, channel) then
  -- This call will not find the field again.
  tell(channel)
end
return left

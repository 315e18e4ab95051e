-- Counts a latch down. The last one opens it and tells those that wait.
--
-- preludes stale, number_of, tell, once
-- KEYS[1]  the latch: string, how many have not counted down
-- KEYS[2]  the operation's lane: string '<number>:<result>'
-- KEYS[3]  the end of the latch: string, ms on the server's clock
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  number of the operation
-- ARGV[3]  for how long its result is kept, ms
-- ARGV[4]  channel of the latch
-- reply    how many have not counted down; -1: its time was over before it opened; error STALE <server us>
local latch, operation, latch_end = KEYS[1], KEYS[2], KEYS[3]
local number, kept, channel = tonumber(ARGV[2]), ARGV[3], ARGV[4]

local done = done_before(operation, number)
if done then
  return tonumber(done)
end
local till = tonumber(redis.call('GET', latch_end) or nil)
write_first(operation, kept)
local is_over = till and till * 1000 <= now and redis.call('PTTL', latch) ~= -1
local count = number_of(latch)
if is_over or not count then
  note_done(operation, number, is_over and -1 or 0, kept)
  return is_over and -1 or 0
end
local left = math.max(count - 1, 0)
note_done(operation, number, left, kept)
-- After its result: a count that the server could not note would be made again by the next attempt.
local counted = redis.pcall('DECRBY', latch, 1)
if type(counted) == 'table' then
  redis.call('DEL', operation)
  return counted
end
if left == 0 then
  redis.call('DEL', latch, latch_end)
  tell(channel)
end
return left

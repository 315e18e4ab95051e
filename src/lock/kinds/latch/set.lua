-- Sets the count of a latch, if it has none.
--
-- preludes stale, number_of, once
-- KEYS[1]  the latch: string, how many have not counted down
-- KEYS[2]  the operation's lane: string '<number>:<result>'
-- KEYS[3]  the end of the latch: string, ms on the server's clock
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  number of the operation
-- ARGV[3]  for how long its result is kept, ms
-- ARGV[4]  the count
-- ARGV[5]  time to live of the latch, ms; 0: it stays until it opens
-- ARGV[6]  channel of the latch
-- reply    1: set; 0: it had a count; error STALE <server us>
local latch, operation, latch_end = KEYS[1], KEYS[2], KEYS[3]
local number, kept, count, ttl, channel = tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]

local done = done_before(operation, number)
if done then
  return tonumber(done)
end
if number_of(latch) then
  note_done(operation, number, 0, kept)
  return 0
end
note_done(operation, number, 1, kept)
if ttl > 0 then
  -- It outlives the latch: so those that come late learn that it did not open.
  redis.call('SET', latch_end, string.format('%.0f', math.floor(now / 1000) + ttl), 'PX', string.format('%.0f', 2 * ttl))
  redis.call('SET', latch, count, 'PX', string.format('%.0f', ttl))
else
  redis.call('DEL', latch_end)
  redis.call('SET', latch, count)
end
redis.pcall('PUBLISH', channel, '1')
return 1

-- Opens a latch, whatever its count, and tells those that wait.
--
-- preludes number_of, tell
-- KEYS[1]  the latch: string, how many have not counted down
-- KEYS[2]  the end of the latch: string, ms on the server's clock
-- ARGV[1]  channel of the latch
-- reply    0: it was open; else what tell returns
local latch, latch_end, channel = KEYS[1], KEYS[2], ARGV[1]

-- What is no count is refused instead of deleted.
if not number_of(latch) then
  return 0
end
redis.call('DEL', latch, latch_end)
return tell(channel)

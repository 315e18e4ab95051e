-- Whether a latch is open: nobody has to count it down.
--
-- preludes stale, number_of
-- KEYS[1]  the latch: string, how many have not counted down
-- KEYS[2]  the end of the latch: string, ms on the server's clock
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- reply    nil: open; integer: ms until its time is over (-1: it stays until it opens); text: its time was over before it opened;
--          error STALE <server us>
local latch, latch_end = KEYS[1], KEYS[2]
local left = number_of(latch)
local till = tonumber(redis.call('GET', latch_end) or nil)
local is_over = till and till * 1000 <= now

-- Always a write: a demoted master answers reads, and may not know of a count. This one keeps the time to live as it is.
redis.call('PEXPIRE', latch_end, math.max(redis.call('PTTL', latch_end), 1))
if left and left > 0 then
  local ttl = redis.call('PTTL', latch)
  if not is_over then
    return ttl
  end
  if ttl == -1 then
    -- A client of Redisson's has set it anew, and the end is that of the latch before.
    redis.call('DEL', latch_end)
    return ttl
  end
  -- The server deletes a key up to a millisecond after its time.
end
return is_over and 'over' or nil

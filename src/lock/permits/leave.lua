-- Gives up the place of a wait, and tells the others: one behind it may be served now.
--
-- preludes tell, tell_first
-- KEYS[1]  the semaphore: string, permits left
-- ARGV[1]  the places of those that wait
-- ARGV[2]  place of this wait
-- ARGV[3]  channel of the semaphore
-- reply    0: it had none; else what tell returns
local semaphore = KEYS[1]
local places, place, channel = ARGV[1], ARGV[2], ARGV[3]

if redis.call('HDEL', places, place) == 0 then
  return 0
end
local left = redis.pcall('GET', semaphore)
tell_first(places, type(left) == 'string' and tonumber(left) or 0)
return tell(channel, type(left) == 'string' and left or '0')

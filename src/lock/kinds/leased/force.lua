-- Takes all permits back, whoever has them, and tells those that wait.
--
-- preludes number_of, tell, tell_first
-- KEYS[1]  the semaphore: string, permits left
-- KEYS[2]  the leases: zset, id of a permit that is out -> until when, ms
-- ARGV[1]  channel of the semaphore
-- ARGV[2]  the places of those that wait; empty: they may be at another node
-- reply    0: none was out; else what tell returns
local semaphore, leases, channel, places = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

number_of(semaphore)
local out = redis.call('ZCARD', leases)
if out == 0 then
  return 0
end
redis.call('DEL', leases)
local left = redis.call('INCRBY', semaphore, out)
tell_first(places, left)
return tell(channel, left)

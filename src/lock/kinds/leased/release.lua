-- Gives the permits of a hold back and tells those that wait. Each permit goes back once: its id is never used again.
--
-- preludes number_of, tell, tell_first
-- KEYS[1]  the semaphore: string, permits left
-- KEYS[2]  the leases: zset, id of a permit that is out -> until when, ms
-- ARGV[1]  owner field: the ids are '<owner>:1' and so on
-- ARGV[2]  how many permits
-- ARGV[3]  channel of the semaphore
-- ARGV[4]  the places of those that wait; empty: they may be at another node
-- reply    0: one of them was gone, the others are given back; else what tell returns
local semaphore, leases = KEYS[1], KEYS[2]
local owner, permits, channel, places = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

number_of(semaphore)
local there = 0
for i = 1, permits do
  there = there + redis.call('ZREM', leases, owner .. ':' .. i)
end
if there == 0 then
  return 0
end
-- ZREM needs no memory, and after a write the server refuses INCRBY to nobody.
local left = redis.call('INCRBY', semaphore, there)
tell_first(places, left)
local told = tell(channel, left)
return there == permits and told or 0

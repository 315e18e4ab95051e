-- Deletes a semaphore, with all permits that are out.
--
-- preludes number_of
-- KEYS[1]  the semaphore: string, permits left
-- KEYS[2]  the leases: zset, id of a permit that is out -> until when, ms
-- reply    1: deleted; 0: nobody had set its permits
local semaphore, leases = KEYS[1], KEYS[2]
number_of(semaphore)
redis.call('DEL', leases)
return redis.call('DEL', semaphore)

-- Deletes a semaphore.
--
-- preludes number_of
-- KEYS[1]  the semaphore: string, permits left
-- reply    1: deleted; 0: nobody had set its permits
local semaphore = KEYS[1]
number_of(semaphore)
return redis.call('DEL', semaphore)

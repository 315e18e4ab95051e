-- Makes the time-out of a read hold, or prolongs it, where the lock is at another node.
--
-- preludes stale
-- KEYS[1]  the time-out: string
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  lease, ms
-- reply    the deadline; error STALE <server us>
local timeout = KEYS[1]
local lease = tonumber(ARGV[2])

redis.call('SET', timeout, 1, 'PX', math.max(lease, redis.call('PTTL', timeout)))
return deadline

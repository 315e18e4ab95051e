-- A server that was stopped must not execute what its caller gave up. `now`: us on the server's clock.
--
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- reply    error STALE <server us>; else that of what follows
local deadline = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now >= deadline then
  return redis.error_reply('STALE ' .. string.format('%.0f', now))
end


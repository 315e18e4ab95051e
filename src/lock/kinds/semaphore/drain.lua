-- Takes all permits that are left.
--
-- preludes stale, number_of, once
-- KEYS[1]  the semaphore: string, permits left
-- KEYS[2]  the operation's lane: string '<number>:<result>'
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  number of the operation
-- ARGV[3]  for how long its result is kept, ms
-- reply    how many were taken; error STALE <server us>
local semaphore, operation = KEYS[1], KEYS[2]
local number, kept = tonumber(ARGV[2]), ARGV[3]

local done = done_before(operation, number)
if done then
  return tonumber(done)
end
local left = math.max(number_of(semaphore) or 0, 0)
note_done(operation, number, left, kept)
if left > 0 then
  redis.call('SET', semaphore, '0')
end
return left

-- Takes the lock if it is free, with a token greater than each before it; else says how long it is still held.
--
-- preludes stale, expire, next_token
-- KEYS[1]  the lock: hash, owner field -> hold count
-- KEYS[2]  the counter of its tokens: string
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  lease, ms
-- ARGV[3]  owner field
-- ARGV[4]  time to live of the counter, ms; 0: it stays for ever
-- reply    array: acquired, with this token, and the deadline; integer: the holder's PTTL, ms (-1: none); error STALE <server us>; error TOKEN:
--          the counter is no counter, and nothing was done
local lock, counter = KEYS[1], KEYS[2]
local lease, owner = tonumber(ARGV[2]), ARGV[3]

local left = redis.call('PTTL', lock)
if left ~= -2 and redis.call('HEXISTS', lock, owner) == 0 then
  return left
end
-- Also if a copy of this very attempt was here before. That copy may have taken the lock without its counter, whose last token is
-- then another hold's.
local token, wrong = next_token(counter, tonumber(ARGV[4]), now)
if wrong then
  return wrong
end
redis.call('HSET', lock, owner, 1)
return left < lease and expire(lock, lease, left == -2 and { lock } or {}) or { token, deadline }

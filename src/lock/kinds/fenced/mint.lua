-- Mints a token for a client that took the lock without one, because the counter is at another node.
--
-- preludes stale, next_token
-- KEYS[1]  the counter of the tokens: string
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  time to live of the counter, ms; 0: it stays for ever
-- reply    array: the token, and the deadline; error STALE <server us>; error TOKEN: the counter is no counter, and nothing was done
local counter = KEYS[1]

local token, wrong = next_token(counter, tonumber(ARGV[2]), now)
return wrong or { token, deadline }

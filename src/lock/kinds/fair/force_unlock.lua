-- Frees a fair lock whoever has it, and gives it to the first of its queue, or tells all waiters.
--
-- preludes tell, give, serve, serve_now
-- KEYS[1]  the lock
-- ARGV[1]  channel of the lock; with a colon and a field behind it, that of a thread
-- ARGV[2]  the queue: list of owner fields in order of arrival; empty: it may be at another node, and all are told
-- ARGV[3]  zset, owner field -> until when it counts, ms
-- ARGV[4]  hash, owner field -> ticket
-- reply    0: nobody had it; else what tell returns (1: it was not asked)
local lock = KEYS[1]
local channel, list, ends, tickets = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if redis.call('HLEN', lock) == 0 then
  return 0
end
redis.call('DEL', lock)
local done, first = pcall(serve_now, lock, list, ends, tickets, channel)
return done and first and 1 or tell(channel)

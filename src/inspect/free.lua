-- Frees a lock of any kind if exactly these hold it, and gives it to the first of a fair lock's queue, or tells all that wait.
--
-- preludes tell, give, serve, serve_now
-- KEYS[1]  the lock: hash, owner field -> hold count; of a read-write lock also mode -> read or write
-- ARGV[1]  channel of the lock; with a colon and a field behind it, that of a thread
-- ARGV[2]  channel of a read-write lock
-- ARGV[3]  the queue of a fair lock: list of owner fields; empty: it may be at another node, and all are told
-- ARGV[4]  zset, owner field -> until when it counts, ms
-- ARGV[5]  hash, owner field -> ticket
-- ARGV[6]  owner field of a holder; more may follow
-- reply    0: others hold it, or nobody; else what tell returns (1: it was not asked)
local lock = KEYS[1]
local channel, sides, list, ends, tickets = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local mode = redis.call('HGET', lock, 'mode')
local fields = redis.call('HLEN', lock) - (mode and 1 or 0)
if fields ~= #ARGV - 5 then
  return 0
end
for at = 6, #ARGV do
  local owner = ARGV[at]
  if redis.call('HEXISTS', lock, owner) == 0 then
    return 0
  end
end
redis.call('DEL', lock)
if mode then
  return tell(sides, mode == 'write' and '1' or '0')
end
local done, served = pcall(serve_now, lock, list, ends, tickets, channel)
return done and served and 1 or tell(channel)

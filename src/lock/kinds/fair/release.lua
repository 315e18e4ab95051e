-- Gives up one level of a hold of a fair lock; with the last level the lock is given to the first of its queue, or freed and all waiters are
-- told. The release is done after DEL. If a later step fails, everybody is told that the lock is free.
--
-- preludes held, tell, give, serve, serve_now
-- KEYS[1]  the lock: hash, owner field -> hold count
-- ARGV[1]  owner field
-- ARGV[2]  hold count that is left, absolute; 0 frees the lock
-- ARGV[3]  channel of the lock; with a colon and a field behind it, that of a thread
-- ARGV[4]  the queue: list of owner fields in order of arrival; empty: it may be at another node, and all are told
-- ARGV[5]  zset, owner field -> until when it counts, ms
-- ARGV[6]  hash, owner field -> ticket
-- reply    1: a level was given up; 0: not held by this owner; without a queue what tell returns; else array of three: what tell
--          returns (1: it was not asked); 1: the lock is for the first of the queue, 0: there is none, -2: the server refuses the queue;
--          then for -2 the error
local lock = KEYS[1]
local owner, count, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local list, ends, tickets = ARGV[4], ARGV[5], ARGV[6]

local ours, failed = held(lock, owner)
if ours ~= 1 then
  return ours or failed
end
if count > 0 then
  redis.call('HSET', lock, owner, count)
  return 1
end
redis.call('DEL', lock)
if list == '' then
  return tell(channel)
end
local done, first = pcall(serve_now, lock, list, ends, tickets, channel)
if not done then
  return { tell(channel), -2, type(first) == 'table' and first.err or tostring(first) }
end
return first and { 1, 1, 0 } or { tell(channel), 0, 0 }

-- Gives up one level of a write hold; with the last level the lock is freed, or left to the readers of the same thread, and waiters
-- are told. It uses only commands that work when the server is out of memory, but for advice.
--
-- preludes tell, readers
-- KEYS[1]  the lock: hash, mode -> read or write, owner field -> hold count
-- ARGV[1]  field of the write hold
-- ARGV[2]  hold count that is left, absolute; 0 frees the lock
-- ARGV[3]  channel of the lock
-- ARGV[4]  what the time-outs of this lock begin with
-- ARGV[5]  1: a time-out that is not seen is gone; 0: it may be at another node
-- ARGV[6]  the mark of writers: zset, field of a write hold -> until when; empty: it is left out
-- ARGV[7]  the turn of readers: string, 'waiting' or 'turn'
-- ARGV[8]  how long the turn is left to readers, if any wait, ms
-- reply    1: a level was given up; 0: not held by this owner; else what tell returns
local lock = KEYS[1]
local owner, left, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local prefix, trusts = ARGV[4], ARGV[5] == '1'
local marks, turn, span = ARGV[6], ARGV[7], ARGV[8]

if redis.call('HEXISTS', lock, owner) == 0 then
  -- It may have waited, and kept readers out.
  if marks ~= '' and redis.pcall('ZREM', marks, owner) == 1 and redis.call('HGET', lock, 'mode') ~= 'write' then
    tell(channel, '1')
  end
  return 0
end
if left > 0 then
  redis.call('HSET', lock, owner, left)
  return 1
end
redis.call('HDEL', lock, owner)
if leave_to_readers(lock, prefix, trusts) then
  redis.call('HSET', lock, 'mode', 'read')
else
  redis.call('DEL', lock)
end
if marks ~= '' and redis.pcall('GET', turn) == 'waiting' then
  redis.pcall('SET', turn, 'turn', 'PX', span)
end
return tell(channel, '1')

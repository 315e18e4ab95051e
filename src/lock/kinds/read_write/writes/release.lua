-- Gives up one level of a write hold; with the last level the lock is freed, or left to the readers of the same thread, and waiters
-- are told. It uses only commands that work when the server is out of memory, but for advice.
--
-- preludes held, tell, readers, writer_left, next_writer
-- KEYS[1]  the lock: hash, mode -> read or write, owner field -> hold count
-- ARGV[1]  field of the write hold
-- ARGV[2]  hold count that is left, absolute; 0 frees the lock
-- ARGV[3]  channel of the lock
-- ARGV[4]  what the time-outs of this lock begin with
-- ARGV[5]  1: a time-out that is not seen is gone; 0: it may be at another node
-- ARGV[6]  the mark of writers: zset; empty: it is left out
-- ARGV[7]  the turn of readers: string, 'waiting' or 'turn'
-- ARGV[8]  how long the lock is left to readers that waited, or else to the writer that has waited longest, ms
-- ARGV[9]  what the ears of clients begin with; empty: it is not counted here who listens
-- ARGV[10] for how long a writer that waits counts at most, ms
-- reply    1: a level was given up; 0: not held by this owner; else what tell returns
local lock = KEYS[1]
local owner, left, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local prefix, trusts = ARGV[4], ARGV[5] == '1'
local marks, turn, span = ARGV[6], ARGV[7], ARGV[8]
local ears, longest = ARGV[9], tonumber(ARGV[10])

local function leave_turn()
  if redis.call('GET', turn) == 'waiting' then
    redis.call('SET', turn, 'turn', 'PX', span)
  else
    leave_to_next_writer(marks, ears, longest, span)
  end
end

-- It may have waited, and kept readers out. What was left to it, and to nobody after it, goes with it.
local function is_out()
  local left = redis.pcall('ZREM', marks, owner, '+' .. owner, '@' .. owner)
  if type(left) ~= 'number' or left == 0 then
    return false
  end
  if redis.pcall('ZREVRANGE', marks, -1, -1)[1] == '!' then
    redis.call('ZREM', marks, '!')
  end
  return true
end

local ours, failed = held(lock, owner)
if failed then
  return failed
end
if ours == 0 then
  -- A key of another type has no mode: those who wait are told, and hear from it that it is no lock.
  if marks ~= '' and is_out() and redis.pcall('HGET', lock, 'mode') ~= 'write' then
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
if marks ~= '' then
  pcall(leave_turn)
end
return tell(channel, '1')

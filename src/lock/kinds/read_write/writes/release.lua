-- Gives up one level of any number of write holds of one slot, as if by a call each. With the last level a lock is freed, or left to the
-- readers of the same thread, and its waiters are told. Except for advice, it uses only commands that work when the server is out of
-- memory.
--
-- preludes held, tell, readers, writer_left, next_writer
-- KEYS[i]  a lock: hash, mode -> read or write, owner field -> hold count
-- ARGV[1]  1: a time-out that is not seen is gone; 0: it may be at another node
-- ARGV[2]  how long a lock is left to readers that waited, or else to the writer that has waited longest, ms
-- ARGV[3]  hold count that is left, absolute; 0 frees the locks
-- ARGV[4]  how long a waiting writer counts at most, ms
-- ARGV[5]  field of the write hold of KEYS[1]
-- ARGV[6]  channel of that lock
-- ARGV[7]  what its time-outs begin with
-- ARGV[8]  its mark of writers: zset; empty: it is left out
-- ARGV[9]  its turn of readers: string, 'waiting' or 'turn'
-- ARGV[10] what the names of clients' ears begin with; empty: listeners are not counted here. And so on: six from ARGV[6i - 1] for KEYS[i]
-- reply    array: 1: a level was given up; 0: not held by this owner; else what tell returns
local trusts, span, left, longest = ARGV[1] == '1', ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local first, each = 5, 6

local function leave_turn(marks, turn, ears)
  if redis.call('GET', turn) == 'waiting' then
    redis.call('SET', turn, 'turn', 'PX', span)
  else
    leave_to_next_writer(marks, ears, longest, span)
  end
end

-- Takes out what a waiting writer left, which keeps readers out; `!`, too, if it is before all arrivals then.
local function is_out(marks, owner)
  local left = redis.pcall('ZREM', marks, owner, '+' .. owner, '@' .. owner)
  if type(left) ~= 'number' or left == 0 then
    return false
  end
  if redis.pcall('ZREVRANGE', marks, -1, -1)[1] == '!' then
    redis.call('ZREM', marks, '!')
  end
  return true
end

local function release(lock, owner, channel, prefix, marks, turn, ears)
  redis.call('HDEL', lock, owner)
  if leave_to_readers(lock, prefix, trusts) then
    redis.call('HSET', lock, 'mode', 'read')
  else
    redis.call('DEL', lock)
  end
  if marks ~= '' then
    pcall(leave_turn, marks, turn, ears)
  end
  return tell(channel, '1')
end

local released = {}
for i, lock in ipairs(KEYS) do
  local owner, channel, prefix, marks, turn, ears = unpack(ARGV, first + (i - 1) * each, first + i * each - 1)
  local ours, failed = held(lock, owner)
  if failed then
    return failed
  end
  released[i] = ours
  if ours == 0 then
    -- A key of another type has no mode: the waiters are told, look, and find that it is no lock.
    if marks ~= '' and is_out(marks, owner) and redis.pcall('HGET', lock, 'mode') ~= 'write' then
      tell(channel, '1')
    end
  elseif left > 0 then
    redis.call('HSET', lock, owner, left)
  else
    released[i] = release(lock, owner, channel, prefix, marks, turn, ears)
  end
end
return released

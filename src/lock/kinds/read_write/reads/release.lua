-- Gives up any number of read holds of one slot, as if by a call each: a lock is freed with its last holder, and its waiters are told.
-- Except for advice, it uses only commands that work when the server is out of memory.
--
-- preludes held, tell, readers, writer_left, next_writer
-- KEYS[i]  a lock: hash, mode -> read or write, owner field -> hold count; or the time-out of the hold before it: string
-- ARGV[1]  1: a time-out that is not seen is gone; 0: it may be at another node
-- ARGV[2]  how long a free lock is left to the writer that has waited longest, ms
-- ARGV[3]  how long a waiting writer counts at most, ms
-- ARGV[4]  owner field of KEYS[1], empty if that is a time-out
-- ARGV[5]  channel of that lock
-- ARGV[6]  what its time-outs begin with
-- ARGV[7]  its mark of writers: zset; empty: it is left out
-- ARGV[8]  what the names of clients' ears begin with; empty: listeners are not counted here. And so on: five from ARGV[5i - 1] for KEYS[i]
-- reply    array: of a lock 0: not held by this owner; 1: it is still held; else what tell returns; of a time-out 1
local trusts, span, longest = ARGV[1] == '1', ARGV[2], tonumber(ARGV[3])
local first, each = 4, 5

local function release(lock, owner, channel, prefix, marks, ears)
  redis.call('HDEL', lock, owner)
  if redis.call('HGET', lock, 'mode') == 'write' or leave_to_readers(lock, prefix, trusts) then
    return 1
  end
  redis.call('DEL', lock)
  if marks ~= '' then
    pcall(leave_to_next_writer, marks, ears, longest, span)
  end
  return tell(channel, '0')
end

local released = {}
for i, key in ipairs(KEYS) do
  local owner, channel, prefix, marks, ears = unpack(ARGV, first + (i - 1) * each, first + i * each - 1)
  local ours, failed = 1, nil
  if owner == '' then
    redis.call('DEL', key)
  else
    ours, failed = held(key, owner)
  end
  if failed then
    return failed
  end
  released[i] = owner ~= '' and ours == 1 and release(key, owner, channel, prefix, marks, ears) or ours
end
return released

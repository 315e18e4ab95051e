-- Gives up a read hold; with the last one the lock is freed and waiters are told.
-- It uses only commands that work when the server is out of memory.
--
-- preludes held, tell, readers, writer_left, next_writer
-- KEYS[1]  the lock: hash, mode -> read or write, owner field -> hold count
-- KEYS[2]  the time-out of the hold: string; not given where it goes by a command of its own
-- ARGV[1]  owner field
-- ARGV[2]  channel of the lock
-- ARGV[3]  what the time-outs of this lock begin with
-- ARGV[4]  1: a time-out that is not seen is gone; 0: it may be at another node
-- ARGV[5]  the mark of writers: zset; empty: it is left out
-- ARGV[6]  how long the lock is left to the writer that has waited longest, ms
-- ARGV[7]  what the ears of clients begin with; empty: it is not counted here who listens
-- ARGV[8]  for how long a writer that waits counts at most, ms
-- reply    0: not held by this owner; 1: given up, and nobody was told; else what tell returns
local lock, timeout = KEYS[1], KEYS[2]
local owner, channel, prefix, trusts = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local marks, span, ears, longest = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])

if timeout then
  redis.call('DEL', timeout)
end
local ours, failed = held(lock, owner)
if ours ~= 1 then
  return ours or failed
end
redis.call('HDEL', lock, owner)
if redis.call('HGET', lock, 'mode') == 'write' or leave_to_readers(lock, prefix, trusts) then
  return 1
end
redis.call('DEL', lock)
if marks ~= '' then
  pcall(leave_to_next_writer, marks, ears, longest, span)
end
return tell(channel, '0')

-- Frees one side of the lock, whoever holds it, and tells waiters.
--
-- preludes tell, readers
-- KEYS[1]  the lock: hash, mode -> read or write, owner field -> hold count
-- ARGV[1]  the side: read or write
-- ARGV[2]  channel of the lock
-- ARGV[3]  what the time-outs of this lock begin with
-- ARGV[4]  1: a time-out that is not seen is gone; 0: it may be at another node
-- reply    0: it was free; else what tell returns
local lock = KEYS[1]
local side, channel, prefix, trusts = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'

-- Takes the fields of the side out; returns whether there were any.
local function taken_out()
  local found = false
  for _, field in ipairs(redis.call('HKEYS', lock)) do
    if field ~= 'mode' and (side == 'write') == is_writer(field) then
      found = redis.call('HDEL', lock, field) == 1
    end
  end
  return found
end

local mode = redis.call('HGET', lock, 'mode')
if not mode or (side == 'write' and mode ~= 'write') or not taken_out() then
  return 0
end
if side == 'read' and mode == 'write' then
  return tell(channel, '0')
end
if side == 'write' and leave_to_readers(lock, prefix, trusts) then
  redis.call('HSET', lock, 'mode', 'read')
else
  redis.call('DEL', lock)
end
return tell(channel, side == 'write' and '1' or '0')

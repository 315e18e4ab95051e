-- How long one side of the lock is still held.
--
-- preludes readers
-- KEYS[1]  the lock: hash, mode -> read or write, owner field -> hold count
-- ARGV[1]  the side: read or write
-- reply    integer: ms, -1: no end, -2: it is not held
local lock = KEYS[1]
local side = ARGV[1]

local mode = redis.call('HGET', lock, 'mode')
if mode == side then
  return redis.call('PTTL', lock)
end
-- The thread that writes may read, too.
for _, field in ipairs(side == 'read' and mode == 'write' and redis.call('HKEYS', lock) or {}) do
  if field ~= 'mode' and not is_writer(field) then
    return redis.call('PTTL', lock)
  end
end
return -2

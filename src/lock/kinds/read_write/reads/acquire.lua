-- Takes a share of the lock if nobody writes and no writer of ours waits; else says for how long it is not to be had.
--
-- preludes stale, expire, readers_turn, writer_left
-- KEYS[1]  the lock: hash, mode -> read or write, owner field -> hold count
-- KEYS[2]  the time-out of this hold: string; not given where it goes by a command of its own
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  lease, ms
-- ARGV[3]  owner field
-- ARGV[4]  field of the write hold of the same thread; empty: it has none
-- ARGV[5]  the mark of writers: zset, as in the prelude writer_left; empty: it is left out
-- ARGV[6]  the turn of readers: string, 'waiting' or 'turn'
-- ARGV[7]  what the names of clients' ears begin with; empty: listeners are not counted here
-- ARGV[8]  how long it is kept that a call waits, and how long that counts at most, ms
-- ARGV[9]  1: this call waits; 0: it does not
-- reply    the deadline: acquired; integer: for how many ms it is not to be had (-1: no end); error STALE <server us>
local lock, timeout = KEYS[1], KEYS[2]
local lease, owner, proof = tonumber(ARGV[2]), ARGV[3], ARGV[4]
local marks, turn, ears = ARGV[5], ARGV[6], ARGV[7]
local span, waits = tonumber(ARGV[8]), ARGV[9] == '1'

-- The next writer that leaves gives this reader a turn.
local function waits_for_writer()
  if waits then
    redis.call('SET', turn, 'waiting', 'PX', span)
  end
end

-- For how many ms a waiting writer comes first, by the last entry that counts. Arrivals and `!` keep no reader out.
local function left_to_writers()
  if left_to_readers(turn) > 0 then
    return 0
  end
  for _, entry in ipairs(redis.call('ZREVRANGE', marks, 0, -1)) do
    local field = string.match(entry, '^%+(.*)')
    local left = field and writer_left(marks, ears, span, field, now / 1000) or 0
    if left > 0 then
      waits_for_writer()
      return math.ceil(left)
    end
  end
  return 0
end

local left = redis.call('PTTL', lock)
local mode = left == -2 and 'read' or redis.call('HGET', lock, 'mode')
-- A copy of this very attempt was here before, or the thread writes.
local is_in = left ~= -2
  and (redis.call('HEXISTS', lock, owner) == 1 or proof ~= '' and redis.call('HEXISTS', lock, proof) == 1)
if not is_in and mode ~= 'read' then
  if mode == 'write' and marks ~= '' then
    pcall(waits_for_writer)
  end
  return left
end
if not is_in and marks ~= '' then
  local known, others = pcall(left_to_writers)
  if known and others > 0 then
    return others
  end
end

-- The time-out comes first, so that no share is there without it.
if timeout then
  redis.call('SET', timeout, 1, 'PX', math.max(lease, redis.call('PTTL', timeout)))
end
redis.call('HSET', lock, 'mode', mode, owner, 1)
local failed = left ~= -1 and left < lease and expire(lock, lease, left == -2 and { lock, timeout } or { timeout })
if failed then
  redis.call('HDEL', lock, owner)
  return failed
end
return deadline

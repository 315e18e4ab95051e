-- Takes the lock alone if it is free; else says how long it is still held.
--
-- preludes stale, expire, readers_turn, writer_left
-- KEYS[1]  the lock: hash, mode -> read or write, owner field -> hold count
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  lease, ms
-- ARGV[3]  field of the write hold
-- ARGV[4]  hold count, absolute
-- ARGV[5]  the mark of writers: zset, as in the prelude writer_left; empty: it is left out
-- ARGV[6]  the turn of readers: string, 'waiting' or 'turn'
-- ARGV[7]  what the names of clients' ears begin with; empty: listeners are not counted here
-- ARGV[8]  how long it is kept that a call waits, and how long that counts at most, ms
-- ARGV[9]  1: this call waits; 0: it does not
-- reply    the deadline: acquired; integer: for how many ms it is not to be had (-1: no end); error STALE <server us>
local lock = KEYS[1]
local lease, owner, count = tonumber(ARGV[2]), ARGV[3], ARGV[4]
local marks, turn, ears = ARGV[5], ARGV[6], ARGV[7]
local span, minds = tonumber(ARGV[8]), marks ~= '' and ARGV[9] == '1'
local at = now / 1000

-- Enters this writer in the mark, which keeps new readers out; but in the readers' turn it only returns the ms left of that.
-- An arrival in the future is of before the clock was put back: all that come until then would pass this writer, so it is set anew.
local function mark()
  local others = left_to_readers(turn)
  if others > 0 then
    return others
  end
  local arrival = redis.call('ZSCORE', marks, owner)
  if not arrival or tonumber(arrival) > at then
    redis.call('ZADD', marks, string.format('%.3f', at), owner)
  end
  local ends = string.format('%.0f', at + span)
  redis.call('ZADD', marks, ends, '+' .. owner)
  if is_heard(ears, owner) then
    redis.call('ZADD', marks, ends, '@' .. owner)
  else
    redis.call('ZREM', marks, '@' .. owner)
  end
  if redis.call('PTTL', marks) < span and type(redis.pcall('PEXPIRE', marks, span)) == 'table' then
    redis.call('DEL', marks)
  end
  return 0
end

-- For how many ms the lock is left to another writer, which has waited longer.
local function left_to_first()
  local left = (redis.call('ZSCORE', marks, '!') or 0) - at
  if left <= 0 or left > 1000 then
    return 0
  end
  local first = redis.call('ZREVRANGE', marks, -1, -1)[1]
  return first ~= owner and first ~= '!' and math.ceil(left) or 0
end

local function left_to_others()
  local others = left_to_readers(turn)
  return others > 0 and others or left_to_first()
end

local left = redis.call('PTTL', lock)
if left ~= -2 and redis.call('HEXISTS', lock, owner) == 0 then
  if not minds or not redis.call('HGET', lock, 'mode') then
    return left
  end
  local known, others = pcall(mark)
  if not known or others == 0 then
    return left
  end
  return left < 0 and others or math.min(left, others)
end
if left == -2 and minds then
  local known, others = pcall(left_to_others)
  if known and others > 0 then
    return others
  end
end

redis.call('HSET', lock, 'mode', 'write', owner, count)
local failed = left < lease and expire(lock, lease, left == -2 and { lock } or {})
if failed then
  return failed
end
if minds then
  redis.pcall('ZREM', marks, owner, '+' .. owner, '@' .. owner, '!')
end
return deadline

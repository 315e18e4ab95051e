-- Takes the lock alone when it is free; says how long it is still held when it is not.
--
-- preludes stale, expire
-- KEYS[1]  the lock: hash, mode -> read or write, owner field -> hold count
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  lease, ms
-- ARGV[3]  field of the write hold
-- ARGV[4]  hold count, absolute
-- The last three of ARGV, behind those of the quarantine:
--          the mark of writers: zset, as in the prelude next_writer; empty: it is left out
--          the turn of readers: string, 'waiting' or 'turn'
--          for how long a writer that waits keeps readers out, ms; 0: it does not wait
-- reply    nil: acquired; integer: for how many ms it is not to be had (-1: no end); error STALE <server us>
local lock = KEYS[1]
local lease, owner, count = tonumber(ARGV[2]), ARGV[3], ARGV[4]
local marks, turn, waits = ARGV[#ARGV - 2], ARGV[#ARGV - 1], tonumber(ARGV[#ARGV])
local minds = marks ~= '' and waits > 0

-- For how many ms it is the turn of readers. One that nobody of ours left has no end, or a late one.
local function left_to_readers()
  local left = redis.call('GET', turn) == 'turn' and redis.call('PTTL', turn) or 0
  return left <= 1000 and math.max(left, 0) or 0
end

-- Waits for its turn among writers, and keeps new readers out, unless it is theirs, for how many ms.
local function mark()
  local others = left_to_readers()
  if others > 0 then
    return others
  end
  if not redis.call('ZSCORE', marks, owner) then
    redis.call('ZADD', marks, string.format('%.3f', now / 1000), owner)
  end
  redis.call('ZADD', marks, string.format('%.0f', now / 1000 + waits), '+' .. owner)
  if redis.call('PTTL', marks) < waits and type(redis.pcall('PEXPIRE', marks, waits)) == 'table' then
    redis.call('DEL', marks)
  end
  return 0
end

-- For how many ms the lock is left to another writer, that waits for longer.
local function left_to_first()
  local left = (redis.call('ZSCORE', marks, '!') or 0) - now / 1000
  if left <= 0 or left > 1000 then
    return 0
  end
  local first = redis.call('ZREVRANGE', marks, -1, -1)[1]
  return first ~= owner and first ~= '!' and math.ceil(left) or 0
end

local function left_to_others()
  local others = left_to_readers()
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
  redis.pcall('ZREM', marks, owner, '+' .. owner, '!')
end
return nil

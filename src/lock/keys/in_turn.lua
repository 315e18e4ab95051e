-- Asks for the lock in turn: what is free beside a queue is given to the first there, and who does not get the lock queues.
-- Whatever fails in here leaves the lock asked for as without a queue: exclusion rests on the lock's own key alone.
--
-- preludes stale, inside, give, leave_queue
-- KEYS[1]  the lock
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  the queue: zset, ticket -> arrival, us on the server's clock
-- ARGV[3]  the mark: while it is there, for 1 s at most, a lock that is free is left to foreigners
-- ARGV[4]  ticket of this wait, empty: it has none
-- ARGV[5]  its names before, by one of which it may be in the queue: what stands behind the last colon of a ticket, with spaces in between
-- ARGV[6]  TTL of the queue, ms; 0: it does not queue; -1: it leaves the queue
-- inner    the acquire, with the arguments behind these: the second is its owner field
-- reply    what `inner` grants, or its error; else array of four: the holder's PTTL, ms (-1: none, -2: it is free); rank in
--          the queue (-1: not in it, -2: it left); ms for which it is left to foreigners (0: it is not); 1: the holder is none of ours
--          (0: it is, or is not known)
local lock = KEYS[1]
local queue, mark, ticket, before, ttl = ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
-- The arguments of `inner` follow: the lease, then the owner.
local owner = ARGV[6 + 2]

-- Takes the place that it has by an earlier name.
local function renamed()
  for name in string.gmatch(before, '%S+') do
    local old = string.match(ticket, '^.*:') .. name
    local rank = redis.call('ZRANK', queue, old)
    if rank then
      local score = redis.call('ZRANGE', queue, rank, rank, 'WITHSCORES')[2]
      -- In this order, so that the queue keeps its TTL if nobody else is in it.
      redis.call('ZADD', queue, score, ticket)
      redis.call('ZREM', queue, old)
    end
  end
end

-- A mark without an end, or for long, is nobody's of ours.
local function left_to_foreigners()
  local left = redis.call('PTTL', mark)
  return left > 0 and left <= 1000 and left or 0
end

-- Gives the lock, which is free, to the first of the queue, if that is another; for how many ms.
local function given_to_another()
  local first = redis.call('ZRANGE', queue, '0', '0')[1]
  return first and first ~= ticket and give(lock, queue)
end

-- Whether the owner of this attempt has the lock. A copy of it may have taken the lock, or the lock was given to it, here or before. And 1, if
-- the lock's first field is not of ours: our owner fields have three parts, those of Redisson and the Jedis version two.
local function holder()
  local fields, is_own = redis.pcall('HKEYS', lock), false
  if fields.err then
    return redis.call('HEXISTS', lock, owner) == 1, 0
  end
  for _, field in ipairs(fields) do
    is_own = is_own or field == owner
  end
  local field = fields[1]
  return is_own, field and not string.find(field, '^[^:]*:%d+:%d+$') and 1 or 0
end

-- Its rank in the queue, where it has a place now.
local function joined()
  local comes = redis.call('ZADD', queue, 'NX', string.format('%.0f', now), ticket) == 1
  -- A clock that was put back must not put it before others.
  if comes and redis.call('ZRANGE', queue, '-1', '-1')[1] ~= ticket then
    local last = redis.call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')[2]
    redis.call('ZADD', queue, string.format('%.0f', last + 1), ticket)
  end
  local rank = redis.call('ZRANK', queue, ticket)
  -- A queue that was empty has no TTL yet. Else the TTL is renewed when a third of it is over, which is a poll cap.
  if comes and rank == 0 or redis.call('PTTL', queue) * 3 < ttl * 2 then
    redis.call('PEXPIRE', queue, ttl)
  end
  return rank
end

-- What a function of the queue returns, if nothing fails in it.
local function tried(step)
  local done, said = pcall(step)
  return done and said
end

local left, promised, foreign, asks = redis.call('PTTL', lock), 0, 0, false
if before ~= '' then
  pcall(renamed)
end
if left == -2 then
  promised = tried(left_to_foreigners) or 0
  left = promised == 0 and tried(given_to_another) or left
  asks = left == -2 and promised == 0
end
if left ~= -2 then
  asks, foreign = holder()
end
if asks then
  local said = inner(KEYS, inside(ARGV, 5))
  if type(said) ~= 'number' then
    if ticket ~= '' and not (type(said) == 'table' and said.err) then
      pcall(redis.call, 'ZREM', queue, ticket)
    end
    return said
  end
  left = said
end
local rank = ttl > 0 and tried(joined) or -1
if ttl > 0 and rank == -1 then
  -- Its caller is told that it has no place, so it must not be given the lock. And a queue without a TTL would stay for ever.
  pcall(redis.call, 'ZREM', queue, ticket)
elseif ttl < 0 then
  rank = -2
  pcall(leave_queue, queue, ticket, before)
end
return { left, rank, promised, foreign }

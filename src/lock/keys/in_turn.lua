-- Asks for the lock in turn: what is free beside a queue is given to the first there, and who does not get the lock queues.
-- Whatever fails in here leaves the lock asked for as without a queue: exclusion rests on the lock's own key alone.
--
-- preludes stale, inside, give
-- KEYS[1]  the lock
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  the queue: zset, ticket -> arrival, us on the server's clock
-- ARGV[3]  the mark: while it is there, for 1 s at most, a lock that is free is left to foreigners
-- ARGV[4]  ticket of this wait, empty: it has none
-- ARGV[5]  its names before, by one of which it may be in the queue: what stands behind the last colon of a ticket, with spaces in between
-- ARGV[6]  TTL of the queue, ms; 0: it does not queue
-- inner    the acquire, with the arguments behind these: the second is its owner field
-- reply    what `inner` grants, or its error; else array of four: the holder's PTTL, ms (-1: none, -2: it is free); rank in
--          the queue (-1: not in it); ms for which it is left to foreigners (0: it is not); 1: the holder is none of ours
--          (0: it is, or is not known)
local lock = KEYS[1]
local queue, mark, ticket, before, ttl = ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local owner = inside(ARGV, 5)[3]

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
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  return first and first ~= ticket and give(lock, queue)
end

-- Its rank, at the end if it comes: never in the place of another, which their names would decide on, when the clock was put back.
local function joined()
  if ttl == 0 then
    return -1
  end
  local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
  redis.call('ZADD', queue, 'NX', string.format('%.0f', math.max(now, tonumber(last or 0) + 1)), ticket)
  -- One that was empty has no TTL. Else not each time: a third of it is more than the time between two looks of whoever waits.
  if not last or redis.call('PTTL', queue) * 3 < ttl * 2 then
    local expiring = redis.pcall('PEXPIRE', queue, ttl)
    if type(expiring) == 'table' then
      redis.call('DEL', queue)
      return -1
    end
  end
  return last and redis.call('ZRANK', queue, ticket) or 0
end

-- What a function of the queue returns, if nothing fails in it.
local function tried(step)
  local done, said = pcall(step)
  return done and said
end

local function leaves()
  return ticket ~= '' and redis.call('ZREM', queue, ticket)
end

-- Whether this very attempt has the lock: a copy of it was here before, or it was given the lock, also here, when all before it were dead.
-- And 1, if none of ours has it: our owner fields have three parts, those of Redisson and the Jedis version two.
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

local left, promised, foreign = redis.call('PTTL', lock), 0, 0
local asks = left == -2
tried(renamed)
if asks then
  promised = tried(left_to_foreigners) or 0
  local given = promised == 0 and tried(given_to_another)
  asks = promised == 0 and not given
  left = given or left
end
if left ~= -2 then
  asks, foreign = holder()
end
if asks then
  local said = inner(KEYS, inside(ARGV, 5))
  if type(said) ~= 'number' then
    if not (type(said) == 'table' and said.err) then
      tried(leaves)
    end
    return said
  end
  left = said
end
return { left, tried(joined) or -1, promised, foreign }

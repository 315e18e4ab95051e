-- Asks for the lock in turn: gives a free lock to the first of its queue, and queues if this client does not get it.
-- If anything fails in here, the lock is asked for as without a queue: exclusion rests on the lock's own key alone.
--
-- preludes stale, inside, give, leave_queue
-- KEYS[1]  the lock
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  the queue: zset, ticket -> arrival, us on the server's clock
-- ARGV[3]  the mark: while it is there, for 1 s at most, a lock that is free is left to foreigners
-- ARGV[4]  ticket of this wait, empty: it has none
-- ARGV[5]  its earlier names, one of which may be in the queue: the part behind the last colon of a ticket, with spaces in between
-- ARGV[6]  TTL of the queue, ms; 0: this ask does not queue; -1: it leaves the queue
-- inner    the acquire, with the arguments behind these: the second is its owner field
-- reply    what `inner` grants, or its error; else array of four: the holder's PTTL, ms (-1: none, -2: the lock is free); rank in
--          the queue (-1: not in it, -2: it left); ms for which the lock is left to foreigners (0: it is not); 1: the holder is not
--          one of our clients (0: it is, or that is not known)
local lock = KEYS[1]
local queue, mark, ticket, before, ttl = ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
-- The arguments of `inner` follow: the lease, then the owner.
local owner = ARGV[6 + 2]

-- Moves the place that it has by an earlier name to its ticket.
local function renamed()
  for name in string.gmatch(before, '%S+') do
    local old = string.match(ticket, '^.*:') .. name
    local rank = redis.call('ZRANK', queue, old)
    if rank then
      local score = redis.call('ZRANGE', queue, rank, rank, 'WITHSCORES')[2]
      -- First ZADD, so that the queue keeps its TTL even if nobody else is in it.
      redis.call('ZADD', queue, score, ticket)
      redis.call('ZREM', queue, old)
    end
  end
end

-- Ignores a mark with no TTL, or with more than 1 s: our clients never write such marks.
local function left_to_foreigners()
  local left = redis.call('PTTL', mark)
  return left > 0 and left <= 1000 and left or 0
end

-- Gives the free lock to the first of the queue, if that is another ticket; returns for how many ms.
local function given_to_another()
  local first = redis.call('ZRANGE', queue, '0', '0')[1]
  return first and first ~= ticket and give(lock, queue)
end

-- Whether this attempt's owner has the lock: by a copy of the attempt, or because the lock was given to it, here or before. And 1 if the
-- lock's first field is not ours: our owner fields have three parts, those of Redisson and the Jedis version two.
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

-- Joins the queue, and returns its rank there.
local function joined()
  local comes = redis.call('ZADD', queue, 'NX', string.format('%.0f', now), ticket) == 1
  -- If the server's clock was put back, the ticket must not come before others.
  if comes and redis.call('ZRANGE', queue, '-1', '-1')[1] ~= ticket then
    local last = redis.call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')[2]
    redis.call('ZADD', queue, string.format('%.0f', last + 1), ticket)
  end
  local rank = redis.call('ZRANK', queue, ticket)
  -- A queue that was empty has no TTL yet. Else the TTL is renewed when a third of it, one poll cap, is over.
  if comes and rank == 0 or redis.call('PTTL', queue) * 3 < ttl * 2 then
    redis.call('PEXPIRE', queue, ttl)
  end
  return rank
end

-- What a function of the queue returns; false if it fails.
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
  if said == deadline or type(said) ~= 'number' then
    if ticket ~= '' and not (type(said) == 'table' and said.err) then
      pcall(redis.call, 'ZREM', queue, ticket)
    end
    return said
  end
  left = said
end
local rank = ttl > 0 and tried(joined) or -1
if ttl > 0 and rank == -1 then
  -- The caller is told that it has no place, so it must not be given the lock. And a queue without a TTL would stay for ever.
  pcall(redis.call, 'ZREM', queue, ticket)
elseif ttl < 0 then
  rank = pcall(leave_queue, queue, ticket, before) and -2 or -1
end
return { left, rank, promised, foreign }

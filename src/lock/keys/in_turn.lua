-- Asks for the lock in turn: what is free is not taken while it is promised to another, and who does not get it queues.
-- Whatever fails in here leaves the lock asked for as without a queue: exclusion rests on the lock's own key alone.
--
-- preludes stale, inside, tell_first
-- KEYS[1]  the lock
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  the queue: zset, ticket -> arrival, us on the server's clock
-- ARGV[3]  the mark: string, who has the turn, 'head' or 'foreign'; it ends by its PTTL
-- ARGV[4]  ticket of this wait, empty: it has none
-- ARGV[5]  its names before, by one of which it may be in the queue: what stands behind the last colon of a ticket, with spaces in between
-- ARGV[6]  its arrival: 0: a newcomer; -1: it does not queue
-- ARGV[7]  TTL of the queue, ms
-- ARGV[8]  how long the turn is left to the head of the queue, ms
-- inner    the acquire, with the arguments behind these
-- reply    what `inner` grants, or its error; else array of five: the holder's PTTL, ms (-1: none, -2: it is free); rank in
--          the queue (-1: not in it); ms for which the turn is another's (0: it is not); arrival; 1: the holder is none of
--          ours (0: it is, or is not known)
local lock = KEYS[1]
local queue, mark, ticket, before = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local arrival, ttl, turn = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]

local returns = false

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

-- Takes a place: at the end, or that of its earlier arrival.
local function takes_place()
  returns = arrival > 0 and arrival <= now
  if not returns then
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    -- Never that of another, which their names would decide on, when the clock was put back.
    arrival = math.max(now, tonumber(last or 0) + 1)
  end
  redis.call('ZADD', queue, string.format('%.0f', arrival), ticket)
  return redis.call('ZRANK', queue, ticket)
end

local function joined()
  if arrival < 0 then
    return -1
  end
  local rank = redis.call('ZRANK', queue, ticket) or takes_place()
  -- Not each time: a third of it is more than the time between two looks of whoever waits.
  if redis.call('PTTL', queue) * 3 < ttl * 2 then
    local expiring = redis.pcall('PEXPIRE', queue, ttl)
    if type(expiring) == 'table' then
      redis.call('DEL', queue)
      return -1
    end
  end
  return rank
end

-- For how many ms a mark leaves the turn to others. One that nobody of ours left, without an end or for long, leaves it
-- to nobody.
--
-- It joins before it is compared with the head: who was passed over and comes back with the earliest arrival is the head
-- again, and if it were not, nobody could take the turn that was left to the one behind it.
local function left_to_others(whose)
  local left = redis.call('PTTL', mark)
  if left < 0 or left > 1000 then
    return 0
  end
  if whose ~= 'foreign' and (joined() == 0 or redis.call('EXISTS', queue) == 0) then
    return 0
  end
  return math.max(left, 1)
end

-- No mark, and others in the queue, which it is not in: they are told as by a release. Else who comes between two marks
-- would pass over them each time.
local function leave_to_queue()
  if ticket ~= '' and redis.call('ZRANK', queue, ticket) then
    return 0
  end
  return tell_first(queue, mark, turn, true) and tonumber(turn) or 0
end

-- Those before it were passed over: each is told, for one that lives asks again with its old arrival.
local function taken(marked)
  if marked then
    redis.call('DEL', mark)
  end
  local rank = ticket ~= '' and redis.call('ZRANK', queue, ticket)
  if not rank then
    return
  end
  local passed = rank > 0 and redis.call('ZRANGE', queue, 0, rank - 1) or {}
  redis.call('ZREMRANGEBYRANK', queue, 0, rank)
  for _, other in ipairs(passed) do
    redis.call('PUBLISH', 'redlatch_ear:' .. (string.match(other, '^(.*):') or ''), known(other) .. ' -1')
  end
end

-- Who comes back to be the head tells the one that was: it waits to be told that the lock is free, and would be told of
-- nothing while the one before it is stopped.
local function waits()
  local rank = joined()
  if returns and rank == 0 then
    tell_rank(queue, 1)
  end
  return rank
end

-- Owner fields of ours have three parts, those of Redisson and the Jedis version two.
local function is_foreign()
  local owner = redis.call('HKEYS', lock)[1]
  return owner and not string.find(owner, '^[^:]*:%d+:%d+$') and 1 or 0
end

local left, others, marked = -2, 0, false
pcall(renamed)
-- Whoever may acquire may ask for this.
if redis.call('PTTL', lock) == -2 then
  local known, found = pcall(function()
    local whose = redis.call('GET', mark)
    marked = whose and true
    return whose and left_to_others(whose) or not whose and leave_to_queue() or 0
  end)
  others = known and found or 0
end
if others == 0 then
  left = inner(KEYS, inside(ARGV, 7))
  if type(left) ~= 'number' then
    if not (type(left) == 'table' and left.err) then
      pcall(taken, marked)
    end
    return left
  end
end
local queued, rank = pcall(waits)
local told, is_foreigner = pcall(is_foreign)
return { left, queued and rank or -1, others, queued and arrival or 0, told and is_foreigner or 0 }

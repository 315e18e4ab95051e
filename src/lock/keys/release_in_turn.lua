-- Gives up one level of a hold; with the last level the lock is given to the head of its queue, or freed and those who queue for it
-- are told in turn.
-- Whatever fails after that is nothing but news that is told to all: the release is done.
--
-- preludes held, tell, tell_first, give
-- KEYS[1]  the lock: hash, owner field -> hold count
-- ARGV[1]  owner field
-- ARGV[2]  hold count that is left, absolute; 0 frees the lock
-- ARGV[3]  channel of the lock
-- ARGV[4]  the queue: zset, ticket -> arrival, us on the server's clock
-- ARGV[5]  the mark: string, who has the turn, 'head' or 'foreign'; it ends by its PTTL
-- ARGV[6]  how long the turn is left to the head of the queue, ms; 0: it is told, and whoever comes first has it
-- ARGV[7]  channel that each of our clients listens to beside that of the lock
-- ARGV[8]  how long the turn is left to foreigners, if any listen, ms; 0: it is not
-- ARGV[9]  1: everybody is told, whatever the counts say: they see nobody who listens at a replica
-- ARGV[10] 1: the second of the queue is told, too, or that the first was given the lock
-- reply    1: a level was given up; 0: not held by this owner; else array of three: what tell returns (1: it was not
--          asked); 2: the head of the queue has the lock, 1: it was told, 0: there is none, -1: the turn is the foreigners',
--          -2: the server refuses the queue; then for -1 how many of ours listen, for -2 the error
local lock = KEYS[1]
local owner, left, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local queue, mark, turn, members = ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local foreign_turn, to_all, second = tonumber(ARGV[8]), ARGV[9] == '1', ARGV[10] == '1'

local ours, failed = held(lock, owner)
if ours ~= 1 then
  return ours or failed
end
if left > 0 then
  redis.call('HSET', lock, owner, left)
  return 1
end
redis.call('DEL', lock)

-- Who listens to the lock's channel and not to ours: a JVM, a monitor. And how many are ours. Counts by this server alone.
local function listeners()
  local counts = redis.call('PUBSUB', 'NUMSUB', channel, members)
  return math.max(counts[2] - counts[4], 0), counts[4]
end

local function in_turn()
  if foreign_turn > 0 then
    local foreigners, ours = listeners()
    if foreigners > 0 then
      -- The head is told all the same: it comes when they have not.
      tell_first(queue, mark, turn, true)
      redis.call('SET', mark, 'foreign', 'PX', foreign_turn)
      return { tell(channel), -1, ours }
    end
  end
  -- Now and then the lock is free for a moment: for tries, for groups, and for who listens at a replica.
  local given = not to_all and give(lock, queue)
  if given then
    -- Whoever has it may be stopped, and the next sleeps by what turns were like.
    if second then
      pcall(tell_rank, queue, 0, 'after:' .. given)
    end
    return { 1, 2, 0 }
  end
  if not tell_first(queue, mark, turn, second) then
    return { tell(channel), 0, 0 }
  end
  return { (to_all or listeners() > 0) and tell(channel) or 1, 1, 0 }
end

local done, said = pcall(in_turn)
if done then
  return said
end
return { tell(channel), -2, type(said) == 'table' and said.err or tostring(said) }

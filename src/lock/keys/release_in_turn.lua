-- Gives up one level of a hold; with the last level the lock is given to the first of its queue, or freed and all waiters are told.
-- The release is done after DEL. If a later step fails, everybody is told that the lock is free.
--
-- preludes held, tell, tell_head, next_token, give
-- KEYS[1]  the lock: hash, owner field -> hold count
-- ARGV[1]  owner field
-- ARGV[2]  hold count that is left, absolute; 0 frees the lock
-- ARGV[3]  channel of the lock
-- ARGV[4]  the queue: zset, ticket -> arrival, us on the server's clock; empty: it may be at another node, and all are told
-- ARGV[5]  the mark: while it is there, for 1 s at most, a lock that is free is left to foreigners
-- ARGV[6]  channel that each of our clients listens to beside the lock's channel
-- ARGV[7]  how long the lock is left to foreigners, if any listen, ms; 0: it is not
-- ARGV[8]  1: give to nobody and tell everybody: for tries, groups, and listeners at a replica, which no count sees
-- ARGV[9]  the counter of the lock's tokens, for a token to whom the lock is given; empty: no token. Like the queue it is not in KEYS
-- ARGV[10] time to live of the counter, ms; 0: it stays for ever
-- reply    1: a level was given up; 0: not held by this owner; without a queue what tell returns; else array of three: what tell
--          returns (1: it was not asked); 2: the first of the queue has the lock, 1: the first was told, 0: there is none, -1: it is
--          left to foreigners, -2: the server refuses the queue; then for -1 how many of our clients listen, for -2 the error
local lock = KEYS[1]
local owner, left, channel = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local queue, mark, members = ARGV[4], ARGV[5], ARGV[6]
local foreign_turn, to_all = tonumber(ARGV[7]), ARGV[8] == '1'
local counter, ttl = ARGV[9], tonumber(ARGV[10])

local ours, failed = held(lock, owner)
if ours ~= 1 then
  return ours or failed
end
if left > 0 then
  redis.call('HSET', lock, owner, left)
  return 1
end
redis.call('DEL', lock)
if queue == '' then
  return tell(channel)
end

local function minted()
  local time = redis.call('TIME')
  return next_token(counter, ttl, time[1] * 1000000 + time[2])
end

local function in_turn()
  if foreign_turn > 0 then
    -- Foreigners (JVMs, monitors) listen to the lock's channel and not to ours. A server counts its own listeners alone.
    local counts = redis.call('PUBSUB', 'NUMSUB', channel, members)
    if counts[2] - counts[4] > 0 then
      -- The first of the queue is told all the same: it comes if no foreigner did.
      tell_head(queue)
      redis.call('SET', mark, 'foreign', 'PX', foreign_turn)
      return { tell(channel), -1, counts[4] }
    end
  end
  if not to_all and give(lock, queue, counter ~= '' and minted or nil) then
    return { 1, 2, 0 }
  end
  local queued = tell_head(queue)
  return { tell(channel), queued and 1 or 0, 0 }
end

local done, said = pcall(in_turn)
if done then
  return said
end
return { tell(channel), -2, type(said) == 'table' and said.err or tostring(said) }

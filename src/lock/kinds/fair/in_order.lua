-- Asks for a fair lock: gives a free lock to the first thread of the queue, and queues if this thread does not get it. If anything fails in
-- here, the lock is asked for as without a queue: exclusion rests on the lock's own key alone.
--
-- preludes stale, inside, give, serve
-- KEYS[1]  the lock
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  the queue: list of owner fields in order of arrival
-- ARGV[3]  zset, owner field -> until when it counts, ms
-- ARGV[4]  hash, owner field -> ticket
-- ARGV[5]  channel of the lock; with a colon and a field behind it, that of a thread
-- ARGV[6]  ticket of this wait, empty: it has none
-- ARGV[7]  its earlier names, one of which may be in the queue: the part behind the last colon of a ticket, with spaces in between
-- ARGV[8]  for how many ms the thread counts from now on; 0: this ask does not queue; -1: it leaves the queue
-- inner    the acquire, with the arguments behind these: the second is its owner field
-- reply    what `inner` grants, or its error; else array of four: for how many ms others have the lock, or may come for it (-1: without an
--          end); rank in the queue (-1: not in it, -2: it left); 0, or the error that refused it a place; 1: a thread of Redisson's has the lock, or
--          comes before
local lock = KEYS[1]
local list, ends, tickets, channel = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local ticket, before, wait = ARGV[6], ARGV[7], tonumber(ARGV[8])
-- The arguments of `inner` follow: the lease, then the owner.
local owner = ARGV[8 + 2]
local ms = math.floor(now / 1000)
local left, foreign, is_moved = redis.call('PTTL', lock), false, false

-- The fields of earlier asks of this wait, by other owner ids.
local function earlier()
  local fields, client = {}, string.match(owner, '^[^:]*')
  for thread, hold in string.gmatch(before, '%x+%.%x+%.(%d+)%.(%d+)%.%d+p?') do
    local field = client .. ':' .. thread .. ':' .. hold
    if field ~= owner then
      fields[#fields + 1] = field
    end
  end
  return fields
end

-- Moves to this owner id what the wait has by an earlier one: its place, or the lock, if that was given to it meanwhile. Nobody believes in
-- that hold, and the sweeper would take it back, so the wait would lose its turn. If the wait has a place by this id already, the server
-- executed the earlier ask late, and that place is behind. Returns whether the lock is free for this owner.
local function renamed()
  local is_free = false
  for _, old in ipairs(earlier()) do
    local till = redis.call('ZSCORE', ends, old)
    if till then
      if not redis.call('ZSCORE', ends, owner) then
        redis.call('LINSERT', list, 'BEFORE', old, owner)
        redis.call('ZADD', ends, till, owner)
        redis.call('HSET', tickets, owner, ticket)
        is_moved = true
      end
      drop(list, ends, tickets, old)
    end
    is_free = redis.call('HDEL', lock, old) == 1 or is_free
  end
  return is_free
end

-- Serves the first of the queue, unless that is this thread.
local function serve_first()
  if renamed() then
    left = redis.call('PTTL', lock)
  elseif left == -2 then
    local first, others = serve(lock, list, ends, tickets, channel, ms, owner)
    left = others or left
  end
end

-- Whether this attempt's owner has the lock: by a copy of the attempt, or because the lock was given to it. And whether Redisson has it.
local function holder()
  local fields, is_own = redis.pcall('HKEYS', lock), false
  if fields.err then
    return redis.call('HEXISTS', lock, owner) == 1
  end
  for _, field in ipairs(fields) do
    is_own = is_own or field == owner
    foreign = foreign or is_redisson(field)
  end
  return is_own
end

-- How many threads of Redisson's are before the owner in the queue, the latest of their ends, and whether the owner is in it. The tickets do
-- not tell: Redisson takes out our dead, and leaves their tickets.
local function before_it()
  local foreigners, last = 0, 0
  for _, field in ipairs(redis.call('LRANGE', list, '0', '-1')) do
    if field == owner then
      return foreigners, last, true
    elseif is_redisson(field) then
      foreigners, last = foreigners + 1, math.max(last, redis.call('ZSCORE', ends, field) or 0)
    end
  end
  return foreigners, last, false
end

-- Joins the queue, or stays in it. Returns the rank there, or a greater one if it is not the first.
--
-- A thread of Redisson's takes its wait off the ends of all behind it when it takes the lock: 5 minutes, unless its caller has another one. So
-- this thread adds them for each that is before it, and ends after the last of them, whose end has all of their waits in it.
local function joined()
  local length, till = redis.call('LLEN', list), tonumber(redis.call('ZSCORE', ends, owner) or 0)
  if length == 0 then
    -- Those of our dead that Redisson took out.
    redis.call('DEL', tickets)
  end
  if till == 0 then
    -- Takes out nobody, and is refused to whoever could not leave: its places would stay.
    drop(list, ends, tickets, '')
  end
  local is_new = redis.call('HSET', tickets, owner, ticket) == 1
  -- A look at all threads of a long queue takes time, so not each ask has one. A later end than `wait` from now counts waits of Redisson's,
  -- which are taken off it at once.
  if is_new or is_moved or till < ms + wait * 2 / 3 or till > ms + wait then
    local others, last, is_in = before_it()
    if not is_in then
      length = redis.call('RPUSH', list, owner)
    end
    foreign = foreign or others > 0
    till = math.max(till, ms + wait + 300000 * others, last + wait)
    redis.call('ZADD', ends, string.format('%.0f', till), owner)
    -- Each of them may be a new key beside old ones. An hour may be over before the next *keep*.
    for _, key in ipairs({ list, ends, tickets }) do
      if redis.call('PTTL', key) < till - ms + 82800000 then
        keep(list, ends, tickets, ms)
        break
      end
    end
  end
  return redis.call('LINDEX', list, '0') == owner and 0 or math.max(length - 1, 1)
end

-- Takes this wait out of the queue.
local function gone()
  drop(list, ends, tickets, owner)
  for _, field in ipairs(earlier()) do
    drop(list, ends, tickets, field)
  end
end

if not pcall(serve_first) then
  -- The lock may be free by now.
  left = redis.call('PTTL', lock)
end
if left == -2 or holder() then
  local said = inner(KEYS, inside(ARGV, 7))
  if said == deadline or type(said) ~= 'number' then
    if ticket ~= '' and not (type(said) == 'table' and said.err) then
      pcall(gone)
    end
    return said
  end
  left = said
end
local rank, refused = -1, 0
if wait > 0 then
  local done, place = pcall(joined)
  if done then
    rank = place
  else
    refused = type(place) == 'table' and place.err or tostring(place)
  end
end
if wait ~= 0 and rank == -1 then
  -- The caller is told that it has no place, so it must not be given the lock.
  local is_gone = pcall(gone)
  rank = wait < 0 and is_gone and -2 or rank
end
return { left, rank, refused, foreign and 1 or 0 }

-- The queue of a semaphore: hash, place -> '<arrival, us> <until when it counts, ms>'. A place is '<client>:<number>:<permits>', of a process
-- that waits for so many permits. It is advice among our clients: if a step fails, permits are given as without a queue.

-- How many permits those want that came before this place, and how many places these are. A place that counts no more is removed. Without
-- a place of its own a call comes last.
local function wanted_before(places, place, now)
  local mine = place ~= '' and redis.call('HGET', places, place)
  local arrived = mine and tonumber(string.match(mine, '^%d+')) or math.huge
  local wanted, rank, all = 0, 0, redis.call('HGETALL', places)
  for i = 1, #all, 2 do
    local other, arrival, till = all[i], string.match(all[i + 1], '^(%d+) (%d+)$')
    if tonumber(till or 0) * 1000 <= now then
      redis.call('HDEL', places, other)
    elseif other ~= place and (tonumber(arrival) < arrived or tonumber(arrival) == arrived and other < place) then
      wanted, rank = wanted + tonumber(string.match(other, '%d+$') or 0), rank + 1
    end
  end
  return wanted, rank
end

-- Takes a place, or keeps the one that it has, for `ttl` ms.
local function keep_place(places, place, now, ttl)
  -- Who may not leave must not join: those behind would wait for a place that nobody gives up.
  redis.call('HDEL', places, '')
  local mine = redis.call('HGET', places, place)
  local arrival = mine and string.match(mine, '^%d+') or string.format('%.0f', now)
  redis.call('HSET', places, place, arrival .. ' ' .. string.format('%.0f', now / 1000 + ttl))
  -- Others may keep their places for longer.
  redis.call('PEXPIRE', places, math.max(redis.call('PTTL', places), ttl))
end

-- Whether a call may take permits, of which `left` are there: those before it come first. If it may not, it waits in its place; a `ttl` of 0:
-- it does not wait. Returns whether it may, and how many wait before it.
local function may_take(places, place, permits, left, now, ttl)
  if places == '' then
    return left >= permits, 0
  end
  local done, wanted, rank = pcall(wanted_before, places, place, now)
  wanted, rank = done and wanted or 0, done and rank or 0
  if left - wanted >= permits then
    return true, rank
  end
  if ttl > 0 then
    pcall(keep_place, places, place, now, ttl)
  end
  return false, rank
end

-- A call that got its permits waits no more, and the next may have what is left. After they were taken: HDEL needs no memory, and after a write
-- the server refuses nothing.
local function leave_place(places, place, left)
  if place ~= '' then
    pcall(redis.call, 'HDEL', places, place)
  end
  if left > 0 then
    tell_first(places, left)
  end
end


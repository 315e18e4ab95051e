-- What others may know of a ticket. What stands behind it is known to its client alone: who knows that can say that the lock is given.
local function known(ticket)
  return string.match(ticket, '^.*:[^.]*') or ticket
end

-- Tells a ticket on its ear what rank it has, or other news. One whose ear has no listener is of a process that is gone: it is removed,
-- and the next is told in its place. Whether there is one.
local function tell_rank(queue, rank, news)
  local ticket = redis.call('ZRANGE', queue, rank, rank)[1]
  while ticket do
    local ear = 'redlatch_ear:' .. (string.match(ticket, '^(.*):') or '')
    if redis.call('PUBLISH', ear, known(ticket) .. ' ' .. (news or rank)) > 0 then
      return true
    end
    redis.call('ZREM', queue, ticket)
    ticket = redis.call('ZRANGE', queue, rank, rank)[1]
  end
  return false
end

-- Tells the head of the queue that the lock is free, if there is one, and leaves it the turn for so many ms, if any. The second
-- is told, too, if it may not come by itself soon enough should the head not come.
local function tell_first(queue, mark, turn, second)
  if not tell_rank(queue, 0) then
    return false
  end
  if second then
    tell_rank(queue, 1)
  end
  if tonumber(turn) > 0 then
    redis.call('SET', mark, 'head', 'PX', turn)
  end
  return true
end


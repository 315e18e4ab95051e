-- Tells the first of the queue that the lock is free; whether there is one. Whose ear has no listener is of a process that is gone, unless it
-- polls: it is removed, and the next is told in its place, 64 at most.
--
-- The message names the ticket up to its number. The rest stays secret, because whoever knows it could say that the lock was given.
local function tell_head(queue)
  for _ = 1, 64 do
    local ticket = redis.call('ZRANGE', queue, 0, 0)[1]
    if not ticket then
      return false
    end
    local ear = 'redlatch_ear:' .. (string.match(ticket, '^(.*):') or '')
    local heard = redis.call('PUBLISH', ear, (string.match(ticket, '^.*:[^.]*') or ticket) .. ' free') > 0
    if heard or string.find(ticket, '%.%d+p$') then
      return true
    end
    redis.call('ZREM', queue, ticket)
  end
  return false
end

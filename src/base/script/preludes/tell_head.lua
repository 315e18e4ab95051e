-- Tells the first of the queue that the lock is free; whether there is one. Whose ear has no listener is of a process that is gone: it is
-- removed, and the next is told in its place.
--
-- The message names the ticket up to its number. The rest stays secret, because whoever knows it could say that the lock was given.
local function tell_head(queue)
  local ticket = redis.call('ZRANGE', queue, 0, 0)[1]
  while ticket do
    local ear = 'redlatch_ear:' .. (string.match(ticket, '^(.*):') or '')
    if redis.call('PUBLISH', ear, (string.match(ticket, '^.*:[^.]*') or ticket) .. ' free') > 0 then
      return true
    end
    redis.call('ZREM', queue, ticket)
    ticket = redis.call('ZRANGE', queue, 0, 0)[1]
  end
  return false
end


-- Tells the first of the queue that the lock is free; returns whether there is one. An ear without a listener is of a dead process, unless
-- the ticket polls: the ticket is removed and the next one told, 64 at most.
--
-- The message names the ticket up to its number. The rest stays secret: it is what proves that the lock was given.
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

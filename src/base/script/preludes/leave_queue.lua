-- Takes a ticket out of the queue by its name and by the names that it had before; returns how many of them were there.
-- It needs no memory, which a new name does.
local function leave_queue(queue, ticket, before)
  local left = redis.call('ZREM', queue, ticket)
  for name in string.gmatch(before, '%S+') do
    left = left + redis.call('ZREM', queue, string.match(ticket, '^.*:') .. name)
  end
  return left
end


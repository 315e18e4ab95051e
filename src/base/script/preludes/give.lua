-- Gives a lock that is free to an owner whose ear has a listener, and tells it, with a token if it can `mint` one; whether it has a listener.
-- The message goes last: nobody believes in what failed before it. Who is told no token and needs one asks for it.
local function give_to(lock, owner, ms, ear, ticket, mint)
  if redis.call('PUBSUB', 'NUMSUB', ear)[2] == 0 then
    return false
  end
  redis.call('HSET', lock, owner, '1')
  redis.call('PEXPIRE', lock, ms)
  local minted, token = pcall(mint)
  redis.call('PUBLISH', ear, ticket .. ' given' .. (minted and token and ':' .. token or ''))
  return true
end

-- Gives a lock that is free to the first of its queue: that one has the lock for its offer when it hears of it. For how many ms; nil: to
-- nobody. Whose ear has no listener is of a process that is gone: it is removed, as what is no ticket of ours, and the next is looked at.
-- An offer of 0 ms would delete the lock, by a PEXPIRE that answers 1; nobody of ours has one of more than 1.5 s.
local function give(lock, queue, mint)
  for _ = 1, 64 do
    local ticket, arrival = unpack(redis.call('ZPOPMIN', queue))
    if not ticket then
      return nil
    end
    local ear, client, thread, hold, ms = string.match(ticket, '^(.-([%x-]+)):%x+%.%x+%.(%d+)%.(%d+)%.([1-9]%d*)$')
    local offer = tonumber(ms or 0)
    if offer >= 10 and offer <= 1500 then
      local owner = client .. ':' .. thread .. ':' .. hold
      local done, given = pcall(give_to, lock, owner, ms, 'redlatch_ear:' .. ear, ticket, mint)
      if not done then
        redis.call('DEL', lock)
        redis.call('ZADD', queue, arrival, ticket)
        -- Of a queue that was empty; who waits in it prolongs that.
        if redis.call('PTTL', queue) == -1 then
          redis.call('PEXPIRE', queue, 5000)
        end
        error(given, 0)
      end
      if given then
        return offer
      end
    end
  end
  return nil
end


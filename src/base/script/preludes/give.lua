-- Gives a free lock to this owner and tells it, if its ear has a listener or it polls. Returns whether it did. `mint` may add a token. The
-- message goes last: nobody believes in what failed before it. A client that needs a token and is told none asks for it.
local function give_to(lock, owner, ms, ear, polls, ticket, mint)
  if not polls and redis.call('PUBSUB', 'NUMSUB', ear)[2] == 0 then
    return false
  end
  redis.call('HSET', lock, owner, '1')
  redis.call('PEXPIRE', lock, ms)
  local minted, token = pcall(mint)
  redis.call('PUBLISH', ear, ticket .. ' given' .. (minted and token and ':' .. token or ''))
  return true
end

-- Gives a free lock to the first of its queue, for the offer of that ticket. Returns the offer in ms, or nil if nobody got the lock.
-- Removes what is no ticket of ours, and tickets of dead processes, whose ear has no listener; then it tries the next, 64 at most. A
-- PEXPIRE of 0 ms would delete the lock, and no client of ours has an offer above 1.5 s.
local function give(lock, queue, mint)
  for _ = 1, 64 do
    local ticket, arrival = unpack(redis.call('ZPOPMIN', queue))
    if not ticket then
      return nil
    end
    local ear, client, thread, hold, ms, polls =
      string.match(ticket, '^(.-([%x-]+)):%x+%.%x+%.(%d+)%.(%d+)%.([1-9]%d*)(p?)$')
    local offer = tonumber(ms or 0)
    if offer >= 10 and offer <= 1500 then
      local owner = client .. ':' .. thread .. ':' .. hold
      local done, given = pcall(give_to, lock, owner, ms, 'redlatch_ear:' .. ear, polls ~= '', ticket, mint)
      if not done then
        redis.call('DEL', lock)
        redis.call('ZADD', queue, arrival, ticket)
        -- ZADD made the queue anew, without a TTL; waiters that ask prolong this one.
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


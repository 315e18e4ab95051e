-- Gives a free lock to a ticket's owner, for its offer, and tells it. Returns the offer in ms. nil: it is no ticket of ours, or one of a dead
-- process, whose ear has no listener; a ticket that polls has none either. `mint` may add a token. The message goes last: nobody believes in
-- what failed before it. A client that needs a token and is told none asks for it. A PEXPIRE of 0 ms would delete the lock, and no client of
-- ours has an offer above 1.5 s.
local function give_to(lock, ticket, mint)
  local ear, client, thread, hold, ms, polls =
    string.match(ticket, '^(.-([%x-]+)):%x+%.%x+%.(%d+)%.(%d+)%.([1-9]%d*)(p?)$')
  local offer = tonumber(ms or 0)
  if not (offer >= 10 and offer <= 1500) then
    return nil
  end
  ear = 'redlatch_ear:' .. ear
  if polls == '' and redis.call('PUBSUB', 'NUMSUB', ear)[2] == 0 then
    return nil
  end
  redis.call('HSET', lock, client .. ':' .. thread .. ':' .. hold, '1')
  redis.call('PEXPIRE', lock, ms)
  local minted, token = pcall(mint)
  redis.call('PUBLISH', ear, ticket .. ' given' .. (minted and token and ':' .. token or ''))
  return offer
end

-- The same for a ticket that was taken out of a queue. If a step fails, the lock is free, and `put_back` is called.
local function give_or(put_back, lock, ticket, mint)
  local done, offer = pcall(give_to, lock, ticket, mint)
  if not done then
    redis.call('DEL', lock)
    put_back()
    error(offer, 0)
  end
  return offer
end

-- Gives a free lock to the first of its queue. Returns the offer in ms, or nil if nobody got the lock. Removes what `give_to` gives nothing,
-- and tries the next, 64 at most.
local function give(lock, queue, mint)
  for _ = 1, 64 do
    local ticket, arrival = unpack(redis.call('ZPOPMIN', queue))
    if not ticket then
      return nil
    end
    local offer = give_or(function()
      redis.call('ZADD', queue, arrival, ticket)
      -- ZADD made the queue anew, without a TTL; waiters that ask prolong this one.
      if redis.call('PTTL', queue) == -1 then
        redis.call('PEXPIRE', queue, 5000)
      end
    end, lock, ticket, mint)
    if offer then
      return offer
    end
  end
  return nil
end

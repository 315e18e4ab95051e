-- Gives a lock that is free to the head of its queue, if that queued with an offer: the head has the lock for so long when it hears of it.
-- For how many ms it was given; nil: it was not. A head whose ear has no listener is of a process that is gone: it is removed, and the next is looked at.
--
-- The message goes last, so what fails before it is undone and nobody believes in it. What does not look like a ticket of ours gets
-- nothing: PEXPIRE with 0 would answer 1, and delete.
local function give(lock, queue)
  for _ = 1, 64 do
    local head = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local ear, client, thread, hold, offer = string.match(head[1] or '', '^(.-([%x-]+)):%x+%.%x+%.(%d+)%.(%d+)%.(%d+)$')
    if not ear or tonumber(offer) < 10 or tonumber(offer) > 60000 then
      return nil
    end
    ear = 'redlatch_ear:' .. ear
    local listens, ttl = redis.call('PUBSUB', 'NUMSUB', ear)[2] > 0, redis.call('PTTL', queue)
    redis.call('ZREM', queue, head[1])
    if listens then
      redis.call('HSET', lock, client .. ':' .. thread .. ':' .. hold, 1)
      local expires = redis.pcall('PEXPIRE', lock, offer)
      local told = expires == 1 and redis.pcall('PUBLISH', ear, head[1] .. ' given')
      if type(told) == 'number' and told > 0 then
        return offer
      end
      redis.call('DEL', lock)
      redis.pcall('ZADD', queue, head[2], head[1])
      redis.pcall('PEXPIRE', queue, math.max(ttl, 1))
      return nil
    end
  end
  return nil
end


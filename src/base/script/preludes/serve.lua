-- The queue of a fair lock, shared with Redisson. `list` has the owner field of each waiting thread, in order of arrival. `ends` has until when
-- it counts, ms. `tickets` is of ours alone: of each field of ours, the ticket of its call.

-- Our owner fields have three parts, those of Redisson two.
local function is_redisson(field)
  return not string.find(field, '^[^:]*:%d+:%d+$')
end

-- Takes a field out of the queue. Returns how many were in the list. The list is first: if a later step is refused, Redisson finds no field
-- without an end, which it would never take out.
local function drop(list, ends, tickets, field)
  local there = redis.call('LREM', list, '1', field)
  redis.call('ZREM', ends, field)
  redis.call('HDEL', tickets, field)
  return there
end

-- Prolongs the queue: it ends a day after its last thread counts no more. Threads of Redisson's that join behind count for 5 minutes more,
-- each after the last, and set no TTL: they would sleep until those times beside a queue that is gone.
local function keep(list, ends, tickets, ms)
  local last = redis.call('ZRANGE', ends, '-1', '-1', 'WITHSCORES')[2]
  local ttl = string.format('%.0f', math.max((last or 0) - ms, 0) + 86400000)
  for _, key in ipairs({ list, ends, tickets }) do
    redis.call('PEXPIRE', key, ttl)
  end
end

-- Gives a free lock to the first thread that counts at `ms`. A thread of Redisson's is told on its channel, and takes the lock by itself.
-- Returns the field of the first, and for how many ms it has the lock, or may come for it. nil: nobody waits. `asker` is given nothing: it is
-- asking for the lock in this very script. Who counts no more, or is dead, is removed, 64 at most.
local function serve(lock, list, ends, tickets, channel, ms, asker)
  for _ = 1, 64 do
    local field = redis.call('LINDEX', list, '0')
    if not field or field == asker then
      return field
    end
    local till = redis.call('ZSCORE', ends, field)
    -- Who may not read tickets tells a thread of Redisson's all the same.
    local ticket = not is_redisson(field) and redis.call('HGET', tickets, field)
    local left = tonumber(till or 0) - ms
    if not ticket then
      -- One of Redisson's is told also if it counts no more, by its clock or by this one: if it is alive, it joins again. One of ours lost its
      -- ticket, or waits for the lock whose queue Redisson does not tell from this one (`x` and `{x}`): all look, and join again.
      redis.call('PUBLISH', is_redisson(field) and channel .. ':' .. field or channel, '0')
      if left > 0 and is_redisson(field) then
        return field, left
      end
    end
    drop(list, ends, tickets, field)
    local offer = left > 0 and ticket and give_or(function()
      local second = redis.call('LINDEX', list, '0')
      if second then
        redis.call('LINSERT', list, 'BEFORE', second, field)
      else
        redis.call('RPUSH', list, field)
      end
      redis.call('ZADD', ends, till, field)
      redis.call('HSET', tickets, field, ticket)
      keep(list, ends, tickets, ms)
    end, lock, ticket)
    if offer then
      return field, offer
    end
  end
  -- Those behind may live: an ask is told to come again in 1 ms, and does not come before them.
  return nil, redis.call('LLEN', list) > 0 and 1 or nil
end

-- Returns permits whose leases are over to their semaphore and tells those that wait. Lua unpacks at most some 7,990 values, so these are a
-- thousand at a time. Redisson does so in each of its scripts, by its own clock; this goes by the server's. ZREM goes first: it needs no memory,
-- and after a write the server refuses INCRBY to nobody.
local function reclaim(semaphore, leases, channel, ms)
  if not number_of(semaphore) then
    return
  end
  local over
  repeat
    over = redis.call('ZRANGEBYSCORE', leases, '-inf', ms, 'LIMIT', '0', '1000')
    if #over > 0 then
      redis.call('ZREM', leases, unpack(over))
      local left = redis.call('INCRBY', semaphore, #over)
      redis.pcall('PUBLISH', channel, left)
    end
  until #over < 1000
end

-- In how many ms the next permit comes back if its holder does nothing; -1: none is out.
local function next_return(leases, ms)
  local till = redis.call('ZRANGE', leases, '0', '0', 'WITHSCORES')[2]
  return till and math.max(tonumber(till) - ms, 1) or -1
end


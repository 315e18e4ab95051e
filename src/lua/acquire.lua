-- Takes the lock when it is free; says how long it is still held when it is not.
--
-- KEYS[1]  the lock: hash, owner field -> hold count
-- ARGV[1]  owner field
-- ARGV[2]  hold count, absolute
-- ARGV[3]  lease, ms
-- ARGV[4]  deadline of this attempt, us on the server's clock
-- reply    nil: acquired; integer: the holder's PTTL, ms (-1: none); error STALE <server us>
local lock = KEYS[1]
local owner, count, lease, deadline = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

-- A server that was stopped must not execute what its caller gave up long ago.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now >= deadline then
  return redis.error_reply('STALE ' .. string.format('%.0f', now))
end

local left = redis.call('PTTL', lock)
if left == -2 then
  redis.call('HSET', lock, owner, count)
  -- Scripts are not rolled back: without its TTL the lock would outlive its holder.
  local expiring = redis.pcall('PEXPIRE', lock, lease)
  if type(expiring) == 'table' then
    redis.call('DEL', lock)
    return expiring
  end
  return nil
end
if redis.call('HEXISTS', lock, owner) == 0 then
  return left
end
-- A copy of this very attempt was here before.
redis.call('HSET', lock, owner, count)
if left < lease then
  redis.call('PEXPIRE', lock, lease)
end
return nil

-- Counts a lock's tokens on: token = max(last + 1, time in us). So tokens grow even if the counter is lost. Returns the token in digits. If
-- the stored value is no number below 2^53 - 1, returns nil and an error, and writes nothing: beyond 2^53 numbers here are not exact. `ttl`
-- in ms, 0: for ever; `now` in us on the server's clock.
--
-- The TTL counts from when the clock reaches the token: once the counter is gone, the time is ahead of the token.
local function next_token(counter, ttl, now)
  local stored = redis.call('GET', counter) or '0'
  local last = string.find(stored, '^%d+$') and tonumber(stored)
  if not last or last >= 2 ^ 53 - 1 then
    return nil, redis.error_reply('TOKEN the counter of the tokens holds no whole number below 2^53 - 1')
  end
  local token = math.max(last + 1, now)
  local digits = string.format('%.0f', token)
  if ttl == 0 then
    redis.call('SET', counter, digits)
  else
    redis.call('SET', counter, digits, 'PX', string.format('%.0f', math.ceil((token - now) / 1000) + ttl))
  end
  return digits
end


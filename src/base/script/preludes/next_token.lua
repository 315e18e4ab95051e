-- Counts a lock's tokens on: one more than the last, or the time in us if that is greater, so that they grow though the counter is
-- lost. The token, in digits; nil and an error, with nothing written, when what is stored is no number that leaves another token below
-- 2^53, beyond which numbers here are not exact. `ttl` in ms, 0: for ever; `now` in us on the server's clock.
--
-- Its time to live counts from when the clock has come to it: once it is forgotten the time is ahead of it.
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


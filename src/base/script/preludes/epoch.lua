-- Strict mode: the epoch that the server process before wrote. Returns until when nothing is granted, us on the server's clock, and the
-- agreed quarantine, ms. `now` comes from the stale check.
local function epoch_of(epoch_key, run_id, length)
  local epoch = redis.call('GET', epoch_key) or ''
  local known, agreed, quiet_until = string.match(epoch, '^(%w+) (%d+) (%d+)$')
  -- No epoch, or one that another process wrote: the server may have forgotten granted locks. A clock that went back may also hide how long
  -- ago that was. The quarantine is the one agreed on before, whichever client comes first now.
  if known ~= run_id or tonumber(quiet_until) > now + agreed * 1000 then
    agreed = agreed or length
    quiet_until = now + agreed * 1000
    redis.call('SET', epoch_key, run_id .. ' ' .. agreed .. ' ' .. string.format('%.0f', quiet_until))
  end
  return tonumber(quiet_until), agreed
end


-- Strict mode: what is known of the process that granted before. Until when nothing is granted, us on the server's clock, and the
-- quarantine that was agreed on, ms. `now` is that of the stale check.
local function epoch_of(epoch_key, run_id, length)
  local epoch = redis.call('GET', epoch_key) or ''
  local known, agreed, quiet_until = string.match(epoch, '^(%w+) (%d+) (%d+)$')
  -- No epoch, or one that another process wrote: locks that were granted may be forgotten. So may be how long ago
  -- that was, when the clock went back. The leases are those agreed on before, whoever comes first now.
  if known ~= run_id or tonumber(quiet_until) > now + agreed * 1000 then
    agreed = agreed or length
    quiet_until = now + agreed * 1000
    redis.call('SET', epoch_key, run_id .. ' ' .. agreed .. ' ' .. string.format('%.0f', quiet_until))
  end
  return tonumber(quiet_until), agreed
end


-- Strict mode, before the acquire script: grants nothing for one lease after the server lost its data.
--
-- preludes stale
-- KEYS[2]  the epoch: string "<run id> <ms> <us>": the server's process, the quarantine, until when it lasts
-- ARGV[5]  run id of the server that this connection reached
-- ARGV[6]  the quarantine, ms: the longest lease of a strict client
-- reply    array of one: ms left of the quarantine; error MISMATCH; else the acquire script's
do
  local epoch_key = KEYS[2]
  local run_id, length = ARGV[5], ARGV[6]
  local epoch = redis.call('GET', epoch_key) or ''
  local known, agreed, quiet_until = string.match(epoch, '^(%w+) (%d+) (%d+)$')
  -- No epoch, or one that another process wrote: locks that were granted may be forgotten. So may be how long ago
  -- that was, when the clock went back. The leases are those agreed on before, whoever comes first now.
  if known ~= run_id or tonumber(quiet_until) > now + agreed * 1000 then
    agreed = agreed or length
    quiet_until = now + agreed * 1000
    redis.call('SET', epoch_key, run_id .. ' ' .. agreed .. ' ' .. string.format('%.0f', quiet_until))
  end
  if agreed ~= length then
    return redis.error_reply('MISMATCH strict clients of one server need the same watchdog_timeout: this one has '
      .. length .. ' ms, the others ' .. agreed .. ' ms')
  end
  if now < tonumber(quiet_until) then
    return { math.ceil((quiet_until - now) / 1000) }
  end
end


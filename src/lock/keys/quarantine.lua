-- Strict mode, around an acquire: grants nothing for one lease after the server lost its data.
--
-- preludes stale, epoch, inside
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  the epoch: string "<run id> <ms> <us>": the server's process, the quarantine, when it ends; not in KEYS, because a slot
--          that is moving refuses two keys
-- ARGV[3]  run id of the server that this connection reached
-- ARGV[4]  the quarantine, ms: the longest lease of a strict client
-- inner    the acquire, with the arguments behind these
-- reply    array of one: ms left of the quarantine; error MISMATCH; else that of `inner`
local epoch_key, run_id, length = ARGV[2], ARGV[3], ARGV[4]

local quiet_until, agreed = epoch_of(epoch_key, run_id, length)
if agreed ~= length then
  return redis.error_reply('MISMATCH strict clients of one server need the same watchdog_timeout: this one has '
    .. length .. ' ms, the others ' .. agreed .. ' ms')
end
if now < quiet_until then
  return { math.ceil((quiet_until - now) / 1000) }
end
return inner(KEYS, inside(ARGV, 3))

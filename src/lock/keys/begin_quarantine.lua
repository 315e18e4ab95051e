-- Strict mode, in a cluster: begins the quarantine of slots whose server lost its data, as their first use would.
--
-- preludes stale, epoch
-- KEYS[i]  the epoch of a slot, as in quarantine.lua
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  run id of the server that this connection reached
-- ARGV[3]  the quarantine, ms
-- reply    array: 1 for each; error STALE <server us>
local run_id, length = ARGV[2], ARGV[3]

local begun = {}
for i, epoch_key in ipairs(KEYS) do
  epoch_of(epoch_key, run_id, length)
  begun[i] = 1
end
return begun

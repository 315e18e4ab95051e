-- Strict mode, before a script that prolongs: says which process serves, and refuses nothing. A master that is replaced and
-- becomes the master again finds the epoch of the one between, whose holds it may not know, though that one granted none.
--
-- preludes stale, epoch
-- ARGV[3]  the epoch: as in quarantine.lua, but not in KEYS, for it is no lock
-- ARGV[4]  run id of the server that this connection reached
-- ARGV[5]  the quarantine, ms
-- reply    that of the script that prolongs, which has these three left out of its arguments
do
  local epoch_key, run_id, length = ARGV[3], ARGV[4], ARGV[5]
  epoch_of(epoch_key, run_id, length)
  for _ = 1, 3 do
    table.remove(ARGV, 3)
  end
end


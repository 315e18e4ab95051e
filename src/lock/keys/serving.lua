-- Strict mode, around a script that prolongs: says which process serves, and refuses nothing. A master that is replaced and
-- becomes the master again finds the epoch of the one between, whose holds it may not know, though that one granted none.
--
-- preludes stale, epoch, inside
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  the epoch: as in quarantine.lua, but not in KEYS, for it is no lock
-- ARGV[3]  run id of the server that this connection reached
-- ARGV[4]  the quarantine, ms
-- inner    the script that prolongs, with the arguments behind these
-- reply    that of `inner`
local epoch_key, run_id, length = ARGV[2], ARGV[3], ARGV[4]

epoch_of(epoch_key, run_id, length)
return inner(KEYS, inside(ARGV, 3))

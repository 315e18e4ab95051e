-- Strict mode, around a script that prolongs: writes which process serves, and refuses nothing. A master that is replaced and
-- comes back then finds the epoch of the master between, even if that one granted nothing. It may not know that one's holds.
--
-- preludes stale, epoch, inside
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  the epoch, as in quarantine.lua; not in KEYS, for it is no lock
-- ARGV[3]  run id of the server that this connection reached
-- ARGV[4]  the quarantine, ms
-- inner    the script that prolongs, with the arguments behind these
-- reply    that of `inner`
local epoch_key, run_id, length = ARGV[2], ARGV[3], ARGV[4]

epoch_of(epoch_key, run_id, length)
return inner(KEYS, inside(ARGV, 3))

-- Frees the lock, whoever holds it, and tells waiters.
--
-- preludes tell
-- KEYS[1]  the lock: hash, owner field -> hold count
-- ARGV[1]  channel of the lock
-- reply    0: it was free; else what tell returns
local lock, channel = KEYS[1], ARGV[1]

-- HLEN and not EXISTS: a key of another type is refused instead of deleted.
if redis.call('HLEN', lock) == 0 then
  return 0
end
redis.call('DEL', lock)
return tell(channel)

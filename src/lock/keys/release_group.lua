-- Frees several locks of one slot, each of which is held once, and tells their waiters.
-- It uses only commands that work when the server is out of memory.
--
-- preludes held, tell
-- KEYS[i]  a lock: hash, owner field -> hold count
-- ARGV[1]  owner field of KEYS[1]
-- ARGV[2]  channel of KEYS[1], and so on: ARGV[2i - 1] and ARGV[2i] for KEYS[i]
-- reply    array: 0: not held by this owner; else what tell returns
local released = {}
for i, lock in ipairs(KEYS) do
  local owner = ARGV[2 * i - 1]
  local ours, failed = held(lock, owner)
  if failed then
    return failed
  end
  if ours == 1 then
    redis.call('DEL', lock)
  end
  released[i] = ours
end

for i, ours in ipairs(released) do
  local channel = ARGV[2 * i]
  if ours == 1 then
    released[i] = tell(channel)
  end
end
return released

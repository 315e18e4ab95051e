-- Frees several locks of one slot, each of which is held once, and tells their waiters.
-- It uses only commands that work when the server is out of memory.
--
-- KEYS[i]  a lock: hash, owner field -> hold count
-- ARGV[1]  owner field of KEYS[1]
-- ARGV[2]  channel of KEYS[1], and so on: ARGV[2i - 1] and ARGV[2i] for KEYS[i]
-- reply    array: 1: done; 2: done, but the server refuses to publish; 0: not held by this owner
local released = {}
for i, lock in ipairs(KEYS) do
  local owner = ARGV[2 * i - 1]
  local found = redis.pcall('HEXISTS', lock, owner)
  if type(found) == 'table' then
    -- A key of another type cannot hold our field: it must not keep the other locks from being freed.
    if not string.find(found.err, 'WRONGTYPE', 1, true) then
      return found
    end
    found = 0
  end
  if found == 1 then
    redis.call('DEL', lock)
  end
  released[i] = found
end

-- Last, and its errors ignored: a denied publish must not turn a done release into an error.
for i, found in ipairs(released) do
  local channel = ARGV[2 * i]
  if found == 1 and type(redis.pcall('PUBLISH', channel, '0')) == 'table' then
    released[i] = 2
  end
end
return released

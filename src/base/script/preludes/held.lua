-- Whether the owner has the lock, 1 or 0; nil and the error if the server does not tell. A key of another type cannot hold our field: this
-- hold is lost, and the other locks of the call do not fail.
local function held(lock, owner)
  local found = redis.pcall('HEXISTS', lock, owner)
  if found == 1 or found == 0 then
    return found
  end
  if string.find(found.err, 'WRONGTYPE', 1, true) then
    return 0
  end
  return nil, found
end


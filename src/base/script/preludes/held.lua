-- Whether the owner has the lock, 1 or 0; nil and the error when the server does not tell.
-- A key of another type cannot hold our field: a hold of it is lost, and the other locks of the call are not failed by it.
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


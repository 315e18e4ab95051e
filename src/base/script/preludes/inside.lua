-- The arguments of the script inside: without those of a wrapper, so many behind the deadline. Lua unpacks some thousand at most, and
-- no batch of renewals has more than some hundred.
local function inside(args, own)
  return { args[1], unpack(args, own + 2) }
end


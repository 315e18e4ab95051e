-- The arguments of the script inside: the deadline, and those behind the wrapper's `own` arguments. Lua unpacks at most some 7,990; a batch
-- of renewals has 200.
local function inside(args, own)
  return { args[1], unpack(args, own + 2) }
end


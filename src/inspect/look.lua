-- Looks at a name, whatever is there, and at who waits for it. Writes nothing.
--
-- KEYS[1]  the name
-- ARGV[1]  the queue of processes that wait: zset; empty: it may be at another node
-- ARGV[2]  the queue of threads that wait for a fair lock: list; empty as above
-- ARGV[3]  the places of those that wait for permits: hash; empty as above
-- ARGV[4]  the leases of permits: zset, id of a permit that is out -> until when, ms; empty as above
-- ARGV[5]  fields of a hash that are read at most
-- reply    array: type of the key; ms until it ends (-1: no end, -2: nothing is there); how many processes, threads and calls for permits wait,
--          and how many leased permits are out (-1 each: not known); then the text of a string, or fields and values of a hash
local name, most = KEYS[1], tonumber(ARGV[5])
local queue, threads, places, leases = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

-- A user who looks may lack the right to look at what lies beside.
local function counted(command, key)
  local count = key ~= '' and redis.pcall(command, key)
  return type(count) == 'number' and count or -1
end

local kind = redis.call('TYPE', name).ok
local said = { kind, redis.call('PTTL', name) }
said[3] = counted('ZCARD', queue)
said[4] = counted('LLEN', threads)
said[5] = counted('HLEN', places)
said[6] = counted('ZCARD', leases)
if kind == 'string' then
  said[7] = redis.call('GET', name)
elseif kind == 'hash' and redis.call('HLEN', name) <= most then
  for at, part in ipairs(redis.call('HGETALL', name)) do
    said[6 + at] = part
  end
end
return said

-- Tells waiters that the lock is free, the latch open, or permits are in. Returns the reply of a script that freed it. Last in a script, with its
-- errors ignored: a denied publish must not turn a done release into an error.
--
-- reply    1: done, nobody was told; 2: done, but the server refuses to publish;
--          from 3 on: done, and two less than that many connections were told
local function tell(channel, payload)
  local told = redis.pcall('PUBLISH', channel, payload or '0')
  if told == 0 then
    return 1
  end
  return type(told) == 'table' and 2 or told + 2
end


-- Serves the first of a fair lock's queue in a script that does not know the time yet.
local function serve_now(lock, list, ends, tickets, channel)
  local time = redis.call('TIME')
  return serve(lock, list, ends, tickets, channel, time[1] * 1000 + math.floor(time[2] / 1000))
end

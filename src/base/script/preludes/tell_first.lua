-- Tells the first of those that wait for permits, if so many are left: its process alone has to ask then. A place is '<client>:<number>:<permits>'
-- and its field '<arrival, us> <until when it counts, ms>'. Whether the first lives is not known here: the others look a little later. It is
-- advice: what is no place is left out, and if a step fails, all look as without it.
local function tell_first(places, left)
  local first, wants, came = nil, 0, math.huge
  local done, all = pcall(redis.call, 'HGETALL', places)
  for i = 1, done and #all or 0, 2 do
    local arrival, permits = string.match(all[i + 1], '^%d+'), string.match(all[i], ':(%d+)$')
    if arrival and permits and tonumber(arrival) < came then
      first, wants, came = all[i], tonumber(permits), tonumber(arrival)
    end
  end
  if first and left >= wants then
    redis.pcall('PUBLISH', places, first)
  end
end


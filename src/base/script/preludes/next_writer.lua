-- Leaves a free lock to the writer that has waited longest, for `span` ms. Writers that wait no more are taken out. A score below all
-- arrivals is no writer's: it is an old `!`.
local function leave_to_next_writer(marks, ears, longest, span)
  local time = redis.call('TIME')
  local at = time[1] * 1000 + time[2] / 1000
  local first = redis.call('ZREVRANGE', marks, -1, -1)[1]
  while first do
    if writer_left(marks, ears, longest, first, at) > 0 then
      redis.call('ZADD', marks, string.format('%.3f', at + span), '!')
      return
    end
    redis.call('ZREM', marks, first, '+' .. first, '@' .. first)
    first = redis.call('ZREVRANGE', marks, -1, -1)[1]
  end
end


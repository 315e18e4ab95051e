-- Whether the ear of a field's client has a listener; nil: not known. `ears`: the start of the ears' names; empty: this server does not
-- count all listeners.
local function is_heard(ears, field)
  if ears == '' then
    return nil
  end
  local counted = redis.pcall('PUBSUB', 'NUMSUB', ears .. ':' .. (string.match(field, '^[^:]*')))
  return counted[2] and counted[2] > 0
end

-- For how many ms after `at` a waiting writer counts; 0: it does not. The mark of writers has for each writer: its field, with its arrival;
-- `+` and the field, with the time until which it counts; `@` and the field, if the ear of its client had a listener at its last look. No
-- listener now: that process is gone. `!` is until when the lock is left to the first. All are in ms on the server's clock.
--
-- An end later than `longest` is cut to that: the clock was put back, or no client of ours wrote it.
local function writer_left(marks, ears, longest, field, at)
  local left = (redis.call('ZSCORE', marks, '+' .. field) or 0) - at
  if left <= 0 or (redis.call('ZSCORE', marks, '@' .. field) and is_heard(ears, field) == false) then
    return 0
  end
  if left > longest then
    redis.call('ZADD', marks, string.format('%.0f', at + longest), '+' .. field)
  end
  return math.min(left, longest)
end


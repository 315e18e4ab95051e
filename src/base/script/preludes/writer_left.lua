-- Whether the ear of a field's client has a listener; nil: that is not known. `ears`: what ears begin with; empty: this server does not
-- count all who listen.
local function is_heard(ears, field)
  if ears == '' then
    return nil
  end
  local counted = redis.pcall('PUBSUB', 'NUMSUB', ears .. ':' .. (string.match(field, '^[^:]*')))
  return counted[2] and counted[2] > 0
end

-- For how many ms from `at` on a writer that waits counts; 0: it does not. In the mark of writers a field has its arrival, `+` and the
-- field until when it counts, and `@` and the field if the ear of its client had a listener when it last looked: if there is none now,
-- that process is gone. `!` is until when the lock is left to the first. All are in ms on the server's clock.
--
-- What says that it counts for longer than `longest` is cut to that: the clock was put back, or nobody of ours wrote it.
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


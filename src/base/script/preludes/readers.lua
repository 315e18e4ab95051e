-- Whether the field of a read-write lock is that of a write hold.
local function is_writer(field)
  return string.sub(field, -6) == ':write'
end

-- Until when the holds of a reader keep the lock, in ms; 0: they do not; nil: that is not known here.
local function reader_left(prefix, field, count, trusts)
  local longest = 0
  -- Nobody has so many; but a hash may say anything.
  for hold = 1, math.min(count, 10000) do
    local left = redis.pcall('PTTL', prefix .. field .. ':rwlock_timeout:' .. hold)
    if type(left) == 'table' or left == -1 or (left == -2 and not trusts) then
      return nil
    end
    longest = math.max(longest, left)
  end
  return longest
end

-- Leaves the lock to those who read, for as long as they have left; whether there are any. Fields of ours whose holds are over are
-- taken out. Unless it `trusts`, a time-out that is not seen may be at another node: it is taken for one that is there.
local function leave_to_readers(lock, prefix, trusts)
  local longest, known, fields = 0, true, redis.call('HGETALL', lock)
  for i = 1, #fields, 2 do
    local field, count = fields[i], tonumber(fields[i + 1])
    if field ~= 'mode' and count and not is_writer(field) then
      local left = reader_left(prefix, field, count, trusts)
      known = known and left ~= nil
      longest = math.max(longest, left or 0)
      if left == 0 and string.find(field, '^[^:]*:%d+:%d+$') then
        redis.call('HDEL', lock, field)
      end
    end
  end
  if known and longest > 0 and longest < redis.call('PTTL', lock) then
    redis.call('PEXPIRE', lock, longest)
  end
  return not known or longest > 0
end


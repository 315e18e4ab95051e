-- Whether the field of a read-write lock is that of a write hold.
local function is_writer(field)
  return string.sub(field, -6) == ':write'
end

-- For how long a reader's holds keep the lock, ms; 0: not at all; nil: that is not known here.
local function reader_left(prefix, field, count, trusts)
  local longest = 0
  -- No reader has so many holds, but a hash may say any number.
  for hold = 1, math.min(count, 10000) do
    local left = redis.pcall('PTTL', prefix .. field .. ':rwlock_timeout:' .. hold)
    if type(left) == 'table' or left == -1 or (left == -2 and not trusts) then
      return nil
    end
    longest = math.max(longest, left)
  end
  return longest
end

-- Leaves the lock to its readers, for as long as their time-outs last. Returns whether there are any readers. Takes out fields of ours
-- whose holds are over. Unless it `trusts`, a missing time-out may be at another node: it counts as present.
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


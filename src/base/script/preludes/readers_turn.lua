-- For how many ms it is the turn of readers. Ignores a turn without a TTL or above 1 s: no client of ours writes one.
local function left_to_readers(turn)
  local left = redis.call('GET', turn) == 'turn' and redis.call('PTTL', turn) or 0
  return left <= 1000 and math.max(left, 0) or 0
end


-- Gives a lock its lease. If that fails, deletes the keys that this script made (the lock, or the list `made`) and returns the error.
-- Scripts are not rolled back: without its TTL a lock would outlive its holder.
local function expire(lock, lease, made)
  local expiring = redis.pcall('PEXPIRE', lock, lease)
  if type(expiring) ~= 'table' then
    return nil
  end
  for _, key in ipairs(made or { lock }) do
    redis.call('DEL', key)
  end
  return expiring
end


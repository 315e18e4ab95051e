-- The number that a counter holds: of permits that are left, of parties that have not arrived; nil: nobody has set it. Raises an error if the
-- key holds something else: what follows must not write half of its work first.
local function number_of(counter)
  local number = redis.call('GET', counter)
  if number and not string.find(number, '^%-?%d+$') then
    error({ err = 'WRONGTYPE the key holds no number' }, 0)
  end
  return number and tonumber(number)
end


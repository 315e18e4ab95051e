-- Runs commands, and tells which were refused and why. They are such that each is refused or wrong or changes nothing.
--
-- ARGV     for each command the number of its words, and its words
-- reply    array of [the place of its number in ARGV, the error], of those that were errors
local errors, at = {}, 1
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  local reply = redis.pcall(unpack(ARGV, at + 1, at + count))
  if type(reply) == 'table' and reply.err then
    errors[#errors + 1] = {at, reply.err}
  end
  at = at + count + 1
end
return errors

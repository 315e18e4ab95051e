-- Runs commands of a caller, up to the first that fails, while a lock is held; else none.
--
-- preludes stale, held
-- KEYS[1]  the lock: hash, owner field -> hold count
-- KEYS[i]  the keys of the commands, so that a server checks them before any is run
-- ARGV[1]  deadline of this attempt, us on the server's clock
-- ARGV[2]  owner field
-- ARGV[i]  for each command: how many words it has, and the words
-- reply    0: not held, and nothing was run; array of three: 0, nothing and all answers, or the number of the command that
--          failed, its error and the answers of those before it; error STALE <server us>
local lock = KEYS[1]
local owner, at, all = ARGV[2], 3, #ARGV

-- What a server says of the first write of a script, whatever command it is: then that command was not run.
local closed = { READONLY = true, MISCONF = true, NOREPLICAS = true, OOM = true }
local function is_closed(said)
  return closed[string.match(said, '^(%u+) ') or string.match(said, '^@user_script: %d+: %-(%u+) ')]
end

local ours, failed = held(lock, owner)
if failed then
  return failed
end
if ours == 0 then
  return 0
end
local answers = {}
while at <= all do
  local last = at + tonumber(ARGV[at])
  local answer = redis.pcall(unpack(ARGV, at + 1, last))
  if type(answer) == 'table' and answer.err then
    if #answers == 0 and is_closed(answer.err) then
      return answer
    end
    return { #answers + 1, answer.err, answers }
  end
  answers[#answers + 1] = answer
  at = last + 1
end
return { 0, '', answers }

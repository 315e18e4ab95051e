-- An operation that is done once, however often its command is executed (docs/protocol.md, 19). The key of its lane holds the number of the
-- last operation there and its result: '<number>:<result>'.

-- What the operation returned when it was done; nil: it was not done, and may be. Raises an error if a later one was done: nobody waits for this
-- copy.
local function done_before(operation, number)
  local last, result = string.match(redis.call('GET', operation) or '', '^(%d+):(.*)$')
  if not last or tonumber(last) < number then
    return nil
  end
  if tonumber(last) > number then
    error({ err = 'ERR a later operation was done in this lane' }, 0)
  end
  return result
end

-- The first write of an operation that must be done also by a server without memory: PEXPIRE needs none, and after a write the server refuses
-- nothing. Not DEL: while the slot of a cluster moves, the old node lets no script make a key anew, and the operation would be done without
-- its result.
local function write_first(operation, ms)
  redis.call('PEXPIRE', operation, ms)
end

-- Keeps the result for `ms`, longer than any copy of its command can be executed.
local function note_done(operation, number, result, ms)
  redis.call('SET', operation, string.format('%.0f', number) .. ':' .. result, 'PX', ms)
end


-- What stands before the acquire script of a kind that is asked for in turn: `in_turn.lua` runs it as a function.
--
-- reply    that of in_turn.lua
local function asked()

--- A link to nobody: checks each frame as a server would, answers at random, and sums it all up.
--
-- It stands where the link (link.lua) stands, so a game file is played by the same player on the
-- same machine as later, and what is wrong with it shows before there is a server.

local M = {}
M.__index = M

local BYTES = { float32 = 4, uint8 = 1 }
local STEPS = 1000 -- of a continuous control's range
local REPORT_DECISIONS = 500
local TERMINAL, TRUNCATED, START = 1, 2, 4

--- Make a rehearsal. options: game, random (function(most) -> 0 .. most), log (function(text)).
function M.new(options)
  local game = options.game
  local values = 1
  for _, size in ipairs(game.observation.shape) do
    values = values * size
  end
  local self = setmetatable({
    game = game,
    random = options.random,
    log = options.log,
    transport = { name = "nothing: a rehearsal with random actions" },
    settings = {},
    values = values,
    bytes = BYTES[game.observation.dtype],
    decisions = 0,
    changed = {}, -- places of the observation that were ever another value
    gained = {},
    lost = {},
    terminal = 0,
    truncated = 0,
    open = 0, -- return of the episode that is being played
    returns = {},
  }, M)
  for place = 1, #game.rewards do
    self.gained[place], self.lost[place] = 0, 0
  end
  return self
end

--- Do nothing: there is nobody to join.
function M:join()
  return true
end

--- Check a frame, and give a random action for it.
function M:exchange(frame)
  self:check_observation(frame.observation)
  self:check_rewards(frame.rewards)
  self:check_info(frame.info)
  if frame.expert then
    self:check_expert(frame.expert)
  end
  self.decisions = self.decisions + 1
  if self.decisions % REPORT_DECISIONS == 0 then
    self.log("rehearsed " .. self.decisions .. " decisions")
  end
  self:count(frame)
  return self:action()
end

--- Say what was seen.
function M:close()
  local game, changed = self.game, 0
  for _ in pairs(self.changed) do
    changed = changed + 1
  end
  self.log(("observation: %d of %d values (%s) changed"):format(changed, self.values, game.observation.dtype))
  for place, name in ipairs(game.rewards) do
    self.log(("reward %s: +%g and -%g in %d decisions"):format(
      name, self.gained[place], self.lost[place], self.decisions
    ))
  end
  local episodes, total = #self.returns, 0
  for _, value in ipairs(self.returns) do
    total = total + value
  end
  self.log(("episodes: %d over (%d terminal, %d truncated)%s"):format(
    episodes, self.terminal, self.truncated,
    episodes > 0 and (", mean return %g"):format(total / episodes) or ""
  ))
  for _, warning in ipairs(self:warnings(changed)) do
    self.log("warning: " .. warning)
  end
end

--- Name what a server would take, and nobody could learn from.
function M:warnings(changed)
  local warnings, moved = {}, 0
  for place = 1, #self.game.rewards do
    moved = moved + self.gained[place] + self.lost[place]
  end
  if self.decisions == 0 then
    return { "no decision was made: episode.ready or episode.begin never let the game begin" }
  end
  if changed == 0 then
    warnings[#warnings + 1] = "the observation never changed: does the game run, are the addresses right?"
  end
  if moved == 0 then
    warnings[#warnings + 1] = "no reward was earned or lost: rehearse for longer, or look at reward"
  end
  if #self.returns == 0 then
    warnings[#warnings + 1] = "no episode ended: rehearse for longer, or look at episode.over"
  end
  return warnings
end

-- What a server would refuse ----------------------------------------------------------------------

local function is_finite(value)
  return type(value) == "number" and value == value and value > -math.huge and value < math.huge
end

function M:check_observation(observation)
  local wanted = self.values * self.bytes
  if type(observation) ~= "string" or #observation ~= wanted then
    error(("observation.read gave %s bytes; %d %s values are %d"):format(
      type(observation) == "string" and #observation or "no", self.values, self.game.observation.dtype, wanted
    ), 0)
  end
  if self.bytes == 4 then
    for place = 1, self.values do
      local high, low = observation:byte(4 * place), observation:byte(4 * place - 1)
      if high % 128 == 127 and low >= 128 then
        error("value " .. place .. " of the observation is not a finite number", 0)
      end
    end
  end
end

function M:check_rewards(rewards)
  if type(rewards) ~= "table" or #rewards ~= #self.game.rewards then
    error(("reward gave %s numbers; rewards names %d"):format(
      type(rewards) == "table" and #rewards or "no", #self.game.rewards
    ), 0)
  end
  for place, value in ipairs(rewards) do
    if not is_finite(value) then
      error("reward '" .. self.game.rewards[place] .. "' is " .. tostring(value) .. ", not a finite number", 0)
    end
  end
end

function M:check_info(info)
  for place, pair in ipairs(info or {}) do
    local kind = type(pair) == "table" and type(pair[2])
    if not kind or type(pair[1]) ~= "string" or kind ~= "number" and kind ~= "string" then
      error("info[" .. place .. "] must be a name and a number or a text", 0)
    end
  end
end

function M:check_expert(proposal)
  local actions = self.game.actions
  local discrete, continuous = proposal.discrete or {}, proposal.continuous or {}
  for place, control in ipairs(actions.discrete or {}) do
    local choice = discrete[place]
    if type(choice) ~= "number" or choice < 0 or choice >= control.choices or choice % 1 ~= 0 then
      error(("the expert chose %s for '%s'; it has the choices 0 to %d"):format(
        tostring(choice), control.name, control.choices - 1
      ), 0)
    end
  end
  for place, control in ipairs(actions.continuous or {}) do
    local value = continuous[place]
    if not is_finite(value) or value < control.low or value > control.high then
      error(("the expert chose %s for '%s'; it goes from %g to %g"):format(
        tostring(value), control.name, control.low, control.high
      ), 0)
    end
  end
end

-- Counting and choosing ---------------------------------------------------------------------------

function M:count(frame)
  local flags = frame.flags
  if flags % (2 * START) >= START then
    self.open = 0
  else
    for place, value in ipairs(frame.rewards) do
      self.open = self.open + value
      local side = value > 0 and self.gained or self.lost
      side[place] = side[place] + math.abs(value)
    end
  end
  if flags % (2 * TERMINAL) >= TERMINAL then
    self.terminal = self.terminal + 1
    self.returns[#self.returns + 1] = self.open
  elseif flags % (2 * TRUNCATED) >= TRUNCATED then
    self.truncated = self.truncated + 1
    self.returns[#self.returns + 1] = self.open
  end
  self:note_changes(frame.observation)
end

function M:note_changes(observation)
  local first = self.first
  if not first then
    self.first = observation
  elseif first ~= observation then
    for place = 1, self.values do
      local from, to = (place - 1) * self.bytes + 1, place * self.bytes
      if not self.changed[place] and first:sub(from, to) ~= observation:sub(from, to) then
        self.changed[place] = true
      end
    end
  end
end

function M:action()
  local actions = self.game.actions
  local discrete, continuous = {}, {}
  for place, control in ipairs(actions.discrete or {}) do
    discrete[place] = self.random(control.choices - 1)
  end
  for place, control in ipairs(actions.continuous or {}) do
    continuous[place] = control.low + (control.high - control.low) * self.random(STEPS) / STEPS
  end
  return { discrete = discrete, continuous = continuous, source = 1 }
end

return M

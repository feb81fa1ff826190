--- Plays one game for the server: what to do after each frame of the emulator.
--
-- Knows no emulator: an adapter gives it a machine and calls ``frame`` once per emulator frame.
--   machine.save()    keep the machine's state as the start of all episodes
--   machine.load()    go back to it; done a frame or two later
--   machine.picture(most_width, most_height)   optional: width, height and RGB bytes of the screen
--   (and whatever the adapter and its games agree on for reading and for inputs)
--
--   booting ──ready──▶ settling ──idle frames──▶ beginning ──begun──▶ playing ──over──▶ resetting
--                         ▲                                                                 │
--                         └─────────────────────────────────────────────────────────────────┘

local M = {}
M.__index = M

local LOAD_FRAMES = 2 -- until a requested load has surely been carried out
local DEFAULT_IDLE_FRAMES = 30
local INFO_EVERY = 60 -- decisions between two infos that say the same
local PREVIEW_WIDTH, PREVIEW_HEIGHT = 160, 120 -- the server takes larger ones; these do for people

--- Make a player. options: game, machine, link, wire, and optionally
-- frame_skip (else the game's), random (function(n) -> 0 .. n) and on_refused (function(gone):
-- there is no use in going on).
function M.new(options)
  local self = setmetatable({
    game = options.game,
    machine = options.machine,
    link = options.link,
    wire = options.wire,
    random = options.random or function(most)
      return math.random(0, most)
    end,
    on_refused = options.on_refused or function() end,
    skip = options.frame_skip or options.game.frame_skip or 1,
    settings = {}, -- of the game, by name; the table is the same for good
    pushed = {}, -- what the server last said of them
    frames = 0, -- of the emulator, since the player was made
    decisions = 0,
    info = {}, -- as last sent
    info_age = 0, -- decisions since then
    episodes = 0,
    wait = 0,
  }, M)
  for _, setting in ipairs(options.game.settings or {}) do
    self.settings[setting.name] = setting.default
  end
  self.phase = self.booting
  return self
end

--- Give what the client announces, from the game's own data.
function M.hello(game, client, version, agent)
  return {
    client = client,
    client_version = version,
    game = game.name,
    agent = agent or "",
    observation = { dtype = game.observation.dtype, shape = game.observation.shape },
    actions = game.actions,
    rewards = game.rewards,
  }
end

--- Do what is to be done after one frame of the emulator.
function M:frame()
  self.frames = self.frames + 1
  self.phase(self)
end

function M:booting()
  if self.game.episode.ready(self.machine, self.frames) then
    self.game.actions.release(self.machine)
    self.machine.save()
    self:settle()
  end
end

function M:settle()
  self.wait = self.random(self.game.episode.idle_frames or DEFAULT_IDLE_FRAMES)
  self.phase = self.settling
end

function M:settling()
  if self.wait > 0 then
    self.wait = self.wait - 1
    return
  end
  if self.game.settings then
    self.link:join() -- a start level must be known before the start
    self:refresh_settings()
  end
  self.state = { settings = self.settings }
  self.earned = nil
  self.since = 0
  self.phase = self.beginning
  self:beginning()
end

function M:beginning()
  local begin = self.game.episode.begin
  if begin and begin(self.machine, self.state) == false then
    return
  end
  self.phase = self.playing
  self:decide(self.wire.START)
end

function M:playing()
  self:earn()
  self.since = self.since + 1
  local over = self.game.episode.over(self.machine, self.state)
  if over then
    self:decide(over == "terminal" and self.wire.TERMINAL or self.wire.TRUNCATED)
    self.episodes = self.episodes + 1
    self.game.actions.release(self.machine)
    self.machine.load()
    self.wait = LOAD_FRAMES
    self.phase = self.resetting
  elseif self:is_due() then
    self:decide(0)
  end
end

--- Say whether this frame calls for a decision.
function M:is_due()
  local decide = self.game.decide
  return self.since >= self.skip and (not decide or decide(self.machine, self.state))
end

function M:resetting()
  self.wait = self.wait - 1
  if self.wait <= 0 then
    self:settle()
  end
end

--- Add up what was earned since the last decision.
function M:earn()
  local now = self.game.reward(self.machine, self.state)
  local earned = self.earned
  if not earned then
    self.earned = now
    return
  end
  for place = 1, #now do
    earned[place] = earned[place] + now[place]
  end
end

--- Show the server a frame and do what it answers.
function M:decide(flags)
  local game, machine, state = self.game, self.machine, self.state
  local observation = game.observation.read(machine, state)
  if type(observation) == "table" then
    observation = self.wire.floats(observation)
  end
  local rewards = self.earned
  if not rewards then
    rewards = {}
    for place = 1, #game.rewards do
      rewards[place] = 0
    end
  end
  self.earned, self.since = nil, 0
  self.decisions = self.decisions + 1
  local action = self.link:exchange({
    flags = flags,
    rewards = rewards,
    observation = observation,
    expert = game.expert and game.expert(machine, state) or nil,
    info = self:news(flags),
    preview = self:preview(),
  })
  if action then
    self:refresh_settings()
    game.actions.apply(machine, action, state)
  else
    game.actions.release(machine)
    if self.link.refused then
      self.on_refused(self.link.gone)
    end
  end
end

--- Say whether two infos have the same names and values.
local function same(one, other)
  if #one ~= #other then
    return false
  end
  for place, pair in ipairs(one) do
    local before = other[place]
    if pair[1] ~= before[1] or pair[2] ~= before[2] then
      return false
    end
  end
  return true
end

--- Give the game's info if it is worth its bytes in this frame, else nil.
function M:news(flags)
  local info = self.game.info and self.game.info(self.machine, self.state)
  self.info_age = self.info_age + 1
  if not info or flags == 0 and self.info_age < INFO_EVERY and same(info, self.info) then
    return nil
  end
  self.info, self.info_age = info, 0
  return info
end

--- Give the bytes of a picture of the screen, if the server wants one with this decision.
function M:preview()
  local every = self.link.connected and self.link.settings.preview_every
  if type(every) ~= "number" or every < 1 or self.decisions % every ~= 0 or not self.machine.picture then
    return nil
  end
  local width, height, pixels = self.machine.picture(PREVIEW_WIDTH, PREVIEW_HEIGHT)
  return width and self.wire.preview(width, height, pixels)
end

-- Settings --------------------------------------------------------------------------------------

--- Bring the game's settings up to date with what the server pushed.
function M:refresh_settings()
  for _, setting in ipairs(self.game.settings or {}) do
    local name = setting.name
    local pushed = self.link.settings[name]
    if pushed ~= self.pushed[name] then
      self.pushed[name] = pushed
      self:take(setting, pushed)
    end
  end
end

--- Take a pushed value as far as it can be taken, and say so where it cannot.
function M:take(setting, pushed)
  local name, low, high = setting.name, setting.low, setting.high
  if type(pushed) ~= "number" or pushed ~= pushed then
    self.link.log("the server's " .. name .. " = '" .. tostring(pushed) .. "' is not a number; "
      .. "it stays " .. self.settings[name])
    return
  end
  local value = math.max(low, math.min(high, pushed))
  if value ~= pushed then
    self.link.log("the server's " .. name .. " = " .. pushed .. " is not within " .. low .. " to " .. high
      .. "; taking " .. value)
  end
  self.settings[name] = value
end

return M

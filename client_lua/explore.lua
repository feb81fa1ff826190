--- Explores a game: lists what the emulator offers, and records the RAM while inputs are held.
--
-- There is neither a server nor a game file: COINOP_EXPLORE names a plan, a Lua file that returns
--   inventory   optional: a file to list inputs and RAM in, one a line, fields split by tabs
--   ram         {{first, last}...}: what is recorded, both ends included
--   scenes      {{from, frames, steps, save, record}...}, played one after another:
--     from      name of a state to start from; nil: go on from where the scene before ended
--     frames    how long it lasts
--     steps     {{frame, port, name, value}...} in order: the input is set after that frame, so it
--               acts on the next; all inputs are given back at the scene's end
--     save      optional: name of the state to keep its end as
--     record    optional: a file for the RAM, one row a frame; row 0 is where the scene starts
--
-- The machine is the one that games see, and it also lists what there is:
--   inventory()    lines of text (tools/exploring/inventory.py reads them)

local M = {}
M.__index = M

local STATE_FRAMES = 2 -- until a requested save or load has surely been carried out
local REPORT_FRAMES = 300

--- Make an exploration. options: machine, plan, open (function(file) -> something to write to),
-- say (function(text)) and done (function(): nothing is left to do).
function M.new(options)
  local self = setmetatable({
    machine = options.machine,
    plan = options.plan,
    open = options.open,
    say = options.say,
    done = options.done,
    place = 0, -- of the scene
    wait = 0,
    played = 0, -- frames of scenes
  }, M)
  if self.plan.inventory then
    local file = self.open(self.plan.inventory)
    file:write(table.concat(self.machine.inventory(), "\n"), "\n")
    file:close()
  end
  self.phase = self.next_scene
  return self
end

--- Do what is to be done after one frame of the emulator.
function M:frame()
  self.phase(self)
end

function M:next_scene()
  self.place = self.place + 1
  local scene = self.plan.scenes[self.place]
  if not scene then
    self.phase = function() end
    self.done()
    return
  end
  self.scene, self.time, self.step, self.held = scene, 0, 1, {}
  self.file = scene.record and self.open(scene.record)
  if scene.from then
    self.machine.load(scene.from)
    self:rest(self.playing)
  else
    self.phase = self.playing
    self:playing()
  end
end

--- Let a save or a load be carried out before going on.
function M:rest(following)
  self.wait = STATE_FRAMES
  self.phase = function()
    self.wait = self.wait - 1
    if self.wait == 0 then
      self.phase = following
    end
  end
end

function M:playing()
  local scene = self.scene
  if self.time >= scene.frames then
    self:finish()
    return
  end
  if self.file then
    for _, range in ipairs(self.plan.ram) do
      self.file:write(self.machine.read_range(range[1], range[2]))
    end
  end
  local step = scene.steps[self.step]
  while step and step[1] <= self.time do
    local port, name, value = step[2], step[3], step[4]
    self.machine.set(port, name, value)
    self.held[port .. "\0" .. name] = { port, name }
    self.step = self.step + 1
    step = scene.steps[self.step]
  end
  self.time = self.time + 1
  self.played = self.played + 1
  if self.played % REPORT_FRAMES == 0 then
    self.say("explored " .. self.played .. " frames")
  end
end

function M:finish()
  if self.file then
    self.file:close()
  end
  for _, input in pairs(self.held) do
    self.machine.clear(input[1], input[2])
  end
  if self.scene.save then
    self.machine.save(self.scene.save)
    self:rest(self.next_scene)
  else
    self:next_scene()
  end
end

return M

--- Checks a game file, and names what is missing or wrong before anything runs.
--
-- A game file is called with a function that runs another file of its directory by name, for a game
-- too long for one, and returns a table of data and small functions:
--   name            the game's name on the server
--   frame_skip      emulator frames per decision (default 1)
--   decide          optional function(machine, state) -> true after the frames that call for a
--                   decision, of those that frame_skip leaves; for a game with a clock of its own,
--                   or with times when actions mean nothing
--   settings        optional {{name, default, low, high, about}...}: numbers that the server may
--                   push (``--client-setting name=value``); what it pushed is in state.settings,
--                   which is kept up to date, the default where it pushed nothing
--   inputs          optional {emulator = {name = {port, field}...}...}: the game's own names for its
--                   inputs, and where each emulator it runs under has them. machine.press(name,
--                   value) sets one, in whichever emulator; machine.release() lets all of them go
--   observation     {dtype, shape, read = function(machine, state) -> list of numbers or bytes}
--   actions         {discrete = {{name, choices}...}, continuous = {{name, low, high}...},
--                    apply = function(machine, action, state), release = function(machine)}
--   rewards         names of the components
--   reward          function(machine, state) -> list of numbers, earned since the frame before
--   episode         {ready = function(machine, frame) -> true once the game can be played,
--                    begin = function(machine, state) optional; false: not begun yet, it is called
--                    again after the next frame,
--                    over = function(machine, state) -> "terminal", "truncated" or nil,
--                    idle_frames = most random idle frames after a reset (default 30)}
--   info            optional function(machine, state) -> {{name, value}...}
--   expert          optional function(machine, state) -> {discrete = {...}, continuous = {...}}
-- ``machine`` is the emulator; boot.lua says what it can do.
-- ``state`` is a table of the game's own; at each start of an episode it holds ``settings`` only.

local M = {}

-- What must be where, and of which type; "?" marks what may be left out.
local FIELDS = {
  { "name", "string" },
  { "frame_skip", "number?" },
  { "decide", "function?" },
  { "settings", "table?" },
  { "inputs", "table?" },
  { "observation", "table" },
  { "observation.dtype", "string" },
  { "observation.shape", "table" },
  { "observation.read", "function" },
  { "actions", "table" },
  { "actions.discrete", "table?" },
  { "actions.continuous", "table?" },
  { "actions.joint", "boolean?" },
  { "actions.apply", "function" },
  { "actions.release", "function" },
  { "rewards", "table" },
  { "reward", "function" },
  { "episode", "table" },
  { "episode.ready", "function" },
  { "episode.begin", "function?" },
  { "episode.over", "function" },
  { "episode.idle_frames", "number?" },
  { "info", "function?" },
  { "expert", "function?" },
}

local KNOWN = {}
for _, field in ipairs(FIELDS) do
  KNOWN[field[1]] = true
end

local DTYPES = { float32 = true, uint8 = true }

local function at(game, path)
  local value = game
  for name in path:gmatch("[^.]+") do
    if type(value) ~= "table" then
      return nil
    end
    value = value[name]
  end
  return value
end

--- A misspelt field that may be left out would be left out without a word.
local function unknown_problems(problems, values, within)
  local names = {}
  for name in pairs(values) do
    names[#names + 1] = tostring(name)
  end
  table.sort(names)
  for _, name in ipairs(names) do
    if not KNOWN[within .. name] then
      problems[#problems + 1] = within .. name .. " is no field of a game: is its name spelt right?"
    end
  end
end

local function is_count(value)
  return type(value) == "number" and value >= 1 and value % 1 == 0
end

--- Of numbers that make no sense.
local function values_problems(problems, game)
  if game.frame_skip and not is_count(game.frame_skip) then
    problems[#problems + 1] = "frame_skip must be 1 or more, not " .. game.frame_skip
  end
  for place, size in ipairs(game.observation.shape) do
    if not is_count(size) then
      problems[#problems + 1] = "observation.shape[" .. place .. "] must be 1 or more, not " .. tostring(size)
    end
  end
  for place, name in ipairs(game.rewards) do
    if type(name) ~= "string" then
      problems[#problems + 1] = "rewards[" .. place .. "] must be a name, not " .. tostring(name)
    end
  end
  for place, control in ipairs(game.actions.discrete or {}) do
    if not is_count(control.choices) then
      problems[#problems + 1] = "actions.discrete[" .. place .. "].choices must be 1 or more"
    end
  end
  for place, control in ipairs(game.actions.continuous or {}) do
    if not (control.low < control.high) then
      problems[#problems + 1] = "actions.continuous[" .. place .. "].low must be less than its high"
    end
  end
end

local function controls_problems(problems, kind, controls, numbers)
  for place, control in ipairs(controls or {}) do
    local where = "actions." .. kind .. "[" .. place .. "]"
    if type(control) ~= "table" or type(control.name) ~= "string" then
      problems[#problems + 1] = where .. " needs a name"
    else
      for _, name in ipairs(numbers) do
        if type(control[name]) ~= "number" then
          problems[#problems + 1] = where .. " ('" .. control.name .. "') needs the number " .. name
        end
      end
    end
  end
end

local function inputs_problems(problems, inputs)
  for emulator, names in pairs(inputs or {}) do
    for name, input in pairs(names) do
      if type(input) ~= "table" or input[1] == nil or input[2] == nil then
        problems[#problems + 1] = "inputs." .. emulator .. "." .. name .. " must be {port, field}"
      end
    end
  end
end

local function settings_problems(problems, settings)
  for place, setting in ipairs(settings or {}) do
    local where = "settings[" .. place .. "]"
    if type(setting) ~= "table" or type(setting.name) ~= "string" then
      problems[#problems + 1] = where .. " needs a name"
    else
      where = where .. " ('" .. setting.name .. "')"
      local default, low, high = setting.default, setting.low, setting.high
      if type(default) ~= "number" or type(low) ~= "number" or type(high) ~= "number" then
        problems[#problems + 1] = where .. " needs the numbers default, low and high"
      elseif not (low <= default and default <= high) then
        problems[#problems + 1] = where .. ": the default " .. default .. " is not within " .. low .. " to " .. high
      end
      if type(setting.about) ~= "string" then
        problems[#problems + 1] = where .. " needs a sentence: about"
      end
    end
  end
end

--- Give every problem of a game, as a list of sentences.
function M.problems(game)
  if type(game) ~= "table" then
    return { "a game file must return a table, not a " .. type(game) }
  end
  local problems = {}
  for _, field in ipairs(FIELDS) do
    local path, expected = field[1], field[2]
    local optional = expected:sub(-1) == "?"
    local kind, found = expected:gsub("%?", ""), type(at(game, path))
    if found == "nil" and not optional then
      problems[#problems + 1] = path .. " is missing: a " .. kind
    elseif found ~= "nil" and found ~= kind then
      problems[#problems + 1] = path .. " must be a " .. kind .. ", not a " .. found
    end
  end
  unknown_problems(problems, game, "")
  for _, part in ipairs({ "observation", "actions", "episode" }) do
    if type(game[part]) == "table" then
      unknown_problems(problems, game[part], part .. ".")
    end
  end
  if #problems > 0 then
    return problems
  end
  if not DTYPES[game.observation.dtype] then
    problems[#problems + 1] = "observation.dtype must be 'float32' or 'uint8', not '" .. game.observation.dtype .. "'"
  end
  if #game.rewards == 0 then
    problems[#problems + 1] = "rewards must name at least one component"
  end
  local discrete, continuous = game.actions.discrete or {}, game.actions.continuous or {}
  if #discrete + #continuous == 0 then
    problems[#problems + 1] = "actions must name at least one discrete or continuous control"
  end
  controls_problems(problems, "discrete", discrete, { "choices" })
  controls_problems(problems, "continuous", continuous, { "low", "high" })
  inputs_problems(problems, game.inputs)
  settings_problems(problems, game.settings)
  if #problems == 0 then
    values_problems(problems, game)
  end
  return problems
end

--- Load a game file and check it.
function M.load(file)
  local directory = file:match("^(.*[/\\])") or ""
  local function load(path)
    local chunk, problem = loadfile(path)
    return chunk or error("cannot load the game: " .. problem, 0)
  end
  local parts = {}
  local function beside(name)
    parts[name] = parts[name] or load(directory .. name .. ".lua")(beside)
    return parts[name]
  end
  return M.check(load(file)(beside), file)
end

--- Give the game itself, or raise an error that names everything wrong with it.
function M.check(game, file)
  local problems = M.problems(game)
  if #problems > 0 then
    error("the game file " .. file .. " is not right:\n  " .. table.concat(problems, "\n  "), 0)
  end
  return game
end

return M

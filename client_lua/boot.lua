--- Starts a game for the server; what the boot scripts of all emulators have in common.
--
-- Settings come from the environment:
--   COINOP_GAME     name of a file in games/, or an absolute path
--   COINOP_SERVER   address of the server (127.0.0.1:9797); an IP, names are not looked up;
--                   several by commas: to another one if it is gone
--   COINOP_NAME     what the client calls itself      COINOP_AGENT  which agent plays
--   COINOP_TOKEN    the server's secret               COINOP_SEED   of the machine's dice
--   COINOP_ONCE     1: end with the server, instead of waiting for another one
--   COINOP_WAIT     1: wait for the server while it is away, instead of playing on
--   COINOP_EVALUATE  1: have the agent evaluated: greedy answers, and nothing is stored
--   COINOP_FRAME_SKIP  emulator frames per decision, instead of the game's own number
--   COINOP_FRAMES   for tests: leave after this many frames of the emulator
--   COINOP_REHEARSE  1: play with random actions instead of a server's (see rehearsal.lua)
--   COINOP_EXPLORE  a plan: look at an unknown game instead of playing a known one (see explore.lua)
--
-- An adapter calls ``start`` once and ``frame`` after each frame of its emulator, and ends the process
-- with the code that ``frame`` gives once all is over. It brings
--   emulator        its name, by which game files know it: "mame", "fceux"
--   clock()         seconds of wall clock
--   transport()     makes what the link talks over (see link.lua), or raises why there is none
--   machine()       makes what games see of the emulator, in every emulator alike:
--     read(address), read_range(first, last), write(address, value)    bytes; a range is a string
--     set(port, name, value), clear(port, name)    inputs, named as the emulator names them
--     pixels()      the screen: bytes (4 a pixel), width, height, their order ("BGRA" or "ARGB")
--     save(), load()    the state that all episodes start from; with a name, another one
--     inventory()   only where games can be explored: what there is (see mame_inventory.lua)
-- and the machine gets from here
--     emulator      the name
--     random(most)  a whole number from 0 to most, of the client's own dice
--     press(name, value), release()    inputs by the game's own names (``inputs``, see game.lua)
--     picture(most_width, most_height)    the screen made small: width, height, RGB bytes
--
-- The process ends with 0 when all is done, 1 where a new start may help (the server is gone, a
-- script fell), 2 where it cannot (wrong settings, a refusal).

local M = {}

local VERSION = "1"
local DONE, FALLEN, USELESS = 0, 1, 2
local here = debug.getinfo(1, "S").source:match("^@(.*[/\\])") or "./"

--- Run a file beside this one and give what it returns.
function M.load(name)
  local chunk, problem = loadfile(here .. name .. ".lua")
  if not chunk then
    error(problem, 0)
  end
  return chunk()
end

--- Give a setting's text, or the default where it is absent or empty.
function M.setting(name, default)
  local value = os.getenv("COINOP_" .. name)
  if value == nil or value == "" then
    return default
  end
  return value
end

--- Tell the person who reads the emulator's output. Not by print: FCEUX shows that in a window.
function M.say(text)
  io.stdout:write("coinop: " .. text .. "\n")
  io.stdout:flush()
end

local function number(name, default)
  local text = M.setting(name, default)
  return tonumber(text) or error("COINOP_" .. name .. " = '" .. text .. "' must be a number", 0)
end

--- Give the servers' addresses, each {host, port}.
local function server_addresses()
  local servers, text = {}, M.setting("SERVER", "127.0.0.1:9797")
  for server in (text .. ","):gmatch("([^,]*),") do
    local host, port = server:match("^(.*):(%d+)$")
    if not host then
      error("COINOP_SERVER = '" .. text .. "' must be ADDRESS:PORT, or several by commas", 0)
    end
    servers[#servers + 1] = { host, tonumber(port) }
  end
  return servers
end

local function load_game()
  local name = M.setting("GAME")
  if not name then
    error("set COINOP_GAME to the name of a game in " .. here .. "games", 0)
  end
  local file = name:find("[/\\]") and name or here .. "games/" .. name .. ".lua"
  return M.load("game").load(file)
end

--- Random numbers of our own: Lua's are shared with whatever else runs in the emulator.
local function dice(seed)
  local state = seed % 2147483647
  if state == 0 then
    state = 1
  end
  return function(most)
    state = state * 48271 % 2147483647
    return state % (most + 1)
  end
end

--- Let a game press its inputs by names of its own.
local function name_inputs(machine, game, emulator)
  local inputs = (game.inputs or { [emulator] = {} })[emulator]
  if not inputs then
    local known = {}
    for name in pairs(game.inputs) do
      known[#known + 1] = name
    end
    table.sort(known)
    error("the game " .. game.name .. " names no inputs for " .. emulator .. ", only for "
      .. table.concat(known, ", "), 0)
  end

  function machine.press(name, value)
    local input = inputs[name] or error("the game names no input '" .. tostring(name) .. "' for " .. emulator)
    machine.set(input[1], input[2], value)
  end

  function machine.release()
    for _, input in pairs(inputs) do
      machine.clear(input[1], input[2])
    end
  end
end

local function new_machine(adapter, game)
  local machine = adapter.machine()
  machine.emulator = adapter.emulator
  machine.random = dice(number("SEED", "1"))
  name_inputs(machine, game, adapter.emulator)
  local picture = M.load("picture")
  function machine.picture(most_width, most_height)
    return picture.shrink(most_width, most_height, machine.pixels())
  end
  return machine
end

local function new_link(adapter, game, hello, wire)
  if M.setting("REHEARSE") == "1" then
    return M.load("rehearsal").new({ game = game, random = dice(number("SEED", "1")), log = M.say })
  end
  local servers = server_addresses()
  local first = table.remove(servers, 1)
  return M.load("link").new({
    wire = wire,
    transport = adapter.transport(),
    clock = adapter.clock,
    host = first[1],
    port = first[2],
    others = servers,
    hello = hello,
    proof = M.load("proof"),
    token = M.setting("TOKEN", ""),
    wait = M.setting("WAIT") == "1",
    once = M.setting("ONCE") == "1",
    log = M.say,
  })
end

local Session = {}
Session.__index = Session

local function new_session(adapter)
  local game, wire, player = load_game(), M.load("wire"), M.load("player")
  local name = M.setting("NAME", adapter.emulator)
  local hello = player.hello(game, name, VERSION, M.setting("AGENT", ""))
  hello.evaluate = M.setting("EVALUATE") == "1"
  local machine, link = new_machine(adapter, game), new_link(adapter, game, hello, wire)
  M.say("playing " .. game.name .. " over " .. link.transport.name)
  local session = setmetatable({ limit = number("FRAMES", "0"), code = nil }, Session)
  session.player = player.new({
    game = game,
    machine = machine,
    wire = wire,
    link = link,
    frame_skip = number("FRAME_SKIP", game.frame_skip or 1),
    random = machine.random,
    on_refused = function(gone)
      session.code = gone and FALLEN or USELESS
    end,
  })
  return session
end

local function nothing() end

--- Look at an unknown game; there is neither a server nor a game file.
local function new_exploration(adapter)
  local plan, problem = loadfile(M.setting("EXPLORE"))
  if not plan then
    error("cannot load the plan: " .. problem, 0)
  end
  local session = setmetatable({ limit = 0, code = nil, close = nothing }, Session)
  session.player = M.load("explore").new({
    machine = adapter.machine(),
    plan = plan(),
    open = function(file)
      return assert(io.open(file, "wb"))
    end,
    say = M.say,
    done = function()
      session.code = DONE
    end,
  })
  return session
end

--- Start playing what the settings say; where that cannot be, say why and end the process.
function M.start(adapter)
  local good, session = pcall(M.setting("EXPLORE") and new_exploration or new_session, adapter)
  if not good then
    M.say(session)
    os.exit(USELESS, false)
  end
  return session
end

--- Do what is to be done after one frame of the emulator; once all is over, give the exit code.
function Session:frame()
  local player = self.player
  local fine, problem = pcall(player.frame, player)
  if not fine then
    M.say("error: " .. tostring(problem))
    self.code = FALLEN
  elseif not self.code and self.limit > 0 and player.frames >= self.limit then
    self:close("done")
    M.say("played " .. player.frames .. " frames, " .. player.decisions .. " decisions, "
      .. player.episodes .. " episodes")
    self.code = DONE
  end
  return self.code
end

--- Say goodbye to the server.
function Session:close(reason)
  self.player.link:close(reason)
end

return M

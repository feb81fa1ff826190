--- The adapter for MAME, and the script it boots with; the only file that names MAME's API.
--
--   mame ... -autoboot_script /abs/client_lua/mame.lua -autoboot_delay 0
--
-- Settings come from the environment:
--   COINOP_GAME     name of a file in games/, or an absolute path
--   COINOP_SERVER   address of the server (127.0.0.1:9797); an IP, names are not looked up
--   COINOP_NAME     what the client calls itself      COINOP_AGENT  which agent plays
--   COINOP_TOKEN    the server's secret               COINOP_SEED   of the idle frames
--   COINOP_ONCE     1: end with the server, instead of waiting for another one
--   COINOP_WAIT     1: wait for the server while it is away, instead of playing on
--   COINOP_TRANSPORT  "file" forces MAME's own sockets where LuaSocket is installed

local VERSION = "1"
local here = debug.getinfo(1, "S").source:match("^@(.*[/\\])") or "./"

local function load(name)
  local chunk, problem = loadfile(here .. name .. ".lua")
  if not chunk then
    error(problem, 0)
  end
  return chunk()
end

local function setting(name, default)
  local value = os.getenv("COINOP_" .. name)
  if value == nil or value == "" then
    return default
  end
  return value
end

local function say(text)
  print("coinop: " .. text)
end

--- Seconds of wall clock; os.clock would be CPU time, which stands still while we wait.
local function clock()
  return emu.osd_ticks() / emu.osd_ticks_per_second()
end

-- Sockets of MAME's own: never block, report no disconnect. For where LuaSocket is not installed.
local function file_transport()
  local transport, file = { name = "emu.file" }, nil

  function transport.open(host, port)
    file = emu.file("rw")
    local problem = file:open("socket." .. host .. ":" .. port)
    if problem then
      file = nil
      return nil, tostring(problem)
    end
    return true
  end

  function transport.send(data)
    if not file then
      return nil, "not connected"
    end
    file:write(data)
    return true
  end

  function transport.receive(wait_s)
    local deadline = clock() + wait_s
    while file do
      local data = file:read(4096)
      if data and #data > 0 then
        return data
      elseif clock() >= deadline then
        return ""
      end
    end
    return nil, "not connected"
  end

  function transport.close()
    file = nil
  end

  return transport
end

local function transport()
  if setting("TRANSPORT") ~= "file" then
    local found = load("luasocket").new(require)
    if found then
      return found
    end
  end
  return file_transport()
end

--- What a game sees of MAME. Fields and spaces are looked up once: a look-up costs microseconds.
local function new_machine()
  local machine = {}
  local running = manager.machine
  local spaces, fields = {}, {}

  local function space(device)
    local found = spaces[device]
    if not found then
      local owner = running.devices[device]
      if not owner then
        error("MAME has no device " .. device)
      end
      found = owner.spaces["program"]
      spaces[device] = found
    end
    return found
  end

  --- Read one byte of a processor's memory.
  function machine.read(address, device)
    return space(device or ":maincpu"):read_u8(address)
  end

  --- Read a range of bytes, both ends included, as a string.
  function machine.read_range(first, last, device)
    return space(device or ":maincpu"):read_range(first, last, 8)
  end

  --- Write one byte.
  function machine.write(address, value, device)
    space(device or ":maincpu"):write_u8(address, value)
  end

  --- Set an input: 1 or 0 for a button, 0 to 255 for a dial. It stays until it is changed.
  function machine.set(port, name, value)
    local key = port .. "\0" .. name
    local field = fields[key]
    if not field then
      local owner = running.ioport.ports[port]
      field = owner and owner.fields[name]
      if not field then
        error("MAME has no input '" .. name .. "' at " .. port)
      end
      fields[key] = field
    end
    field:set_value(value)
  end

  --- Give an input back to the player at the machine.
  function machine.clear(port, name)
    local field = fields[port .. "\0" .. name]
    if field then
      field:clear_value()
    end
  end

  --- Give the screen: bytes (4 a pixel), width, height.
  function machine.pixels()
    for _, screen in pairs(running.screens) do
      return screen:pixels()
    end
  end

  function machine.save()
    running:save("coinop")
  end

  function machine.load()
    running:load("coinop")
  end

  return machine
end

--- Random numbers of our own: Lua's are shared with whatever else runs in MAME.
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

local function start()
  local wire, link, player, games = load("wire"), load("link"), load("player"), load("game")
  local name = setting("GAME")
  if not name then
    error("set COINOP_GAME to the name of a game in " .. here .. "games", 0)
  end
  local file = name:find("[/\\]") and name or here .. "games/" .. name .. ".lua"
  local chunk, problem = loadfile(file)
  if not chunk then
    error("cannot load the game: " .. problem, 0)
  end
  local game = games.check(chunk(), file)
  local server = setting("SERVER", "127.0.0.1:9797")
  local host, port = server:match("^(.*):(%d+)$")
  if not host then
    error("COINOP_SERVER = '" .. server .. "' must be ADDRESS:PORT", 0)
  end
  local hello = player.hello(
    game, setting("NAME", "mame"), VERSION, setting("AGENT", ""), setting("TOKEN", "")
  )
  local over = transport()
  local playing = player.new({
    game = game,
    machine = new_machine(),
    wire = wire,
    link = link.new({
      wire = wire,
      transport = over,
      clock = clock,
      host = host,
      port = tonumber(port),
      hello = hello,
      wait = setting("WAIT") == "1",
      once = setting("ONCE") == "1",
      log = say,
    }),
    random = dice(tonumber(setting("SEED", "1"))),
    on_refused = function(gone)
      os.exit(gone and 1 or 2, false)
    end,
  })
  say("playing " .. game.name .. " over " .. over.name)
  return playing
end

-- A soft reset runs this script again while the old callbacks stay: one player is enough.
if package.loaded["coinop"] then
  return
end
local good, playing = pcall(start)
if not good then
  say(playing)
  os.exit(2, false)
end
package.loaded["coinop"] = playing

local limit = tonumber(setting("FRAMES", "0")) -- for tests: leave after this many frames

-- Kept in a local of the file: MAME drops a subscription that nobody holds.
local subscription = emu.register_frame_done(function()
  local fine, problem = pcall(playing.frame, playing)
  if not fine then
    say("error: " .. tostring(problem))
    os.exit(1, false)
  elseif limit > 0 and playing.frames >= limit then
    playing.link:close("done")
    say("played " .. playing.frames .. " frames, " .. playing.decisions .. " decisions, "
      .. playing.episodes .. " episodes")
    -- With an autoboot script MAME often crashes at a normal exit; this way it never does.
    os.exit(0, false)
  end
end)
local leaving = emu.register_stop(function()
  playing.link:close("the emulator was closed")
  os.exit(0, false)
end)

return { subscription, leaving }

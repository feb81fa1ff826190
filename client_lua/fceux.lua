--- The adapter for FCEUX, and the script it boots with; the only file that names FCEUX's API.
--
--   fceux --loadlua /abs/client_lua/fceux.lua game.nes
--
-- boot.lua has the settings. One is FCEUX's own:
--   COINOP_THROTTLE  1: at the speed of the real console, instead of as fast as it goes
--
-- FCEUX has no sockets of its own, so LuaSocket (for Lua 5.1) must be installed. Without a screen:
-- QT_QPA_PLATFORM=offscreen, and the line "SDL.VideoDriver = 1" in $HOME/.fceux/fceux.cfg, because
-- FCEUX crashes where it draws with OpenGL and there is none. Each FCEUX needs a HOME of its own:
-- it writes that file again at its end. Qt's warnings at the exit mean nothing. An exit while another
-- thread still makes the window crashes FCEUX: the first second of frames must have passed. (Before
-- the first frame there is no such thread.)

local here = debug.getinfo(1, "S").source:match("^@(.*[/\\])") or "./"
local boot = assert(loadfile(here .. "boot.lua"))()

local BUTTONS = { A = true, B = true, start = true, select = true, up = true, down = true, left = true, right = true }
local MOST_PLAYERS = 4
local SETTLE_S = 1 -- until the window is surely made
local GD_HEADER = 11 -- bytes before the pixels of a screenshot

-- What is held down, by player and button. FCEUX forgets it after each frame.
local held = {}

--- Seconds of wall clock; os.clock would be CPU time, which stands still while we wait.
local function clock()
  return require("socket.core").gettime()
end

local function transport()
  local found = boot.load("luasocket").new(require)
  if not found then
    error("FCEUX needs LuaSocket for Lua 5.1; on Debian: apt-get install lua-socket", 0)
  end
  return found
end

--- Give the buttons of a player that are held; port is the player, from 1.
local function buttons_of(port, name)
  if type(port) ~= "number" or port < 1 or port > MOST_PLAYERS then
    error("FCEUX has the ports 1 to " .. MOST_PLAYERS .. ", not '" .. tostring(port) .. "'")
  elseif not BUTTONS[name] then
    error("FCEUX has no button '" .. tostring(name) .. "'; there are A, B, start, select, up, down, left, right")
  end
  held[port] = held[port] or {}
  return held[port]
end

--- What a game sees of FCEUX.
local function new_machine()
  local machine, states = {}, {}

  --- Read one byte of the console's memory.
  function machine.read(address)
    return memory.readbyte(address)
  end

  --- Read a range of bytes, both ends included, as a string.
  function machine.read_range(first, last)
    return memory.readbyterange(first, last - first + 1)
  end

  --- Write one byte.
  function machine.write(address, value)
    memory.writebyte(address, value)
  end

  --- Set a button of a player (port 1 to 4): 1 or 0. It stays until it is changed.
  function machine.set(port, name, value)
    buttons_of(port, name)[name] = value ~= 0
  end

  --- Give a button back to the player at the machine.
  function machine.clear(port, name)
    buttons_of(port, name)[name] = nil
  end

  --- Give the screen: bytes (4 a pixel), width, height, order of the bytes.
  function machine.pixels()
    local shot = gui.gdscreenshot()
    local high_width, width, high_height, height = shot:byte(3, 6)
    return shot:sub(GD_HEADER + 1), high_width * 256 + width, high_height * 256 + height, "ARGB"
  end

  function machine.save(name)
    local state = savestate.object()
    savestate.save(state)
    states[name or "coinop"] = state
  end

  function machine.load(name)
    savestate.load(states[name or "coinop"])
  end

  return machine
end

local session = boot.start({ emulator = "fceux", clock = clock, transport = transport, machine = new_machine })
emu.registerexit(function()
  session:close("the emulator was closed")
end)
emu.speedmode(boot.setting("THROTTLE") == "1" and "normal" or "nothrottle")

--- Emulate one frame, with what is held.
local function advance()
  for port, buttons in pairs(held) do
    joypad.set(port, buttons)
  end
  emu.frameadvance()
end

local settled_at, code
repeat
  advance()
  settled_at = settled_at or clock() + SETTLE_S
  code = session:frame()
until code
while clock() < settled_at do
  advance()
end
os.exit(code)

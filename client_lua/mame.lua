--- The adapter for MAME, and the script it boots with; it and mame_inventory.lua name MAME's API.
--
--   mame ... -autoboot_script /abs/client_lua/mame.lua -autoboot_delay 0
--
-- boot.lua has the settings. One is MAME's own:
--   COINOP_TRANSPORT  "file" forces MAME's own sockets where LuaSocket is installed

-- A soft reset runs this script again while the old callbacks stay: one player is enough.
if package.loaded["coinop"] then
  return
end

local here = debug.getinfo(1, "S").source:match("^@(.*[/\\])") or "./"
local boot = assert(loadfile(here .. "boot.lua"))()

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
    collectgarbage() -- MAME closes a socket when the last reference to it is collected
  end

  return transport
end

local function transport()
  if boot.setting("TRANSPORT") ~= "file" then
    local found = boot.load("luasocket").new(require)
    if found then
      return found
    end
  end
  return file_transport()
end

--- MAME would take nil for address 0: a misspelt name must not read something else.
local function no_address()
  error("the address is nil: is its name spelt right?", 3)
end

--- What a game sees of MAME. Fields, spaces and their functions are looked up once: each look-up is
-- a call into MAME.
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
      local memory = owner.spaces["program"]
      found = { memory = memory, read = memory.read_u8, read_range = memory.read_range, write = memory.write_u8 }
      spaces[device] = found
    end
    return found
  end

  --- Read one byte of a processor's memory.
  function machine.read(address, device)
    local from = space(device or ":maincpu")
    return from.read(from.memory, address or no_address())
  end

  --- Read a range of bytes, both ends included, as a string.
  function machine.read_range(first, last, device)
    local from = space(device or ":maincpu")
    return from.read_range(from.memory, first or no_address(), last or no_address(), 8)
  end

  --- Write one byte.
  function machine.write(address, value, device)
    local to = space(device or ":maincpu")
    to.write(to.memory, address or no_address(), value)
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

  --- Give the screen: bytes (4 a pixel), width, height, order of the bytes.
  function machine.pixels()
    for _, screen in pairs(running.screens) do
      local bytes, width, height = screen:pixels()
      return bytes, width, height, "BGRA"
    end
  end

  function machine.save(name)
    running:save(name or "coinop")
  end

  function machine.load(name)
    running:load(name or "coinop")
  end

  --- List the inputs and the RAM, for those who do not know them yet (see explore.lua).
  function machine.inventory()
    return boot.load("mame_inventory").list(running)
  end

  return machine
end

local session = boot.start({ emulator = "mame", clock = clock, transport = transport, machine = new_machine })
package.loaded["coinop"] = session

--- End the process. With an autoboot script MAME often crashes at a normal exit; this way it never does.
local function leave(code)
  os.exit(code, false)
end

--- Make a function that says whether the screen shows another frame than at the last call.
-- MAME tells of a frame more than once where a screen is drawn in parts: `pong` 80 times for 60.
local function new_watch()
  for _, screen in pairs(manager.machine.screens) do
    local shown
    local frame_number = screen.frame_number
    return function()
      local number, before = frame_number(screen), shown
      shown = number
      return number ~= before
    end
  end
  return function() -- no screen: every call is a frame
    return true
  end
end

-- Kept in locals of the file: MAME drops a subscription that nobody holds.
local is_new_frame = new_watch()
local subscription = emu.register_frame_done(function()
  local code = is_new_frame() and session:frame()
  if code then
    leave(code)
  end
end)
local leaving = emu.register_stop(function()
  session:close("the emulator was closed")
  leave(0)
end)

return { subscription, leaving }

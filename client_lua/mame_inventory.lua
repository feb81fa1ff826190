--- Lists what a machine in MAME offers: its inputs, and the RAM of its processor.
--
-- Lines of fields split by tabs:
--   input  port  name  kind ("analog" or "digital")  mask  low  high  default  class  player  token
--   ram    first address  last address
-- class is MAME's own ("controller", "misc", "config", ...), players count from 1, and the token is
-- MAME's name for what the input is for ("P1_BUTTON1", "COIN1", ...).

local M = {}

--- Read a property that not every version of MAME has.
local function read(object, name)
  local good, value = pcall(function()
    return object[name]
  end)
  if good and value ~= nil then
    return value
  end
  return ""
end

local function token(machine, field)
  local good, value = pcall(function()
    return machine.ioport:input_type_to_token(field.type, field.player)
  end)
  return good and value or ""
end

local function input(machine, port, name, field)
  local values = { "input", port, name, field.is_analog and "analog" or "digital", field.mask }
  for _, property in ipairs({ "minvalue", "maxvalue", "defvalue", "type_class" }) do
    values[#values + 1] = read(field, property)
  end
  values[#values + 1] = field.player + 1
  values[#values + 1] = token(machine, field)
  for place, value in ipairs(values) do
    values[place] = type(value) == "number" and ("%d"):format(value) or tostring(value)
  end
  return table.concat(values, "\t")
end

local function is_ram(entry)
  return entry.read.handlertype == "ram" and entry.write.handlertype == "ram"
end

local function add_ram(lines, machine)
  local processor = machine.devices[":maincpu"]
  local space = processor and processor.spaces["program"]
  local map = space and space.map
  for _, entry in ipairs(map and map.entries or {}) do
    if is_ram(entry) then
      lines[#lines + 1] = ("ram\t%d\t%d"):format(entry.address_start, entry.address_end)
    end
  end
end

--- Give the lines, in the same order each time.
function M.list(machine)
  local lines = {}
  for port, owner in pairs(machine.ioport.ports) do
    for name, field in pairs(owner.fields) do
      if field.enabled and not name:find("%%p") then -- a name of the source code, listed beside the real one
        lines[#lines + 1] = input(machine, port, name, field)
      end
    end
  end
  add_ram(lines, machine)
  table.sort(lines)
  return lines
end

return M

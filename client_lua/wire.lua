--- The messages of the Coinop protocol in plain Lua: values in, bytes out, and back.
--
-- docs/protocol.md is the normative text; the bytes made here equal its examples. Runs on Lua 5.1
-- to 5.4 and LuaJIT, so it uses no string.pack where there is none, and no integer operators.
--
-- A Lua table cannot say whether it is an array or a map, nor a number whether it is a float.
-- So there is no general encoder: each message writes its own fields, in order.

local M = {
  VERSION = 2,
  TERMINAL = 1, -- flags of a Frame
  TRUNCATED = 2,
  START = 4,
  POLICY = 0, -- sources of an action
  EXPLORATION = 1,
  EXPERT = 2,
  HUMAN = 3,
  SCRIPT = 4,
}

local byte, char, sub = string.byte, string.char, string.sub
local floor, concat, huge = math.floor, table.concat, math.huge
local pack, unpack_number = string.pack, string.unpack

-- Numbers ---------------------------------------------------------------------------------------

local function big_endian_by_hand(value, size)
  local bytes = {}
  for at = size, 1, -1 do
    bytes[at] = char(value % 256)
    value = floor(value / 256)
  end
  return concat(bytes)
end

local BIG_ENDIAN = { [2] = ">I2", [4] = ">I4", [8] = ">I8" }

local big_endian = pack and function(value, size)
  return pack(BIG_ENDIAN[size], value)
end or big_endian_by_hand

--- Split a finite, non-zero, positive number into an exponent and a fraction as IEEE 754 does.
local function parts(value, exponent_bias, fraction_bits)
  local mantissa, exponent = math.frexp(value)
  local biased = exponent + exponent_bias - 1
  local scaled = biased > 0 and (2 * mantissa - 1) * 2 ^ fraction_bits
    or mantissa * 2 ^ (exponent + exponent_bias - 1 + fraction_bits)
  biased = biased > 0 and biased or 0
  local fraction = floor(scaled)
  local rest = scaled - fraction
  if rest > 0.5 or (rest == 0.5 and fraction % 2 == 1) then
    fraction = fraction + 1
  end
  if fraction >= 2 ^ fraction_bits then -- rounded up to the next power of two
    return biased + 1, 0
  end
  return biased, fraction
end

--- Give the sign, exponent and fraction of any number.
local function fields(value, exponent_bias, fraction_bits)
  local largest = 2 * exponent_bias + 1
  local negative = value < 0 or (value == 0 and 1 / value < 0)
  if value ~= value then
    return 0, largest, 2 ^ (fraction_bits - 1)
  elseif value == 0 then
    return negative and 1 or 0, 0, 0
  elseif value == huge or value == -huge then
    return negative and 1 or 0, largest, 0
  end
  local exponent, fraction = parts(negative and -value or value, exponent_bias, fraction_bits)
  if exponent >= largest then
    exponent, fraction = largest, 0
  end
  return negative and 1 or 0, exponent, fraction
end

local function double_by_hand(value)
  local sign, exponent, fraction = fields(value, 1023, 52)
  return char(sign * 128 + floor(exponent / 16), exponent % 16 * 16 + floor(fraction / 2 ^ 48))
    .. big_endian_by_hand(fraction % 2 ^ 48, 6)
end

local function single_by_hand(value)
  local sign, exponent, fraction = fields(value, 127, 23)
  return char(
    fraction % 256,
    floor(fraction / 256) % 256,
    exponent % 2 * 128 + floor(fraction / 65536),
    sign * 128 + floor(exponent / 2)
  )
end

local function read_double_by_hand(data, at)
  local first, second = byte(data, at, at + 1)
  local sign = first >= 128 and -1 or 1
  local exponent = first % 128 * 16 + floor(second / 16)
  local fraction = second % 16
  for place = at + 2, at + 7 do
    fraction = fraction * 256 + byte(data, place)
  end
  if exponent == 2047 then
    return fraction == 0 and sign * huge or 0 / 0
  elseif exponent == 0 then
    return sign * math.ldexp(fraction, -1074)
  end
  return sign * math.ldexp(fraction + 2 ^ 52, exponent - 1075)
end

local read_double = unpack_number and function(data, at)
  return (unpack_number(">d", data, at))
end or read_double_by_hand

local unpack_list = table.unpack or unpack -- luacheck: ignore
local formats = {} -- of lists of float32, by their length

--- Give the bytes of a list of numbers as little-endian float32: an observation.
M.floats = pack
    and function(values)
      local size = #values
      local format = formats[size]
      if not format then
        format = "<" .. ("f"):rep(size)
        formats[size] = format
      end
      return pack(format, unpack_list(values))
    end
  or function(values)
    local bytes = {}
    for at = 1, #values do
      bytes[at] = single_by_hand(values[at])
    end
    return concat(bytes)
  end

-- To msgpack ------------------------------------------------------------------------------------

local function integer(value)
  if value >= 0 then
    if value < 128 then
      return char(value)
    elseif value < 256 then
      return "\204" .. char(value)
    elseif value < 65536 then
      return "\205" .. big_endian(value, 2)
    elseif value < 4294967296 then
      return "\206" .. big_endian(value, 4)
    end
    return "\207" .. big_endian(value, 8)
  elseif value >= -32 then
    return char(256 + value)
  elseif value >= -128 then
    return "\208" .. char(256 + value)
  elseif value >= -32768 then
    return "\209" .. big_endian(65536 + value, 2)
  elseif value >= -2147483648 then
    return "\210" .. big_endian(4294967296 + value, 4)
  end
  -- Two's complement of 64 bits: a float cannot hold 2^64 + value, so byte by byte.
  local rest, bytes = -value - 1, {}
  for at = 8, 1, -1 do
    bytes[at] = char(255 - rest % 256)
    rest = floor(rest / 256)
  end
  return "\211" .. concat(bytes)
end

local float = pack and function(value)
  return pack(">Bd", 203, value)
end or function(value)
  return "\203" .. double_by_hand(value)
end

local function text(value)
  local size = #value
  if size < 32 then
    return char(160 + size) .. value
  elseif size < 256 then
    return "\217" .. char(size) .. value
  end
  return "\218" .. big_endian(size, 2) .. value
end

local function binary(value)
  local size = #value
  if size < 256 then
    return "\196" .. char(size) .. value
  elseif size < 65536 then
    return "\197" .. big_endian(size, 2) .. value
  end
  return "\198" .. big_endian(size, 4) .. value
end

local function boolean(value)
  return value and "\195" or "\194"
end

local function array_head(size)
  return size < 16 and char(144 + size) or "\220" .. big_endian(size, 2)
end

local function map_head(size)
  return size < 16 and char(128 + size) or "\222" .. big_endian(size, 2)
end

local function array(values, encode)
  local bytes = { array_head(#values) }
  for at = 1, #values do
    bytes[at + 1] = encode(values[at])
  end
  return concat(bytes)
end

--- Write a number as an integer if it is one: the only guess here, for info and settings.
local function number(value)
  if value == floor(value) and value > -2 ^ 53 and value < 2 ^ 53 then
    return integer(value)
  end
  return float(value)
end

local writers = { number = number, string = text, boolean = boolean }

--- Write a list of {name, value} pairs as a map; a list, because a Lua table has no order.
local function pairs_map(entries)
  local bytes = { map_head(#entries) }
  for at = 1, #entries do
    local name, value = entries[at][1], entries[at][2]
    local write = writers[type(value)]
    if not write then
      error("info '" .. tostring(name) .. "' must be a number, a text or a boolean, not a " .. type(value))
    end
    bytes[at + 1] = text(name) .. write(value)
  end
  return concat(bytes)
end

local function choice(value)
  return array(value.discrete, integer) .. array(value.continuous, float)
end

-- Messages --------------------------------------------------------------------------------------

local framed = pack and function(payload)
  return pack("<s4", payload)
end or function(payload)
  local size = #payload
  return char(size % 256, floor(size / 256) % 256, floor(size / 65536) % 256, floor(size / 16777216))
    .. payload
end

local function discrete_control(control)
  return "\146" .. text(control.name) .. integer(control.choices)
end

local function continuous_control(control)
  return "\147" .. text(control.name) .. float(control.low) .. float(control.high)
end

--- Give the bytes of a hello.
function M.hello(hello)
  local actions = "\131"
    .. text("discrete") .. array(hello.actions.discrete or {}, discrete_control)
    .. text("continuous") .. array(hello.actions.continuous or {}, continuous_control)
    .. text("joint") .. boolean(hello.actions.joint)
  local observation = "\130"
    .. text("dtype") .. text(hello.observation.dtype)
    .. text("shape") .. array(hello.observation.shape, integer)
  local evaluate = hello.evaluate and text("evaluate") .. boolean(true) or ""
  return framed(char(138 + (hello.evaluate and 1 or 0))
    .. text("type") .. text("hello")
    .. text("version") .. integer(M.VERSION)
    .. text("client") .. array({ hello.client, hello.client_version }, text)
    .. text("game") .. text(hello.game)
    .. text("agent") .. text(hello.agent or "")
    .. text("observation") .. observation
    .. text("actions") .. actions
    .. text("rewards") .. array(hello.rewards, text)
    .. text("nonce") .. binary(hello.nonce or "")
    .. text("resume") .. text(hello.resume or "")
    .. evaluate)
end

--- Give the bytes of a proof: the answer to a challenge.
function M.proof(proof)
  return framed("\130" .. text("type") .. text("proof") .. text("proof") .. binary(proof))
end

--- Write the usual Frame, of one reward and nothing optional, with one call; nil for another.
local usual_frame = pack
    and function(frame, rewards, observation)
      local sequence, size = frame.sequence, #observation
      if sequence < 256 or sequence > 4294967295 or size > 255 or #rewards ~= 1 then
        return nil
      elseif sequence < 65536 then
        return pack("<I4>BBI2BBBdBs1", 17 + size, 148, 205, sequence, frame.flags, 145, 203, rewards[1], 196,
          observation)
      end
      return pack("<I4>BBI4BBBdBs1", 19 + size, 148, 206, sequence, frame.flags, 145, 203, rewards[1], 196,
        observation)
    end
  or function() end

--- Give the bytes of a Frame: sequence, flags, rewards, observation (a string), and optionally
-- executed {source, discrete, continuous}, expert {discrete, continuous}, info {{name, value}...}.
function M.frame(frame)
  local size = frame.info and 7 or frame.expert and 6 or frame.executed and 5 or 4
  local usual = size == 4 and usual_frame(frame, frame.rewards, frame.observation)
  if usual then
    return usual
  end
  local bytes = char(144 + size)
    .. integer(frame.sequence)
    .. integer(frame.flags)
    .. array(frame.rewards, float)
    .. binary(frame.observation)
  if size == 4 then
    return framed(bytes)
  end
  local executed = frame.executed
  bytes = bytes .. (executed and "\147" .. integer(executed.source) .. choice(executed) or "\192")
  if size > 5 then
    bytes = bytes .. (frame.expert and "\146" .. choice(frame.expert) or "\192")
  end
  if size > 6 then
    bytes = bytes .. pairs_map(frame.info)
  end
  return framed(bytes)
end

--- Give the bytes of a preview: a picture of the screen, its pixels as a string of RGB.
function M.preview(width, height, pixels)
  return framed("\132"
    .. text("type") .. text("preview")
    .. text("width") .. integer(width)
    .. text("height") .. integer(height)
    .. text("pixels") .. binary(pixels))
end

--- Give the bytes of a ping or a pong.
function M.signal(kind)
  return framed("\129" .. text("type") .. text(kind))
end

--- Give the bytes of a bye or an error.
function M.farewell(kind, reason)
  return framed("\130" .. text("type") .. text(kind) .. text("reason") .. text(reason))
end

-- From msgpack ----------------------------------------------------------------------------------

local read -- the reader of any value: (data, at) to value, next place

local function unsigned(size)
  return function(data, at)
    local value = 0
    for place = at, at + size - 1 do
      value = value * 256 + byte(data, place)
    end
    return value, at + size
  end
end

local function signed(size)
  local plain, half, full = unsigned(size), 256 ^ size / 2, 256 ^ size
  return function(data, at)
    local value, following = plain(data, at)
    if value >= half then
      value = value - full
    end
    return value, following
  end
end

--- Read eight bytes of two's complement without leaving what a float holds exactly.
local function signed_64(data, at)
  if byte(data, at) < 128 then
    return unsigned(8)(data, at)
  end
  local rest = 0
  for place = at, at + 7 do
    rest = rest * 256 + (255 - byte(data, place))
  end
  return -rest - 1, at + 8
end

local function string_of(size, data, at)
  if at + size - 1 > #data then
    error("a text is cut short")
  end
  return sub(data, at, at + size - 1), at + size
end

local function array_of(size, data, at)
  local values = {}
  for place = 1, size do
    values[place], at = read(data, at)
  end
  return values, at
end

local function map_of(size, data, at)
  local values = {}
  for _ = 1, size do
    local key, value
    key, at = read(data, at)
    value, at = read(data, at)
    values[key] = value
  end
  return values, at
end

local function sized(size_bytes, reader)
  local read_size = unsigned(size_bytes)
  return function(data, at)
    local size, following = read_size(data, at)
    return reader(size, data, following)
  end
end

local function constant(value)
  return function(_, at)
    return value, at
  end
end

local readers = {
  [192] = constant(nil),
  [194] = constant(false),
  [195] = constant(true),
  [196] = sized(1, string_of),
  [197] = sized(2, string_of),
  [198] = sized(4, string_of),
  [203] = function(data, at)
    return read_double(data, at), at + 8
  end,
  [204] = unsigned(1),
  [205] = unsigned(2),
  [206] = unsigned(4),
  [207] = unsigned(8),
  [208] = signed(1),
  [209] = signed(2),
  [210] = signed(4),
  [211] = signed_64,
  [217] = sized(1, string_of),
  [218] = sized(2, string_of),
  [219] = sized(4, string_of),
  [220] = sized(2, array_of),
  [221] = sized(4, array_of),
  [222] = sized(2, map_of),
  [223] = sized(4, map_of),
}

function read(data, at)
  local kind = byte(data, at)
  if not kind then
    error("a message is cut short")
  elseif kind < 128 then
    return kind, at + 1
  elseif kind < 144 then
    return map_of(kind - 128, data, at + 1)
  elseif kind < 160 then
    return array_of(kind - 144, data, at + 1)
  elseif kind < 192 then
    return string_of(kind - 160, data, at + 1)
  elseif kind >= 224 then
    return kind - 256, at + 1
  end
  local reader = readers[kind]
  if not reader then
    error("a message holds a value of an unknown kind: " .. kind)
  end
  return reader(data, at + 1)
end

--- Give the value of a payload, or nil and what is wrong with it.
function M.decode(payload)
  local good, value, following = pcall(read, payload, 1)
  if not good then
    return nil, tostring(value)
  elseif following ~= #payload + 1 then
    return nil, "a message goes on after its end"
  end
  return value
end

--- Give the length that the first four bytes of a message announce.
function M.length(data)
  local a, b, c, d = byte(data, 1, 4)
  return a + b * 256 + c * 65536 + d * 16777216
end

return M

--- How the client and the server show each other that they know the token, without sending it.
--
-- HMAC-SHA256 (RFC 2104, FIPS 180-4) in plain Lua, for 5.1 to 5.4 and LuaJIT: without operators or
-- libraries on bits, which they do not share. A proof takes some milliseconds, once a connection.

local M = { NONCE_BYTES = 32 }

local byte, char, floor, concat = string.byte, string.char, math.floor, table.concat
local FULL = 2 ^ 32
local BLOCK_BYTES = 64

local AND = {} -- of two numbers from 0 to 15, at 16 times the one plus the other
for one = 0, 15 do
  for other = 0, 15 do
    local result, place = 0, 1
    local a, b = one, other
    for _ = 1, 4 do
      if a % 2 == 1 and b % 2 == 1 then
        result = result + place
      end
      a, b, place = floor(a / 2), floor(b / 2), place * 2
    end
    AND[one * 16 + other] = result
  end
end

local function both(a, b)
  local result, place = 0, 1
  for _ = 1, 8 do
    local x, y = a % 16, b % 16
    result = result + AND[x * 16 + y] * place
    a, b, place = (a - x) / 16, (b - y) / 16, place * 16
  end
  return result
end

local function differ(a, b) -- xor: what is in one of them, and not in both
  return a + b - 2 * both(a, b)
end

local function turned(value, places) -- to the right, what falls out comes in on the left
  local low = value % 2 ^ places
  return (value - low) / 2 ^ places + low * 2 ^ (32 - places)
end

local function shifted(value, places)
  return floor(value / 2 ^ places)
end

--- Give the first 32 bits of the fraction of a prime's root: the constants of SHA-256.
local function fraction(prime, power)
  local root = prime ^ power
  return floor((root - floor(root)) * FULL)
end

local ROUND, START = {}, {}
local candidate = 2
while #ROUND < 64 do
  local prime = true
  for divisor = 2, floor(candidate ^ 0.5) do
    prime = prime and candidate % divisor ~= 0
  end
  if prime then
    ROUND[#ROUND + 1] = fraction(candidate, 1 / 3)
    if #START < 8 then
      START[#START + 1] = fraction(candidate, 1 / 2)
    end
  end
  candidate = candidate + 1
end

local function schedule(data, at)
  local words = {}
  for place = 1, 16 do
    local a, b, c, d = byte(data, at + 4 * place - 4, at + 4 * place - 1)
    words[place] = ((a * 256 + b) * 256 + c) * 256 + d
  end
  for place = 17, 64 do
    local early, late = words[place - 15], words[place - 2]
    local first = differ(differ(turned(early, 7), turned(early, 18)), shifted(early, 3))
    local second = differ(differ(turned(late, 17), turned(late, 19)), shifted(late, 10))
    words[place] = (words[place - 16] + first + words[place - 7] + second) % FULL
  end
  return words
end

local function take_block(state, data, at)
  local words = schedule(data, at)
  local a, b, c, d, e, f, g, h = state[1], state[2], state[3], state[4], state[5], state[6], state[7], state[8]
  for round = 1, 64 do
    local sum = differ(differ(turned(e, 6), turned(e, 11)), turned(e, 25))
    local choice = both(e, f) + both(FULL - 1 - e, g)
    local first = (h + sum + choice + ROUND[round] + words[round]) % FULL
    sum = differ(differ(turned(a, 2), turned(a, 13)), turned(a, 22))
    local majority = both(a, b) + both(c, differ(a, b))
    h, g, f, e, d, c, b, a = g, f, e, (d + first) % FULL, c, b, a, (first + sum + majority) % FULL
  end
  for place, value in ipairs({ a, b, c, d, e, f, g, h }) do
    state[place] = (state[place] + value) % FULL
  end
end

local function big_endian(value, size)
  local bytes = {}
  for at = size, 1, -1 do
    bytes[at] = char(value % 256)
    value = floor(value / 256)
  end
  return concat(bytes)
end

--- Give the SHA-256 of a string: 32 bytes.
function M.sha256(data)
  local zeros = (BLOCK_BYTES - 9 - #data) % BLOCK_BYTES
  local padded = data .. "\128" .. ("\0"):rep(zeros) .. big_endian(#data * 8, 8)
  local state = { START[1], START[2], START[3], START[4], START[5], START[6], START[7], START[8] }
  for at = 1, #padded, BLOCK_BYTES do
    take_block(state, padded, at)
  end
  for place = 1, 8 do
    state[place] = big_endian(state[place], 4)
  end
  return concat(state)
end

--- Give the HMAC-SHA256 of a string: 32 bytes.
function M.hmac(key, data)
  if #key > BLOCK_BYTES then
    key = M.sha256(key)
  end
  key = key .. ("\0"):rep(BLOCK_BYTES - #key)
  local function masked(mask)
    return (key:gsub(".", function(one)
      return char(differ(byte(one), mask))
    end))
  end
  return M.sha256(masked(92) .. M.sha256(masked(54) .. data))
end

--- Give what we answer to a challenge; the hello is the payload that was sent.
function M.by_client(token, nonce, hello)
  return M.hmac(token, "coinop client\0" .. nonce .. hello)
end

--- Give what the server must show in its welcome.
function M.by_server(token, nonce, hello)
  return M.hmac(token, "coinop server\0" .. nonce .. hello)
end

--- Compare two proofs in a time that does not tell how much of them is equal.
function M.equal(shown, expected)
  if type(shown) ~= "string" or #shown ~= #expected then
    return false
  end
  local wrong = 0
  for at = 1, #expected do
    wrong = wrong + differ(byte(shown, at), byte(expected, at))
  end
  return wrong == 0
end

local made = 0

--- Give bytes that nobody has seen before: from the system, or where it has none, from what there is.
-- The clock is the adapter's. Only the system's are beyond guessing.
function M.nonce(clock)
  local source = io.open("/dev/urandom", "rb")
  local bytes = source and source:read(M.NONCE_BYTES)
  if source then
    source:close()
  end
  if bytes and #bytes == M.NONCE_BYTES then
    return bytes
  end
  made = made + 1
  return M.sha256(concat({ os.time(), os.clock(), clock(), tostring({}), made }, " "))
end

return M

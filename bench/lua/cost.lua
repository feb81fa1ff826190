--- Times what the Lua client does in one frame, inside MAME: the real scripts, a fake LuaSocket.
--
-- The environment gives BENCH_CLIENT, the path of the client's boot script, and what the fake
-- server says, in hexadecimal: BENCH_WELCOME, and BENCH_ACTION with the number SEQUENCE in it,
-- written in five bytes. Prints "NAME MICROSECONDS" for each figure, and ends MAME.

local BATCHES, TIMES = 501, 10
local SEQUENCE = "\206\255\255\255\255"

local function bytes(name)
  return (os.getenv(name):gsub("%x%x", function(digits)
    return string.char(tonumber(digits, 16))
  end))
end

--- Give the answers to all frames; made beforehand, so that they cost nothing later.
local function answers(count)
  local action, all = bytes("BENCH_ACTION"), {}
  local at = action:find(SEQUENCE, 1, true)
  local head, tail = action:sub(1, at), action:sub(at + #SEQUENCE)
  for number = 0, count do
    all[number] = head .. string.char(0, 0, math.floor(number / 256) % 256, number % 256) .. tail
  end
  return all
end

--- A LuaSocket whose other side answers at once: first the hello, then each frame.
local function fake_socket()
  local waiting, told, replies = "", -1, answers(2 * BATCHES * TIMES)
  local peer = {}

  function peer.send(_, data)
    waiting = waiting .. (told < 0 and bytes("BENCH_WELCOME") or replies[told])
    told = told + 1
    return #data
  end

  function peer.receive(_, size)
    local data = waiting:sub(1, size)
    waiting = waiting:sub(#data + 1)
    if #data == size then
      return data
    end
    return nil, "timeout", data
  end

  for _, name in ipairs({ "connect", "settimeout", "setoption", "close" }) do
    peer[name] = function()
      return 1
    end
  end
  return {
    tcp = function()
      return peer
    end,
    sleep = function() end,
  }
end

--- Print the median over many short batches: whoever else wants the core spoils only a few.
local function measure(name, work)
  local spent = {}
  for batch = 1, BATCHES do
    local began = emu.osd_ticks()
    for _ = 1, TIMES do
      work()
    end
    spent[batch] = emu.osd_ticks() - began
  end
  table.sort(spent)
  local seconds = spent[math.ceil(BATCHES / 2)] / emu.osd_ticks_per_second()
  io.stdout:write(name, " ", seconds / TIMES * 1e6, "\n")
end

--- Time the parts of a frame, and the whole.
local function measure_all(player)
  local game, machine, wire, state = player.game, player.machine, player.wire, player.state
  local values, rewards = game.observation.read(machine, state), game.reward(machine, state)
  local info, payload = game.info(machine, state), bytes("BENCH_ACTION"):sub(5)
  measure("lua_features_us", function()
    game.observation.read(machine, state)
    game.reward(machine, state)
    game.episode.over(machine, state)
    game.info(machine, state)
  end)
  measure("lua_encode_us", function()
    local observation = wire.floats(values)
    wire.frame({ sequence = 70000, flags = 0, rewards = rewards, observation = observation, info = info })
  end)
  measure("lua_decode_us", function()
    wire.decode(payload)
  end)
  measure("lua_us", function()
    player:frame()
  end)
  io.stdout:flush()
end

package.loaded["socket.core"] = fake_socket()
local client = assert(loadfile(os.getenv("BENCH_CLIENT")))()

local subscription = emu.register_frame_done(function()
  local player = package.loaded["coinop"].player
  if player.phase == player.playing then
    measure_all(player)
    os.exit(0, false)
  end
end)

return { client, subscription }

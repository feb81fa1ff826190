--- Catch, our own game for the NES (catch.c): a basket under falling apples.
--
-- The cartridge keeps all there is to know in bytes from $0500 on; catch.c says what they are.

local PHASE, BASKET_X, APPLE_X, APPLE_Y, DRIFT, SPEED, SCORE, MISSES = 1, 2, 3, 4, 5, 6, 7, 8 -- places in STATE
local STATE, STATE_END = 0x0500, 0x0507
local SEED = 0x0509 -- two bytes
local PLAYING = 1
local START_FROM, START_UNTIL = 30, 36 -- frames after power-on
local APPLE_TO_BASKET = 8 -- from an apple's left edge to a basket's that is right below it

local function clip(value)
  return value < -1 and -1 or value > 1 and 1 or value
end

--- Give all bytes of the game's state.
local function bytes(machine)
  return { machine.read_range(STATE, STATE_END):byte(1, -1) }
end

local function observe(machine)
  local now = bytes(machine)
  local basket = (now[BASKET_X] - 116) / 108
  local falling, speed = now[APPLE_Y] > 0, (now[SPEED] - 32) / 8
  if not falling then
    return { basket, 0, 0, 0, 0, speed, 0 }
  end
  local aside = now[APPLE_X] - APPLE_TO_BASKET - now[BASKET_X]
  local drift = now[DRIFT] > 127 and now[DRIFT] - 256 or now[DRIFT]
  return { basket, clip(aside / 108), clip(aside / 24), (now[APPLE_Y] - 116) / 84, drift, speed, 1 }
end

return {
  name = "catch",
  frame_skip = 4,
  inputs = {
    fceux = { left = { 1, "left" }, right = { 1, "right" }, start = { 1, "start" } },
    mame = {
      left = { ":ctrl1:joypad:JOYPAD", "P1 Left" },
      right = { ":ctrl1:joypad:JOYPAD", "P1 Right" },
      start = { ":ctrl1:joypad:JOYPAD", "P1 Start" },
    },
  },
  observation = { dtype = "float32", shape = { 7 }, read = observe },
  actions = {
    discrete = { { name = "move", choices = 3 } }, -- stay, left, right
    apply = function(machine, action)
      local move = action.discrete[1]
      machine.press("left", move == 1 and 1 or 0)
      machine.press("right", move == 2 and 1 or 0)
    end,
    release = function(machine)
      machine.release()
    end,
  },
  rewards = { "catches", "misses" },
  reward = function(machine, state)
    local now, before = bytes(machine), state.before
    state.before = now
    return { now[SCORE] - before[SCORE], before[MISSES] - now[MISSES] }
  end,
  episode = {
    ready = function(machine, frame)
      machine.press("start", frame >= START_FROM and frame < START_UNTIL and 1 or 0)
      return frame >= START_UNTIL and machine.read(STATE) == PLAYING
    end,
    -- The first apple is not drawn yet: the seed decides on all of them.
    begin = function(machine, state)
      machine.write(SEED, machine.random(255))
      machine.write(SEED + 1, machine.random(255))
      state.before = bytes(machine)
    end,
    over = function(_, state)
      if state.before[PHASE] ~= PLAYING then
        return "terminal"
      end
    end,
    idle_frames = 20, -- of the 48 before the first apple
  },
  info = function(_, state)
    return { { "score", state.before[SCORE] }, { "misses", state.before[MISSES] } }
  end,
}

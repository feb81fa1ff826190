--- Atari 2600 Space Invaders: the console's 128 bytes of RAM, read from MAME's `a2600`.
--
-- RAM offsets from 0x80; they are those of ALE. Six rows of six invaders; a row is a byte, its low
-- bit the leftmost invader, the first byte the lowest row. At most one own shot and two bombs fly.
-- After a hit the game plays on alone for three seconds: there are no decisions then.
--
-- Sees:   own place and speed; the invaders' place, way and number; lives; the saucer; own shot;
--         the two bombs, the lower one first; how far aside each column of invaders is and how many
--         of it live; what is left of the three shields
-- Does:   move (stay, right, left) and fire (no, yes)
-- Earns:  score  points / 10, so that an invader is worth 0.5 to 3
--         life   -1 for each life, at the hit; the game counts it two seconds later
-- Ends:   with the last of three lives, or when the invaders have landed

local RAM = 0x80
local INVADERS_Y, INVADERS_LEFT, ROWS, WAY, INVADERS_X, OWN_X, SAUCER_X = 16, 17, 18, 24, 26, 28, 30
local PHASE, SHIELDS, LIVES = 42, 43, 73
local BOMBS_Y, BOMBS_X, SHOT_Y, SHOT_X = 81, 83, 85, 87 -- two bombs, one after the other
local SCORE_HUNDREDS, SCORE = 102, 104

local COLUMNS, COLUMN_PITCH = 6, 16
local SHIELD_COUNT, SHIELD_BYTES, SHIELD_BITS = 3, 9, 56
local NO_SHOT, NO_SAUCER = 246, 180 -- in the place of a shot's y, of the saucer's x
local PLAY, HIT = 0, 4 -- phases
local POINTS = 10 -- worth 1
local SCORE_END = 10000 -- the counter starts again here
local LONGEST = 108000 -- frames: half an hour
local RESET_FROM, RESET_UNTIL, READY = 30, 40, 200 -- frames after power-on; it waits for 128 of them

local bits_in = {}
for value = 0, 255 do
  bits_in[value] = value % 2 + (bits_in[math.floor(value / 2)] or 0)
end

local function clip(value)
  return value < -1 and -1 or value > 1 and 1 or value
end

local function decimal(byte)
  return math.floor(byte / 16) * 10 + byte % 16
end

local function at(machine, offset)
  return machine.read(RAM + offset)
end

local function score(machine)
  return decimal(at(machine, SCORE)) + 100 * decimal(at(machine, SCORE_HUNDREDS))
end

--- Say whether something flies, how far aside of the player it is, and how low.
local function add_flying(values, x, y, own_x)
  if y == NO_SHOT then
    x, y = own_x, 0
  end
  values[#values + 1] = y > 0 and 1 or 0
  values[#values + 1] = clip((x - own_x) / 40)
  values[#values + 1] = y / 128
end

--- Say for each column of invaders how far aside of the player it is, and how many live.
local function add_columns(values, ram, own_x)
  local left = ram[INVADERS_X]
  for column = 0, COLUMNS - 1 do
    local alive = 0
    for row = ROWS, ROWS + 5 do
      alive = alive + math.floor(ram[row] / 2 ^ column) % 2
    end
    local aside = left + COLUMN_PITCH * column - own_x
    values[#values + 1] = alive > 0 and clip(aside / 40) or 0
    values[#values + 1] = alive / 6
  end
end

local function add_shields(values, ram)
  for shield = 0, SHIELD_COUNT - 1 do
    local bits, first = 0, SHIELDS + SHIELD_BYTES * shield
    for place = first, first + SHIELD_BYTES - 1 do
      bits = bits + bits_in[ram[place]]
    end
    values[#values + 1] = bits / SHIELD_BITS
  end
end

--- Give the RAM as a table of bytes by offset.
local function read_ram(machine)
  local ram = { machine.read_range(RAM, RAM + 127):byte(1, -1) }
  ram[0] = table.remove(ram, 1)
  return ram
end

local function observe(machine, state)
  local ram = read_ram(machine)
  local own_x = ram[OWN_X]
  local speed = own_x - (state.own_x or own_x)
  state.own_x = own_x
  local values = {
    (own_x - 76) / 41,
    clip(speed / 8),
    (ram[INVADERS_X] - 40) / 40,
    ram[INVADERS_Y] / 40,
    math.floor(ram[WAY] / 2) % 2 == 1 and 1 or -1,
    ram[INVADERS_LEFT] / 36,
    ram[LIVES] / 3,
    ram[SAUCER_X] ~= NO_SAUCER and 1 or 0,
    ram[SAUCER_X] ~= NO_SAUCER and clip((ram[SAUCER_X] - own_x) / 80) or 0,
  }
  local muzzle = own_x + 4 -- where shots leave, on the scale of their own places
  add_flying(values, ram[SHOT_X], ram[SHOT_Y], muzzle)
  -- The game moves a bomb from one place to the other now and then: the lower one comes first here.
  local first, second = 0, 1
  local y_1, y_2 = ram[BOMBS_Y], ram[BOMBS_Y + 1]
  if y_1 == NO_SHOT or y_2 ~= NO_SHOT and y_2 > y_1 then
    first, second = 1, 0
  end
  add_flying(values, ram[BOMBS_X + first], ram[BOMBS_Y + first], muzzle)
  add_flying(values, ram[BOMBS_X + second], ram[BOMBS_Y + second], muzzle)
  add_columns(values, ram, own_x)
  add_shields(values, ram)
  return values
end

return {
  name = "spaceinvaders2600",
  frame_skip = 4,
  decide = function(machine)
    return at(machine, PHASE) == PLAY
  end,
  inputs = {
    mame = {
      right = { ":joyport1:joy:JOY", "P1 Right" },
      left = { ":joyport1:joy:JOY", "P1 Left" },
      fire = { ":joyport1:joy:JOY", "P1 Button 1" },
      reset = { ":SWB", "Reset Game" },
    },
  },
  observation = { dtype = "float32", shape = { 33 }, read = observe },
  actions = {
    discrete = { { name = "move", choices = 3 }, { name = "fire", choices = 2 } },
    apply = function(machine, action)
      local move = action.discrete[1]
      machine.press("right", move == 1 and 1 or 0)
      machine.press("left", move == 2 and 1 or 0)
      machine.press("fire", action.discrete[2])
    end,
    release = function(machine)
      machine.release()
    end,
  },
  rewards = { "score", "life" },
  reward = function(machine, state)
    local now, phase = score(machine), at(machine, PHASE)
    local earned, is_hit = (now - state.score) % SCORE_END, phase == HIT and state.phase ~= HIT
    state.score, state.phase = now, phase
    return { earned / POINTS, is_hit and -1 or 0 }
  end,
  episode = {
    ready = function(machine, frame)
      machine.press("reset", frame >= RESET_FROM and frame < RESET_UNTIL and 1 or 0)
      return frame >= READY
    end,
    begin = function(machine, state)
      state.score, state.frames = score(machine), 0
    end,
    over = function(machine, state)
      state.frames = state.frames + 1
      if at(machine, LIVES) == 0 or at(machine, WAY) >= 128 then
        return "terminal"
      end
      return state.frames >= LONGEST and "truncated" or nil
    end,
  },
  info = function(machine)
    return { { "score", score(machine) }, { "lives", at(machine, LIVES) } }
  end,
}

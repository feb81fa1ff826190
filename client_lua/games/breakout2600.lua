--- Atari 2600 Breakout with its paddle: the console's 128 bytes of RAM, read from MAME's `a2600`.
--
-- RAM offsets from 0x80; they are those of ALE. The script serves: waiting for a ball teaches
-- nothing, and a policy that does not press the button would wait for ever.
--
-- Sees:   ball and its speed, paddle, its speed and width, ball right of the paddle, no ball,
--         lives, the share of bricks left in each of the six rows, the lowest first
-- Does:   turn, how far the paddle goes in this decision, positive to the right. Not where it
--         goes: then only the one decision when the ball comes down would count, and is hard to find
-- Earns:  score  points: 1, 4 or 7 for a brick
--         ball   -1 for each ball lost
-- Ends:   with the last of five balls

local RAM = 0x80
local LIVES, PADDLE_X, SCORE_HUNDREDS, SCORE = 57, 72, 76, 77
local BALL_X, BALL_Y, HALF_WIDTH = 99, 101, 108

-- The bricks: RAM 0 to 35 are six playfield registers of six bytes, one for each row.
local ROWS, REGISTERS, BRICKS_IN_ROW = 6, 6, 18
local HALF_REGISTER = 2 -- the one whose low four bits are no bricks
local JUMP = 48 -- no ball moves this far in one decision: it is a new ball
local LONGEST = 108000 -- frames: half an hour, for a ball that meets no brick any more
local RESET_FROM, RESET_UNTIL, READY = 30, 40, 120 -- frames after power-on

-- The knob turns against the paddle: the paddle's place is so much less the knob's.
local KNOB_FROM, LEFTMOST, RIGHTMOST = 281, 55, 191
local MOST_TURN = 24

-- How many bricks a register holds: each is two bits, and both go at once.
local bricks_in = {}
for value = 0, 255 do
  local count = 0
  for _, bit in ipairs({ 2, 8, 32, 128 }) do
    count = count + math.floor(value / bit) % 2
  end
  bricks_in[value] = count
end

local function clip(value)
  return value < -1 and -1 or value > 1 and 1 or value
end

local function at(machine, offset)
  return machine.read(RAM + offset)
end

local function decimal(byte)
  return math.floor(byte / 16) * 10 + byte % 16
end

local function score(machine)
  return decimal(at(machine, SCORE)) + 100 * (at(machine, SCORE_HUNDREDS) % 16)
end

--- Add the share of bricks left in each row, the bottom one first.
local function add_wall(values, ram)
  for row = 1, ROWS do
    local count = 0
    for register = 0, REGISTERS - 1 do
      local byte = ram:byte(register * ROWS + row)
      count = count + bricks_in[register == HALF_REGISTER and byte - byte % 16 or byte]
    end
    values[#values + 1] = count / BRICKS_IN_ROW
  end
end

local function observe(machine, state)
  local ram = machine.read_range(RAM, RAM + 127)
  local ball_x, ball_y, paddle_x, half_width =
    ram:byte(BALL_X + 1), ram:byte(BALL_Y + 1), ram:byte(PADDLE_X + 1), ram:byte(HALF_WIDTH + 1)
  local middle = paddle_x + half_width + 1 -- of the paddle, on the ball's scale
  local old = state.before or { ball_x = ball_x, ball_y = ball_y, paddle_x = paddle_x }
  state.before = { ball_x = ball_x, ball_y = ball_y, paddle_x = paddle_x }
  local dx, dy = ball_x - old.ball_x, ball_y - old.ball_y
  if old.ball_y == 0 or dx > JUMP or dx < -JUMP or dy > JUMP or dy < -JUMP then
    dx, dy = 0, 0
  end
  local here = ball_y ~= 0 and 1 or 0
  local values = {
    here * (ball_x - 128) / 72,
    here * (ball_y - 115) / 95,
    here * clip(dx / 16),
    here * clip(dy / 16),
    clip((middle - 128) / 72),
    clip((paddle_x - old.paddle_x) / 24),
    half_width / 8,
    here * clip((ball_x - middle) / 40),
    1 - here,
    ram:byte(LIVES + 1) / 5,
  }
  add_wall(values, ram)
  return values
end

return {
  name = "breakout2600",
  frame_skip = 4,
  inputs = {
    mame = {
      knob = { ":joyport1:pad:POTX", "Paddle" },
      button = { ":joyport1:pad:JOY", "P1 Button 1" },
      reset = { ":SWB", "Reset Game" },
    },
  },
  observation = { dtype = "float32", shape = { 16 }, read = observe },
  actions = {
    continuous = { { name = "turn", low = -MOST_TURN, high = MOST_TURN } },
    apply = function(machine, action)
      local goal = at(machine, PADDLE_X) + math.floor(action.continuous[1] + 0.5)
      machine.press("knob", KNOB_FROM - math.max(LEFTMOST, math.min(RIGHTMOST, goal)))
      machine.press("button", at(machine, BALL_Y) == 0 and 1 or 0)
    end,
    release = function(machine)
      machine.release()
    end,
  },
  rewards = { "score", "ball" },
  reward = function(machine, state)
    local now, lives = score(machine), at(machine, LIVES)
    local earned, lost = now - state.score, state.lives - lives
    state.score, state.lives = now, lives
    return { earned, -lost }
  end,
  episode = {
    ready = function(machine, frame)
      machine.press("reset", frame >= RESET_FROM and frame < RESET_UNTIL and 1 or 0)
      return frame >= READY
    end,
    begin = function(machine, state)
      state.score, state.lives, state.frames = score(machine), at(machine, LIVES), 0
    end,
    over = function(machine, state)
      state.frames = state.frames + 1
      if at(machine, LIVES) == 0 then
        return "terminal"
      end
      return state.frames >= LONGEST and "truncated" or nil
    end,
  },
  info = function(machine)
    return { { "score", score(machine) }, { "lives", at(machine, LIVES) } }
  end,
}

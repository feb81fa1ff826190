--- Pong (Atari 1972), the arcade machine: MAME's `pong` emulates its chips one by one, without a ROM.
--
-- There is no processor and no RAM: all is read from the screen of 1552 x 240 pixels. The machine
-- is for two players; the right paddle is the agent's, the left one is played from here by a rule
-- that is too slow for steep balls. Looking costs time, so it is done once for each decision.
--
-- Sees:   own and enemy paddle, ball, its speed, the paddles' speeds, how far the ball is below the
--         own paddle, no ball: what pong2600 sees, in the same order
-- Does:   turn, how far the knob turns in this decision; positive moves the paddle down
-- Earns:  points  1 for each won, -1 for each lost
-- Ends:   with 11 points for either, which ends the machine's own game

local FRAME_SKIP = 4
local WON = 11
local LONGEST = 36000 -- frames: ten minutes, for a rally that never ends
local COIN_FROM, COIN_UNTIL, READY = 20, 30, 60 -- frames after power-on

-- The screen: what is where, found by looking at it.
local WIDTH, LOWEST = 1552, 239
local WHITE, GREY = 255, 199 -- ball, paddles and net; digits
local OWN_X, ENEMY_X = 1255, 232 -- in the middle of the paddles
local PADDLE_HEIGHT, BALL_HEIGHT, BALL_WIDTH = 14, 4, 15
local SERVE_X, MIDDLE_Y = 770, 120
-- Between these columns nothing is white but the ball: walls, paddles and the net are left out.
local FREE = { { 0, 224 }, { 239, 736 }, { 743, 1247 }, { 1262, 1551 } }
local OWN_DIGIT_X, ENEMY_DIGIT_X, TENS = 1183, 415, -74 -- left edges of the units; from there to a ten

-- Segments of a digit: from its left edge, down the screen, and what each adds to a sum.
local SEGMENTS = {
  { 31, 18, 1 }, -- top
  { 55, 24, 2 }, -- upper right
  { 55, 40, 4 }, -- lower right
  { 31, 45, 8 }, -- bottom
  { 7, 40, 16 }, -- lower left
  { 7, 24, 32 }, -- upper left
  { 31, 30, 64 }, -- middle
}
-- The sums of the digits; the 7448 draws 6 without a top and 9 without a bottom.
local DIGITS = {
  [63] = 0, [6] = 1, [91] = 2, [79] = 3, [102] = 4, [109] = 5, [124] = 6, [7] = 7, [127] = 8, [103] = 9,
}

-- The knobs: a higher value is a higher paddle, and beyond these ends nothing moves.
local LOWEST_KNOB, MIDDLE_KNOB, HIGHEST_KNOB = 44, 112, 222
local MOST_TURN = 24 -- of the agent, in one decision
local ENEMY_TURN = 1 -- in one frame: slower than steep balls

-- Looking ---------------------------------------------------------------------------------------

--- Give the brightness of a pixel: all its colours are the same.
local function at(pixels, x, y)
  return pixels:byte((y * WIDTH + x) * 4 + 1)
end

local function is_white(pixels, x, y)
  return x >= 0 and x < WIDTH and y >= 0 and y <= LOWEST and at(pixels, x, y) == WHITE
end

--- Walk from a white pixel in one direction to the last white one.
local function edge(pixels, x, y, dx, dy)
  while is_white(pixels, x + dx, y + dy) do
    x, y = x + dx, y + dy
  end
  return x, y
end

--- Give the middle of the paddle in a column, or nil; a ball in the column is not as high.
local function paddle(pixels, x)
  for y = 0, LOWEST, PADDLE_HEIGHT - 4 do
    if at(pixels, x, y) == WHITE then
      local _, top = edge(pixels, x, y, 0, -1)
      local _, bottom = edge(pixels, x, y, 0, 1)
      if bottom - top > 2 * BALL_HEIGHT then
        return (top + bottom) / 2
      end
    end
  end
end

-- Columns and rows that no ball fits between.
local columns = {}
for _, range in ipairs(FREE) do
  for x = range[1], range[2], BALL_WIDTH - 1 do
    columns[#columns + 1] = x
  end
  columns[#columns + 1] = range[2]
end

--- Give the left and the upper edge of the ball, or nil.
local function ball(pixels)
  for y = 0, LOWEST, BALL_HEIGHT do
    for place = 1, #columns do
      local x = columns[place]
      if at(pixels, x, y) == WHITE then
        local left = edge(pixels, x, y, -1, 0)
        local _, top = edge(pixels, x, y, 0, -1)
        return left, top
      end
    end
  end
end

--- Give a score, or nil where the ball hides what it is.
local function score(pixels, x)
  local sum = 0
  for _, segment in ipairs(SEGMENTS) do
    local shade = at(pixels, x + segment[1], segment[2])
    if shade == WHITE then
      return nil
    elseif shade == GREY then
      sum = sum + segment[3]
    end
  end
  local units = DIGITS[sum]
  return units and units + (at(pixels, x + TENS, 30) == GREY and 10 or 0)
end

--- Count a point if the screen shows one more; anything else is a digit half drawn.
local function counted(before, shown)
  return shown == before + 1 and shown or before
end

--- Bring the state up to date with the screen, once a frame.
local function look(machine, state)
  if state.looked_at == state.frames then
    return
  end
  local pixels = machine.pixels()
  state.looked_at = state.frames
  state.own_y, state.enemy_y = paddle(pixels, OWN_X), paddle(pixels, ENEMY_X)
  state.ball_x, state.ball_y = ball(pixels)
  state.own = counted(state.own, score(pixels, OWN_DIGIT_X))
  state.enemy = counted(state.enemy, score(pixels, ENEMY_DIGIT_X))
end

-- Playing ---------------------------------------------------------------------------------------

local function clip(value, most)
  most = most or 1
  return value < -most and -most or value > most and most or value
end

local function observe(machine, state)
  look(machine, state)
  local own, enemy, x, y = state.own_y or MIDDLE_Y, state.enemy_y or MIDDLE_Y, state.ball_x, state.ball_y
  local old = state.before or { own = own, enemy = enemy }
  state.before = { own = own, enemy = enemy, x = x, y = y }
  local own_speed, enemy_speed = clip((own - old.own) / 32), clip((enemy - old.enemy) / 32)
  local dx, dy = 0, 0
  if x and old.x then
    dx, dy = x - old.x, y - old.y
  end
  state.comes = dx < 0 -- to the enemy
  own, enemy = (own - MIDDLE_Y) / 110, (enemy - MIDDLE_Y) / 110
  if not x then
    return { own, enemy, 0, 0, 0, 0, own_speed, enemy_speed, 0, 1 }
  end
  return {
    own,
    enemy,
    (x - SERVE_X) / 520,
    (y - MIDDLE_Y) / 110,
    clip(dx / 64),
    clip(dy / 16),
    own_speed,
    enemy_speed,
    clip((y + BALL_HEIGHT / 2 - state.before.own) / 60),
    0,
  }
end

local function turned(knob, by)
  return math.max(LOWEST_KNOB, math.min(HIGHEST_KNOB, knob - by))
end

--- Turn the enemy's knob after a ball that comes to it, else back to the middle.
local function move_enemy(machine, state)
  local goal = state.comes and state.ball_y or MIDDLE_Y
  local most = ENEMY_TURN * (state.frames - state.moved_at)
  state.moved_at = state.frames
  local by = clip(goal - (state.enemy_y or goal), most)
  state.enemy_knob = turned(state.enemy_knob, math.floor(by + 0.5)) -- MAME takes whole numbers only
  machine.press("enemy", state.enemy_knob)
end

return {
  name = "pongarcade",
  frame_skip = FRAME_SKIP,
  inputs = {
    mame = {
      coin = { ":IN0", "Coin 1" },
      enemy = { ":PADDLE0", "Paddle" },
      own = { ":PADDLE1", "Paddle 2" },
    },
  },
  observation = { dtype = "float32", shape = { 10 }, read = observe },
  actions = {
    continuous = { { name = "turn", low = -MOST_TURN, high = MOST_TURN } },
    apply = function(machine, action, state)
      state.own_knob = turned(state.own_knob, math.floor(action.continuous[1] + 0.5))
      machine.press("own", state.own_knob)
      move_enemy(machine, state)
    end,
    release = function(machine)
      machine.release()
    end,
  },
  rewards = { "points" },
  reward = function(machine, state)
    state.frames = state.frames + 1
    if state.frames % FRAME_SKIP == 0 then
      look(machine, state)
    end
    local lead = state.own - state.enemy
    local earned = lead - state.lead
    state.lead = lead
    return { earned }
  end,
  episode = {
    ready = function(machine, frame)
      machine.press("coin", frame >= COIN_FROM and frame < COIN_UNTIL and 1 or 0)
      return frame >= READY
    end,
    begin = function(machine, state)
      state.frames, state.moved_at = 0, 0
      state.own, state.enemy, state.lead = 0, 0, 0
      state.own_knob, state.enemy_knob = MIDDLE_KNOB, MIDDLE_KNOB
    end,
    over = function(_, state)
      local has_paddles = state.own_y or state.enemy_y -- the machine shows none without a game
      if state.own >= WON or state.enemy >= WON or not has_paddles then
        return "terminal"
      end
      return state.frames >= LONGEST and "truncated" or nil
    end,
  },
  info = function(_, state)
    return { { "score", state.own }, { "enemy", state.enemy } }
  end,
}

--- Atari 2600 Pong with its paddle: the console's 128 bytes of RAM, read from MAME's `a2600`.
--
-- RAM offsets from 0x80; they are those of ALE. The player has the right paddle, "Paddle 2".
--
-- Sees:   own paddle, enemy's, ball and its speed, speeds of both paddles, ball below the own paddle,
--         no ball
-- Does:   turn, how far the paddle goes in this decision, positive downwards; not where it goes, as
--         in breakout2600.lua
-- Earns:  score  +1 and -1 for each point
-- Ends:   with the 21st point of either

local RAM = 0x80
local ENEMY_SCORE, OWN_SCORE = 13, 14
local BALL_X, BALL_Y = 49, 54 -- between them the enemy's y (50) and the own (51)
local JUMP = 48 -- no ball moves this far in one decision: it is a new ball
local WON = 21
local RESET_FROM, RESET_UNTIL, READY = 30, 40, 120 -- frames after power-on

local PADDLE_PORT, PADDLE = ":joyport1:pad:POTY", "Paddle 2"
-- The paddle's place is the knob's less KNOB_FROM, within the court.
local KNOB_FROM, HIGHEST, LOWEST = 31, 38, 205
local MOST_TURN = 24
local MIDDLE = 7 -- of the paddle, below its y

local function clip(value)
  return value < -1 and -1 or value > 1 and 1 or value
end

--- Read the enemy's and the own score.
local function scores(machine)
  return machine.read_range(RAM + ENEMY_SCORE, RAM + OWN_SCORE):byte(1, 2)
end

local function observe(machine, state)
  -- One look at the four places and what lies between.
  local ball_x, enemy_y, own_y, _, _, ball_y = machine.read_range(RAM + BALL_X, RAM + BALL_Y):byte(1, -1)
  local old = state.before or { ball_x = ball_x, enemy_y = enemy_y, own_y = own_y, ball_y = ball_y }
  state.before = { ball_x = ball_x, enemy_y = enemy_y, own_y = own_y, ball_y = ball_y }
  local own, enemy = clip((own_y - 121) / 84), clip((enemy_y - 121) / 84)
  local own_speed, enemy_speed = clip((own_y - old.own_y) / 24), clip((enemy_y - old.enemy_y) / 24)
  if ball_y == 0 then
    return { own, enemy, 0, 0, 0, 0, own_speed, enemy_speed, 0, 1 }
  end
  local dx, dy = ball_x - old.ball_x, ball_y - old.ball_y
  if old.ball_y == 0 or dx > JUMP or dx < -JUMP or dy > JUMP or dy < -JUMP then
    dx, dy = 0, 0
  end
  return {
    own,
    enemy,
    (ball_x - 136) / 72,
    (ball_y - 125) / 84,
    clip(dx / 16),
    clip(dy / 16),
    own_speed,
    enemy_speed,
    clip((ball_y - own_y - MIDDLE) / 40),
    0,
  }
end

return {
  name = "pong2600",
  frame_skip = 4,
  observation = { dtype = "float32", shape = { 10 }, read = observe },
  actions = {
    continuous = { { name = "turn", low = -MOST_TURN, high = MOST_TURN } },
    apply = function(machine, action, state)
      local goal = state.before.own_y + math.floor(action.continuous[1] + 0.5)
      machine.set(PADDLE_PORT, PADDLE, KNOB_FROM + math.max(HIGHEST, math.min(LOWEST, goal)))
    end,
    release = function(machine)
      machine.clear(PADDLE_PORT, PADDLE)
    end,
  },
  rewards = { "score" },
  reward = function(machine, state)
    local enemy, own = scores(machine)
    local earned = (own - (state.own or own)) - (enemy - (state.enemy or enemy))
    state.own, state.enemy = own, enemy
    return { earned }
  end,
  episode = {
    ready = function(machine, frame)
      machine.set(":SWB", "Reset Game", frame >= RESET_FROM and frame < RESET_UNTIL and 1 or 0)
      return frame >= READY
    end,
    begin = function(machine, state)
      state.enemy, state.own = scores(machine)
    end,
    over = function(_, state)
      if state.own >= WON or state.enemy >= WON then
        return "terminal"
      end
    end,
  },
  info = function(_, state)
    return { { "score", state.own }, { "enemy", state.enemy } }
  end,
}

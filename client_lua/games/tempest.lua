--- Tempest (Atari 1981), read from the RAM of MAME's `tempest1`.
--
-- The player sits on the rim of a tube of 16 lanes; a few tubes are open, with 15 lanes and two
-- ends. Depth runs from the rim ($10) to the far end ($F0). The game counts ticks of its own, about
-- 27 a second: one decision for each of them while the player lives.
--
-- Sees:     tempest/features.lua, block by block
-- Does:     fire and zap (0 or 1), spinner (-1 to 1: almost two lanes down or up in a tick)
-- Earns:    score   points / 1,000; more than 1,000 at once is a level's bonus and counts nothing
--           death   -1 for each life
--           safety  a trickle while its own lane and the two beside it are free of near threats
-- Setting:  start_level, chosen for each episode on the game's own selection screen

local beside = ...
local memory = beside("tempest/memory")
local features = beside("tempest/features")
local expert = beside("tempest/expert")

local INPUTS = {
  fire = { ":BUTTONSP1", "P1 Button 1" },
  zap = { ":BUTTONSP1", "P1 Button 2" },
  start = { ":IN2", "1 Player Start" },
  coin = { ":IN0", "Coin 1" },
}
local PRESS_FRAMES, PRESS_CYCLE = 10, 60 -- coin and start are held for a part of each cycle

local OVER = {
  [memory.END_GAME] = true,
  [memory.CHECK_SCORE] = true,
  [memory.HIGH_SCORE] = true,
  [memory.HIGH_SCORES] = true,
  [memory.FIREWORKS] = true,
}

local LEVELS = {
  1, 3, 5, 7, 9, 11, 13, 15, 17, 20, 22, 24, 26, 28, 31, 33, 36, 40, 44, 47, 49, 52, 56, 60, 63, 65, 73, 81,
}

-- Reward ----------------------------------------------------------------------------------------

local POINTS = 1000 -- worth 1, and the most that play brings at once
local SAFETY, NEAR = 0.001, 0x50

local function score_of(machine)
  local score, worth = 0, 1
  for place = 0, 2 do
    local pair = machine.read(memory.SCORE + place)
    score = score + worth * (math.floor(pair / 16) * 10 + pair % 16)
    worth = 100 * worth
  end
  return score
end

local function is_alive(machine)
  return machine.read(memory.OWN_STATE) < 128
end

--- Give the share of the own lane and the two beside it that no near threat is in.
local function safety_of(ram)
  local taken, free = {}, 3
  for _, threats in ipairs({ memory.enemies(ram), memory.hostile_shots(ram) }) do
    for _, threat in ipairs(threats) do
      local way = memory.way_to(ram, threat.lane)
      if threat.depth <= NEAR and way >= -1 and way <= 1 and not taken[way] then
        taken[way] = true
        free = free - 1
      end
    end
  end
  return free / 3
end

--- Say whether a value is not the one of last time, and keep it.
local function changed(state, name, value)
  local before = state[name]
  state[name] = value
  return before ~= value
end

local function reward(machine, state)
  local score, alive = score_of(machine), is_alive(machine)
  local gained = score - state.score
  state.score = score
  local died = changed(state, "alive", alive) and not alive
  local safety = 0
  if changed(state, "judged", machine.read(memory.TICK)) and alive and machine.read(memory.STATE) == memory.PLAY then
    safety = SAFETY * safety_of(memory.picture(machine))
  end
  return { gained >= 0 and gained <= POINTS and gained / POINTS or 0, died and -1 or 0, safety }
end

-- Controls --------------------------------------------------------------------------------------

--- Turn the spinner. The game takes the turn at its next tick.
local function turn(machine, amount)
  machine.write(memory.SPINNER, amount % 256)
end

local function apply(machine, action)
  machine.press("fire", action.discrete[1])
  machine.press("zap", action.discrete[2])
  -- On the rim the game subtracts a turn: 16 are one lane down.
  turn(machine, -math.floor(action.continuous[1] * memory.MOST_TURN + 0.5))
end

local function release(machine)
  machine.release()
  turn(machine, 0)
end

--- Decide once a tick. The dead wait for their next life, and their actions mean nothing.
local function decide(machine, state)
  return changed(state, "decided", machine.read(memory.TICK)) and is_alive(machine)
end

-- Episodes --------------------------------------------------------------------------------------

local function in_game(machine)
  return machine.read(memory.MODE) >= 128
end

--- Get out of the attract mode: a coin if there is no credit, else the start button.
local function press_start(machine, frame)
  local pressed = memory.flag(frame % PRESS_CYCLE < PRESS_FRAMES)
  local paid = machine.read(memory.CREDITS) > 0
  machine.press("coin", paid and 0 or pressed)
  machine.press("start", paid and pressed or 0)
end

local function ready(machine, frame)
  if in_game(machine) and machine.read(memory.STATE) == memory.LEVEL_SELECT then
    return true
  end
  press_start(machine, frame)
  return false
end

--- Give the place of the highest level on offer that is not above the wanted one, from 0.
local function place_of(level)
  local place = 0
  while LEVELS[place + 2] and LEVELS[place + 2] <= level do
    place = place + 1
  end
  return place
end

--- Move the selection one step toward a level; press fire when it is there.
local function select_level(machine, level)
  local cursor, goal = machine.read(memory.OWN_LANE), place_of(level)
  if machine.read(memory.HIGHEST) < goal then
    machine.write(memory.HIGHEST, goal) -- the game offers only what was reached before, 9 at first
  end
  local step = cursor < goal and 1 or cursor > goal and -1 or 0
  turn(machine, step * memory.MOST_TURN)
  machine.press("fire", memory.flag(step == 0))
end

local function begin(machine, state)
  state.waited = (state.waited or 0) + 1
  if not in_game(machine) then
    press_start(machine, state.waited)
    return false
  elseif machine.read(memory.STATE) == memory.LEVEL_SELECT then
    select_level(machine, state.settings.start_level)
    return false
  end
  release(machine)
  if machine.read(memory.STATE) ~= memory.PLAY then
    return false
  end
  local tick = machine.read(memory.TICK)
  state.score, state.alive, state.judged, state.decided = score_of(machine), true, tick, tick
  return true
end

local function over(machine)
  if not in_game(machine) or machine.read(memory.LIVES) == 0 or OVER[machine.read(memory.STATE)] then
    return "terminal"
  end
end

return {
  name = "tempest",
  decide = decide,
  settings = {
    {
      name = "start_level",
      default = 1,
      low = 1,
      high = 81,
      about = "Level of the first tube; if the game does not offer it, the next lower one.",
    },
  },
  inputs = { mame = INPUTS },
  observation = { dtype = "float32", shape = { features.count }, read = features.read },
  actions = {
    discrete = { { name = "fire", choices = 2 }, { name = "zap", choices = 2 } },
    continuous = { { name = "spinner", low = -1, high = 1 } },
    apply = apply,
    release = release,
  },
  rewards = { "score", "death", "safety" },
  reward = reward,
  episode = { ready = ready, begin = begin, over = over },
  info = function(machine)
    return {
      { "score", score_of(machine) },
      { "level", machine.read(memory.LEVEL) + 1 },
      { "lives", machine.read(memory.LIVES) },
    }
  end,
  expert = expert,
}

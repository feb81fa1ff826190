--- What the network sees of Tempest: a list of numbers, mostly from -1 to 1, in named blocks.
--
-- Lanes of others are ways: how far to turn from where the player is, 1 for 15 lanes.

local beside = ...
local memory = beside("tempest/memory")
local peek, flag = memory.peek, memory.flag
local LANES, KINDS = memory.LANES, memory.KINDS

local M = {}

local function way(ram, lane)
  return memory.way_to(ram, lane) / (LANES - 1)
end

local function depth(value) -- 0 at the rim, 1 at the far end
  return (value - memory.RIM) / (memory.BOTTOM - memory.RIM)
end

local function spike(ram, lane) -- 0 for none, 1 for one that reaches the rim
  local upper_end = peek(ram, memory.SPIKE + lane)
  return upper_end == 0 and 0 or 1 - depth(upper_end)
end

local function put_one_hot(put, chosen, count)
  for value = 0, count - 1 do
    put(flag(value == chosen))
  end
end

local function put_bytes(put, ram, address, count, most)
  for place = 0, count - 1 do
    put(peek(ram, address + place) / most)
  end
end

-- Each slot: there, kind one-hot (5), way, depth, flipping, its direction, its angle, descending,
-- cargo, pulsing; zeros if it is empty.
local ENEMY_VALUES = 9 + KINDS

local function put_enemy(put, ram, enemy)
  if not enemy then
    for _ = 1, ENEMY_VALUES do
      put(0)
    end
    return
  end
  put(1)
  put_one_hot(put, enemy.kind, KINDS)
  put(way(ram, enemy.lane))
  put(depth(enemy.depth))
  put(flag(enemy.flipping))
  put(enemy.upward and 1 or -1)
  put(enemy.flipping and enemy.angle / 16 or 0)
  put(flag(enemy.descending))
  put(enemy.cargo / 3)
  put(flag(enemy.pulsing))
end

-- Each shot: there, way, depth; zeros if it is not.
local SHOT_VALUES = 3

local function put_shots(put, ram, lanes, depths, count)
  for slot = 0, count - 1 do
    local found = peek(ram, depths + slot)
    put(flag(found > 0))
    put(found > 0 and way(ram, peek(ram, lanes + slot) % LANES) or 0)
    put(found > 0 and depth(found) or 0)
  end
end

-- Every block: its name, its number of values, and what puts them.
M.blocks = {
  -- one-hot: play, zoom down the tube, pause, flight to the next tube, any other
  { "state", 5, function(put, ram)
    local other = 1
    for _, known in ipairs({ memory.PLAY, memory.ZOOM, memory.PAUSE, memory.NEXT_TUBE }) do
      local here = flag(peek(ram, memory.STATE) == known)
      put(here)
      other = other - here
    end
    put(other)
  end },
  -- alive, lane, place within the lane, depth (it grows in a zoom), spike ahead
  { "player", 5, function(put, ram)
    local lane = memory.own_lane(ram)
    put(flag(memory.is_alive(ram)))
    put(lane / (LANES - 1))
    put(peek(ram, memory.PLACE) % memory.LANE_TURN / memory.LANE_TURN)
    put(depth(peek(ram, memory.OWN_DEPTH)))
    put(spike(ram, lane))
  end },
  -- the player's lane, one-hot
  { "own_lane", LANES, function(put, ram)
    put_one_hot(put, memory.own_lane(ram), LANES)
  end },
  -- fire and zap, as the game sees them
  { "buttons", 2, function(put, ram)
    put(flag(memory.has(peek(ram, memory.BUTTONS), 16)))
    put(flag(memory.has(peek(ram, memory.BUTTONS), 8)))
  end },
  -- level, lives, zaps left, zapper at work
  { "game", 4, function(put, ram)
    put((peek(ram, memory.LEVEL) + 1) / 99)
    put(peek(ram, memory.LIVES) / 6)
    put(1 - peek(ram, memory.ZAPS_USED) / memory.ZAPS)
    put(flag(peek(ram, memory.ZAP_TIMER) > 0))
  end },
  -- open, shape
  { "tube", 2, function(put, ram)
    put(flag(memory.is_open(ram)))
    put(peek(ram, memory.SHAPE) / 15)
  end },
  -- enemies in the tube, on the rim, still to come; own shots in the air
  { "counts", 4, function(put, ram)
    put(peek(ram, memory.IN_TUBE) / memory.ENEMIES)
    put(peek(ram, memory.ON_RIM) / memory.ENEMIES)
    put(peek(ram, memory.PENDING) / 64)
    put(peek(ram, memory.SHOTS) / memory.OWN_SHOTS)
  end },
  -- flippers, pulsars, tankers, spikers, fuseballs: how many live, how many more may come, and
  -- how fast they climb: 1 for 16 of depth a tick (negative in the game, where depth falls)
  { "alive", KINDS, function(put, ram)
    put_bytes(put, ram, memory.ALIVE, KINDS, memory.ENEMIES)
  end },
  { "room", KINDS, function(put, ram)
    put_bytes(put, ram, memory.ROOM, KINDS, memory.ENEMIES)
  end },
  { "speed", KINDS, function(put, ram)
    for kind = 0, KINDS - 1 do
      local whole, part = peek(ram, memory.SPEED_HIGH + kind), peek(ram, memory.SPEED_LOW + kind)
      put(-(memory.signed(whole) + part / 256) / 16)
    end
  end },
  -- the pulsars' beat, where in it they are, pulsing
  { "pulse", 3, function(put, ram)
    put(memory.signed(peek(ram, memory.BEAT)) / 8)
    put(memory.signed(peek(ram, memory.PULSE)) / 64)
    put(flag(memory.is_pulsing(ram)))
  end },
  { "enemies", memory.ENEMIES * ENEMY_VALUES, function(put, ram)
    for slot = 0, memory.ENEMIES - 1 do
      put_enemy(put, ram, memory.enemy(ram, slot))
    end
  end },
  { "own_shots", memory.OWN_SHOTS * SHOT_VALUES, function(put, ram)
    put_shots(put, ram, memory.SHOT_LANE, memory.SHOT_DEPTH, memory.OWN_SHOTS)
  end },
  { "hostile_shots", memory.HOSTILE_SHOTS * SHOT_VALUES, function(put, ram)
    put_shots(put, ram, memory.HOSTILE_LANE, memory.HOSTILE_DEPTH, memory.HOSTILE_SHOTS)
  end },
  -- each lane: how far its spike reaches, and its angle in turns
  { "spikes", LANES, function(put, ram)
    for lane = 0, LANES - 1 do
      put(spike(ram, lane))
    end
  end },
  { "angles", LANES, function(put, ram)
    put_bytes(put, ram, memory.ANGLE, LANES, 16)
  end },
}

M.count = 0
for _, block in ipairs(M.blocks) do
  M.count = M.count + block[2]
end

--- Give all numbers; a block that does not give as many as it says is an error.
function M.read(machine)
  local ram, values, wanted = memory.picture(machine), {}, 0
  local function put(value)
    values[#values + 1] = value
  end
  for _, block in ipairs(M.blocks) do
    local name, size, fill = block[1], block[2], block[3]
    fill(put, ram)
    wanted = wanted + size
    if #values ~= wanted then
      error("the block '" .. name .. "' must give " .. size .. " values, not " .. #values - wanted + size)
    end
  end
  return values
end

return M

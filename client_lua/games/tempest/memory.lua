--- What Tempest keeps where in its RAM, and what the bytes say of the tube and who is in it.
--
-- Addresses and bits are those of the program's published source. `ram` is a picture of the memory
-- at one moment, so that all that is read from it belongs together.

local M = {
  -- The game
  STATE = 0x00, -- one of the states below
  NEXT_STATE = 0x02, -- after a pause
  TICK = 0x03,
  MODE = 0x05, -- bit 7: a game is played
  CREDITS = 0x06,
  SCORE = 0x40, -- 3 BCD bytes, low first
  LIVES = 0x48, -- with the one being played
  BUTTONS = 0x4d,
  SPINNER = 0x50, -- the turn since the last tick; the game takes and clears it
  PLACE = 0x51, -- the sum of turns: 16 a lane
  LEVEL = 0x9f, -- from 0
  ZAP_TIMER = 0x125,
  HIGHEST = 0x127, -- the last selectable level, as a place in LEVELS
  ZAPS_USED = 0x3aa,
  -- The tube
  OPEN = 0x111,
  SHAPE = 0x112,
  SPIKE = 0x3ac, -- its upper end, for each lane; 0 for none
  ANGLE = 0x3ee, -- for each lane, in 16ths of a turn
  -- The player
  OWN_LANE = 0x200, -- while a level is selected, the cursor
  OWN_STATE = 0x201, -- bit 7: dead
  OWN_DEPTH = 0x202,
  SHOTS = 0x135,
  SHOT_LANE = 0x2ad,
  SHOT_DEPTH = 0x2d3,
  -- The enemies: together, for each kind, for each slot
  IN_TUBE = 0x108,
  ON_RIM = 0x109,
  PENDING = 0x3ab,
  BEAT = 0x147, -- of the pulsars: how much PULSE changes in a tick
  PULSE = 0x148, -- bit 7 clear: they pulse
  ROOM = 0x13d, -- how many more of a kind may come
  ALIVE = 0x142,
  SPEED_LOW = 0x160,
  SPEED_HIGH = 0x165,
  ENEMY_KIND = 0x283,
  ENEMY_STATE = 0x28a,
  ENEMY_LANE = 0x2b9,
  ENEMY_ANGLE = 0x2cc,
  ENEMY_DEPTH = 0x2df,
  HOSTILE_LANE = 0x2b5, -- their shots
  HOSTILE_DEPTH = 0x2db,

  -- States of the game
  PLAY = 0x04,
  END_GAME = 0x08,
  PAUSE = 0x0a,
  CHECK_SCORE = 0x10,
  HIGH_SCORE = 0x12,
  HIGH_SCORES = 0x14,
  LEVEL_SELECT = 0x16,
  NEXT_TUBE = 0x18,
  ZOOM = 0x20, -- down the tube, when all enemies are gone
  FIREWORKS = 0x24,

  -- Kinds of enemy
  FLIPPER = 0,
  PULSAR = 1,
  TANKER = 2,
  SPIKER = 3,
  FUSEBALL = 4,

  -- How many there are of everything
  KINDS = 5,
  LANES = 16,
  ENEMIES = 7,
  OWN_SHOTS = 8,
  HOSTILE_SHOTS = 4,
  ZAPS = 2,

  RIM = 0x10, -- depths
  BOTTOM = 0xf0,
  LANE_TURN = 16, -- of the spinner
  MOST_TURN = 31, -- in one tick
}

local LAST = 0x3ff
local byte = string.byte

-- Bytes -----------------------------------------------------------------------------------------

--- Take a picture of the memory.
function M.picture(machine)
  return machine.read_range(0, LAST)
end

local function peek(ram, address)
  return byte(ram, address + 1)
end
M.peek = peek

--- Give a byte as a number from -128 to 127.
function M.signed(value)
  return value < 128 and value or value - 256
end

--- Say whether a bit is set; a bit is named by its worth.
function M.has(value, bit)
  return value % (2 * bit) >= bit
end

--- Give 1 or 0.
function M.flag(truth)
  return truth and 1 or 0
end

-- The tube --------------------------------------------------------------------------------------

function M.is_open(ram)
  return peek(ram, M.OPEN) >= 128
end

function M.is_alive(ram)
  return peek(ram, M.OWN_STATE) < 128
end

function M.is_pulsing(ram)
  return peek(ram, M.PULSE) < 128
end

function M.own_lane(ram)
  return peek(ram, M.OWN_LANE) % M.LANES
end

--- Give the way from the player to a lane, in lanes: the shorter one around a closed tube.
function M.way_to(ram, lane)
  local way, half = lane - M.own_lane(ram), M.LANES / 2
  return M.is_open(ram) and way or (way + half) % M.LANES - half
end

--- Give the lane at the end of a way, or nil beyond the ends of an open tube.
function M.lane_at(ram, way)
  local lane = M.own_lane(ram) + way
  if not M.is_open(ram) then
    return lane % M.LANES
  end
  return lane >= 0 and lane < M.LANES - 1 and lane or nil
end

-- Who is in it ----------------------------------------------------------------------------------

--- Give the enemy of a slot, or nil if the slot is empty.
function M.enemy(ram, slot)
  local depth = peek(ram, M.ENEMY_DEPTH + slot)
  if depth == 0 then
    return nil
  end
  local kind, state = peek(ram, M.ENEMY_KIND + slot), peek(ram, M.ENEMY_STATE + slot)
  return {
    kind = kind % 8,
    lane = peek(ram, M.ENEMY_LANE + slot) % M.LANES,
    depth = depth,
    flipping = M.has(kind, 128),
    upward = M.has(kind, 64) == (kind % 8 ~= M.FUSEBALL), -- flips toward higher lanes
    angle = peek(ram, M.ENEMY_ANGLE + slot) % 16, -- of a flip
    descending = M.has(state, 128),
    cargo = state % 4, -- of a tanker: 1 flippers, 2 pulsars, 3 fuseballs
    pulsing = kind % 8 == M.PULSAR and M.is_pulsing(ram),
  }
end

--- Give all enemies there are.
function M.enemies(ram)
  local found = {}
  for slot = 0, M.ENEMIES - 1 do
    found[#found + 1] = M.enemy(ram, slot)
  end
  return found
end

--- Give the shots of the enemies, {lane, depth} each.
function M.hostile_shots(ram)
  local found = {}
  for slot = 0, M.HOSTILE_SHOTS - 1 do
    local depth = peek(ram, M.HOSTILE_DEPTH + slot)
    if depth > 0 then
      found[#found + 1] = { lane = peek(ram, M.HOSTILE_LANE + slot) % M.LANES, depth = depth }
    end
  end
  return found
end

return M

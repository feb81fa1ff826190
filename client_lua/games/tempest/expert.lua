--- A rule of thumb for Tempest: what a decent player would do now.
--
-- It hunts fuseballs before flippers before tankers before spikers, leaves the lanes of pulsing
-- pulsars and of shots that are nearly here, fires nearly always, zaps a crowd on the rim, and
-- flies down the tube where the spike is shortest.

local beside = ...
local memory = beside("tempest/memory")
local peek, flag = memory.peek, memory.flag

local RANK = {
  [memory.FUSEBALL] = 5,
  [memory.FLIPPER] = 4,
  [memory.TANKER] = 3,
  [memory.SPIKER] = 2,
  [memory.PULSAR] = 1,
}
local CLOSE = 0x20 -- what is nearer to the rim than this is not to be met in its own lane
local DODGE = 0x28 -- a shot that is nearer than this may not be shot down any more
local POTENT = 0xc0 -- farther down than this a pulsar's lane is harmless
local CROWD = 3 -- on the rim
local RESERVE = 1 -- shots kept for an enemy at our side

--- Give the lanes in which to stand is to die.
local function deadly_lanes(ram, enemies)
  local deadly = {}
  for _, enemy in ipairs(enemies) do
    if enemy.depth <= memory.RIM or enemy.pulsing and enemy.depth < POTENT then
      deadly[enemy.lane] = true
    end
  end
  for _, shot in ipairs(memory.hostile_shots(ram)) do
    if shot.depth <= DODGE then
      deadly[shot.lane] = true
    end
  end
  return deadly
end

--- Choose what to hunt: by kind, then the nearest to the rim. A pulsing pulsar is let be.
local function prey(enemies)
  local best, best_rank = nil, 0
  for _, enemy in ipairs(enemies) do
    local rank = enemy.pulsing and 0 or RANK[enemy.kind] or 0
    if rank > best_rank or best and rank == best_rank and enemy.depth < best.depth then
      best, best_rank = enemy, rank
    end
  end
  return best
end

--- Give the way to where the prey is shot from: its lane, or the one before it if it is close.
local function way_to_prey(ram, enemy)
  if not enemy then
    return 0
  end
  local way = memory.way_to(ram, enemy.lane)
  if enemy.depth >= CLOSE or way == 0 then
    return way
  end
  return way > 0 and way - 1 or way + 1
end

--- Give the way to the lane of most worth; among equals the nearest to a wanted way.
local function best_way(ram, wanted, worth_of)
  local best, best_worth
  for distance = 0, memory.LANES - 1 do -- on our side of the wanted way first
    local near = wanted > 0 and wanted - distance or wanted + distance
    for _, way in ipairs({ near, 2 * wanted - near }) do
      local lane = memory.lane_at(ram, way)
      local worth = lane and worth_of(lane)
      if worth and (not best or worth > best_worth) then
        best, best_worth = lane, worth
      end
    end
  end
  return memory.way_to(ram, best)
end

local function is_zooming(ram)
  local state = peek(ram, memory.STATE)
  -- Before the zoom of the early levels the game pauses with a warning: time to get away.
  return state == memory.ZOOM or state == memory.PAUSE and peek(ram, memory.NEXT_STATE) == memory.ZOOM
end

local function choose_way(ram, enemies)
  if is_zooming(ram) then
    return best_way(ram, 0, function(lane)
      local upper_end = peek(ram, memory.SPIKE + lane)
      return upper_end == 0 and 256 or upper_end
    end)
  end
  local deadly = deadly_lanes(ram, enemies)
  return best_way(ram, way_to_prey(ram, prey(enemies)), function(lane)
    return flag(not deadly[lane])
  end)
end

local function wants_fire(ram, enemies)
  if peek(ram, memory.SHOTS) < memory.OWN_SHOTS - RESERVE then
    return true
  end
  for _, enemy in ipairs(enemies) do
    local way = memory.way_to(ram, enemy.lane)
    if enemy.depth < CLOSE and way >= -1 and way <= 1 then
      return true
    end
  end
  return false
end

local function wants_zap(ram)
  return peek(ram, memory.STATE) == memory.PLAY
    and peek(ram, memory.ON_RIM) >= CROWD
    and peek(ram, memory.ZAPS_USED) < memory.ZAPS
    and peek(ram, memory.ZAP_TIMER) == 0
end

--- Propose an action.
local function propose(machine)
  local ram = memory.picture(machine)
  local enemies = memory.enemies(ram)
  local turn = choose_way(ram, enemies) * memory.LANE_TURN / memory.MOST_TURN
  return {
    discrete = { flag(wants_fire(ram, enemies)), flag(wants_zap(ram)) },
    continuous = { math.max(-1, math.min(1, turn)) },
  }
end

return propose

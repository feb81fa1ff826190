--- Makes a small picture of a screen: picks some of its pixels and puts their bytes in order.

local M = {}

local byte, char, floor, concat = string.byte, string.char, math.floor, table.concat
local unpack = table.unpack or unpack -- luacheck: ignore

-- Where the colours are in the four bytes of a pixel.
local ORDERS = {
  BGRA = { skip = 0, backwards = true },
  ARGB = { skip = 1, backwards = false },
}

--- Give the place of every pixel that is picked along one side, from 0.
local function picked(size, small)
  local places = {}
  for at = 1, small do
    places[at] = floor((at - 0.5) * size / small)
  end
  return places
end

--- Give a picture within so many pixels: width, height, bytes of RGB; nil if there is no screen.
-- The screen is what ``machine.pixels()`` gives. Each side is fitted alone: an emulator's pixels
-- are seldom square, and its screen is 4 to 3, as the picture is.
function M.shrink(most_width, most_height, bytes, across, down, order)
  if not bytes or across < 1 or down < 1 or #bytes < 4 * across * down then
    return nil
  end
  local layout = ORDERS[order] or error("pixels in the order '" .. tostring(order) .. "' are not known")
  local width, height = math.min(across, most_width), math.min(down, most_height)
  local columns, lines = picked(across, width), picked(down, height)
  local row, rows = {}, {}
  for y = 1, height do
    local start = 1 + layout.skip + 4 * across * lines[y]
    for x = 1, width do
      local place = start + 4 * columns[x]
      local red, green, blue = byte(bytes, place, place + 2)
      if layout.backwards then
        red, blue = blue, red
      end
      row[3 * x - 2], row[3 * x - 1], row[3 * x] = red, green, blue
    end
    rows[y] = char(unpack(row, 1, 3 * width))
  end
  return width, height, concat(rows)
end

return M

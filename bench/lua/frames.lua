--- Counts MAME's frames and does nothing else: what the emulator reaches with no client in it.
--
-- Prints the number of frames so far, every few frames; whoever reads that has a clock.

local EVERY = 16

local frames = 0

-- Kept in a local of the file: MAME drops a subscription that nobody holds.
local subscription = emu.register_frame_done(function()
  frames = frames + 1
  if frames % EVERY == 0 then
    io.stdout:write(frames, "\n")
    io.stdout:flush()
  end
end)

return subscription

--- The transport over LuaSocket: blocks in the kernel while it waits, so it burns no core.

local M = {}

local CONNECT_S = 3

--- Make a transport, or give nil where LuaSocket is not installed.
function M.new(require_module)
  local found, socket = pcall(require_module, "socket.core")
  if not found or type(socket) ~= "table" then
    return nil
  end
  local peer

  local transport = { name = "LuaSocket" }

  function transport.open(host, port)
    local problem
    peer, problem = socket.tcp()
    if not peer then
      return nil, problem
    end
    peer:settimeout(CONNECT_S)
    local good
    good, problem = peer:connect(host, port)
    if not good then
      transport.close()
      return nil, problem
    end
    peer:setoption("tcp-nodelay", true)
    return true
  end

  function transport.send(data)
    if not peer then
      return nil, "not connected"
    end
    peer:settimeout(CONNECT_S)
    local sent, problem = peer:send(data)
    if not sent then
      return nil, problem
    end
    return true
  end

  function transport.receive(wait_s, wanted)
    if not peer then
      return nil, "not connected"
    end
    peer:settimeout(wait_s)
    -- As many as are wanted: asked for more, LuaSocket would look into the kernel once more.
    local data, problem, partial = peer:receive(wanted)
    if data then
      return data
    elseif problem == "timeout" then
      return partial
    end
    return nil, problem
  end

  function transport.close()
    if peer then
      peer:close()
      peer = nil
    end
  end

  transport.sleep = socket.sleep

  return transport
end

return M

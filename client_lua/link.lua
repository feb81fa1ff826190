--- A client's link to the server: connect, say hello, exchange frames for actions in lockstep.
--
-- Any emulator: the link works over a transport and a clock that it is given.
--   transport.open(host, port)    -> true, or nil and why
--   transport.send(data)          -> true, or nil and why
--   transport.receive(wait_s, wanted)    -> bytes ("" if none came in time), or nil and why; how many
--                                 are wanted is for those who can wait for just them
--   transport.close()
--   transport.sleep(seconds)      optional: gives the core away
--   clock()                       -> seconds of wall clock
--
-- The rules:
-- - Every frame gets a number, sent or not. A frame that could not be sent leaves a gap, and the
--   server links nothing across it.
-- - A lost connection is tried again with back-off, offering the old session. If the session goes
--   on, the open frame is sent again under its number; if not, the next frame starts an episode.
-- - Where there are several servers, all are tried before there is a pause: first the one whose session
--   may go on. Another one begins a new session.
-- - With a token, both sides show that they know it and neither sends it. A server that does not
--   is a refusal: it is not the one that was meant.
-- - Nothing here waits for ever: each wait ends with the clock.

local M = {}
M.__index = M

local FIRST_RETRY_S = 0.5
local LAST_RETRY_S = 15
local SLICE_S = 0.25 -- the longest single wait for bytes

--- Make a link.
-- options: wire, proof, transport, clock, host, port, hello, and optionally
--   others ({})      further servers, each {host, port}: tried in turn when the first is gone
--   token ("")       the server's secret
--   timeout_s (10)   how long a reply may take before the connection counts as lost
--   wait (false)     without a server: wait for it, instead of letting the game go on
--   once (false)     a server that is gone, or not there, is a refusal: do not try again
--   log              function(text): what a person should know
function M.new(options)
  for _, name in ipairs({ "wire", "proof", "transport", "clock", "host", "port", "hello" }) do
    if options[name] == nil then
      error("a link needs '" .. name .. "'")
    end
  end
  local servers = { { options.host, options.port } }
  for _, server in ipairs(options.others or {}) do
    servers[#servers + 1] = server
  end
  return setmetatable({
    servers = servers, -- the first is ours
    wire = options.wire,
    proof = options.proof,
    transport = options.transport,
    clock = options.clock,
    hello = options.hello,
    token = options.token or "",
    timeout_s = options.timeout_s or 10,
    wait = options.wait or false,
    once = options.once or false,
    log = options.log or function() end,
    connected = false,
    refused = nil, -- why there is no use in trying again
    gone = false, -- whether that is because the server is away
    sequence = 0, -- of the next frame
    session = "",
    settings = {}, -- what the server pushed
    fresh = true, -- the next frame starts a chain of its own
    buffer = "",
    retry_s = FIRST_RETRY_S,
    retry_at = nil,
  }, M)
end

--- Send a frame and give the server's action: {discrete, continuous, source}, or nil without one.
-- The frame has flags, rewards, observation and, optionally, executed, expert, info, and preview:
-- the bytes of a picture that go before it, once, as a newer one will follow.
function M:exchange(frame)
  frame.sequence = self.sequence
  self.sequence = self.sequence + 1
  local asked_at = self.clock()
  while true do
    if self:ensure() then
      if self.fresh then
        frame.flags = frame.flags - frame.flags % 8 + self:with_start(frame.flags % 8)
      end
      local action = self:ask(frame)
      if action then
        self.fresh = false
        return action
      end
    end
    if self.refused or not self.wait and not self.connected and not self:may_retry(asked_at) then
      self.fresh = true
      return nil
    end
  end
end

--- Connect before there is a frame, to learn the server's settings; say whether it worked.
function M:join()
  while not self:ensure() do
    if self.refused or not self.wait then
      return false
    end
  end
  return true
end

--- Say goodbye, if anybody listens, and close.
function M:close(reason)
  if self.connected then
    self.transport.send(self.wire.farewell("bye", reason))
  end
  self:drop()
end

-- Connecting ------------------------------------------------------------------------------------

--- Be connected: at once if we are, after an attempt if one is due.
function M:ensure()
  if self.connected then
    return true
  elseif self.refused then
    return false
  end
  local now = self.clock()
  if self.retry_at and now < self.retry_at then
    if self.wait then
      self:nap(math.min(SLICE_S, self.retry_at - now))
    end
    return false
  end
  local good, problem = self:go_round()
  if good then
    self.retry_s, self.retry_at = FIRST_RETRY_S, nil
    return true
  end
  if self.once and not self.refused then
    self.refused, self.gone = problem, true
  end
  if not self.refused then
    self.log("no server at " .. self:where() .. " (" .. problem .. "), trying again in " .. self.retry_s .. " s")
    self.retry_at = self.clock() + self.retry_s
    self.retry_s = math.min(self.retry_s * 2, LAST_RETRY_S)
  end
  return false
end

--- Try each server once, ours first; say whether one took us, or why the first that is away did not.
function M:go_round()
  local away, no
  for _ = 1, #self.servers do
    local good, problem = self:connect()
    if good then
      return true
    end
    self:drop()
    if self.refused then
      no, self.refused = self.refused, nil
    else
      away = away or problem
    end
    self:turn()
  end
  if not away then -- those that say no will say it again
    self.refused = no
  end
  return false, away or no
end

--- Let the next server be ours.
function M:turn()
  table.insert(self.servers, table.remove(self.servers, 1))
end

function M:where()
  return self.servers[1][1] .. ":" .. self.servers[1][2]
end

function M:connect()
  local good, problem = self.transport.open(self.servers[1][1], self.servers[1][2])
  if not good then
    return nil, problem or "no connection"
  end
  self.buffer = ""
  local welcome
  welcome, problem = self:greet()
  if not welcome then
    return nil, problem
  end
  if not welcome.resumed then
    self.fresh = true
  end
  self.session = welcome.session
  self:apply(welcome.settings)
  self.connected = true
  self.log((welcome.resumed and "back at " or "connected to ") .. self:where())
  return true
end

--- Say hello and give the server's welcome, or nil and why there is none.
function M:greet()
  self.hello.resume = self.session
  self.hello.nonce = self.token ~= "" and self.proof.nonce(self.clock) or ""
  local hello = self.wire.hello(self.hello)
  local good, problem = self.transport.send(hello)
  if not good then
    return nil, problem or "the hello was not sent"
  end
  local deadline, answer = self.clock() + self.timeout_s, nil
  answer, problem = self:receive(deadline)
  local expected
  if answer and answer.type == "challenge" then
    expected, problem = self:prove(answer.nonce, hello:sub(5))
    if not expected then
      return nil, problem
    end
    answer, problem = self:receive(deadline)
  end
  if not answer then
    return nil, problem
  elseif answer.type == "reject" then
    return nil, self:refuse("the server refuses us: ", answer.reason)
  elseif answer.type ~= "welcome" then
    return nil, "no welcome"
  elseif self.token ~= "" and not (expected and self.proof.equal(answer.proof, expected)) then
    return nil, self:refuse("we refuse the server: ", "it did not show that it knows the token")
  end
  return answer
end

--- Answer a challenge; give what the server must show in return, or nil and why not.
function M:prove(nonce, hello)
  if type(nonce) ~= "string" or #nonce ~= self.proof.NONCE_BYTES then
    return nil, "the server broke the protocol: a challenge without a nonce"
  end
  local good, problem = self.transport.send(self.wire.proof(self.proof.by_client(self.token, nonce, hello)))
  if not good then
    return nil, problem or "the proof was not sent"
  end
  return self.proof.by_server(self.token, nonce, hello)
end

--- Note that there is no use in trying again, and why.
function M:refuse(who, reason)
  self.refused = reason
  self.log(who .. reason)
  return reason
end

--- Say whether the frame asked about may still be tried: once, right after a lost connection.
function M:may_retry(asked_at)
  return self.retry_at == nil and self.clock() - asked_at < self.timeout_s
end

function M:drop()
  self.connected = false
  self.buffer = ""
  self.transport.close()
end

function M:nap(seconds)
  if self.transport.sleep then
    self.transport.sleep(seconds)
  end
end

-- Talking ---------------------------------------------------------------------------------------

function M:ask(frame)
  local data = self.wire.frame(frame)
  if frame.preview then
    data, frame.preview = frame.preview .. data, nil
  end
  local good, problem = self.transport.send(data)
  local deadline = self.clock() + self.timeout_s
  while good do
    local message
    message, problem = self:receive(deadline)
    if not message then
      break
    elseif message.type == nil and message[1] == frame.sequence then
      self:apply(message[5])
      return { discrete = message[2], continuous = message[3], source = message[4] }
    elseif message.type == "ping" then
      good, problem = self.transport.send(self.wire.signal("pong"))
    elseif message.type == "bye" or message.type == "error" then
      problem = message.reason
      break
    end
    -- Anything else is an answer to a frame that was given up: it belongs to nobody.
  end
  self.log("lost the server: " .. tostring(problem))
  self:drop()
  if self.once and #self.servers > 1 then
    self:turn() -- one that went is not waited for
  elseif self.once then
    self.refused, self.gone = tostring(problem), true
  end
  return nil
end

--- Give the next whole message before a deadline, or nil and why not.
function M:receive(deadline)
  while true do
    local message, problem = self:take()
    if message or problem then
      return message, problem
    end
    local left = deadline - self.clock()
    if left <= 0 then
      return nil, "no answer for " .. self.timeout_s .. " s"
    end
    local data
    data, problem = self.transport.receive(math.min(left, SLICE_S), self:missing())
    if not data then
      return nil, problem or "the connection was closed"
    end
    self.buffer = self.buffer .. data
  end
end

--- Give how many bytes are missing of the next message: first of its length, then of the rest.
function M:missing()
  local held = #self.buffer
  return held < 4 and 4 - held or 4 + self.wire.length(self.buffer) - held
end

--- Take one message from the buffer: the message, or nil, or nil and what is wrong.
function M:take()
  local buffer = self.buffer
  if #buffer < 4 then
    return nil
  end
  local size = self.wire.length(buffer)
  if #buffer < 4 + size then
    return nil
  end
  self.buffer = buffer:sub(5 + size)
  local message, problem = self.wire.decode(buffer:sub(5, 4 + size))
  if type(message) ~= "table" then
    return nil, "the server broke the protocol: " .. (problem or "no message")
  end
  return message
end

function M:apply(settings)
  for name, value in pairs(settings or {}) do
    self.settings[name] = value
  end
end

function M:with_start(flags)
  local start = self.wire.START
  return flags % (2 * start) >= start and flags or flags + start
end

return M

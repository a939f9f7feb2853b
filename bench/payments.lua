-- Each request is a new payment under a name of its own: thread, process start and a counter.
local thread = 0
function setup(t) t:set("number", thread); thread = thread + 1 end
function init(args) prefix = args[1] .. "-" .. number .. "-"; count = 0 end
function request()
  count = count + 1
  return wrk.format("POST", "/payments",
    { ["Content-Type"] = "application/json", ["Idempotency-Key"] = prefix .. count },
    '{"amount":1999,"currency":"USD","destination":"acct-1234567"}')
end

"""An agent that does what its messages say, right and wrong: a scripted stand-in, in plain JSON lines.

Each line of a message is one action; see `act`. Arguments choose what it is from its start.
"""

import json
import os
import sys
import threading
import time

KIND = sys.argv[1] if len(sys.argv) > 1 else "good"
SESSIONS = sys.argv[2] if len(sys.argv) > 2 else None
SETTINGS = {
    "modes": {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "Code"}]},
    "configOptions": [
        {"id": "model", "name": "Model", "category": "model", "type": "select", "currentValue": "small",
         "options": [{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}]},
    ],
}
requests = {}
counter = [1000]
lock = threading.Lock()
cancelled = threading.Event()


def send(message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def answer(request, result):
    send({"id": request["id"], "result": result})


def update(session, update_kind, **fields):
    send({"method": "session/update", "params": {"sessionId": session, "update": {"sessionUpdate": update_kind, **fields}}})


def say(session, text, kind="agent_message_chunk"):
    update(session, kind, content={"type": "text", "text": text})


def ask(method, **params):
    """Sends a request to the client and waits for its answer."""
    counter[0] += 1
    number = counter[0]
    done = threading.Event()
    requests[number] = [done, None]
    send({"id": number, "method": method, "params": params})
    done.wait()
    return requests.pop(number)[1]


def permission(session, kinds, title="Change a file", file=None):
    options = [{"optionId": f"o-{kind}", "name": kind.replace("_", " "), "kind": kind} for kind in kinds]
    tool = {"toolCallId": "p", "title": title, "kind": "edit", "status": "pending"}
    if file:
        # The call says what it does, and the request only which call it is about.
        text = f"text {time.monotonic_ns()}"
        update(session, "tool_call", **tool, locations=[{"path": file}], rawInput={"file_path": file, "content": text},
               content=[{"type": "diff", "path": file, "newText": text}])
        tool = {"toolCallId": "p"}
    reply = ask("session/request_permission", sessionId=session, toolCall=tool, options=options)
    return reply.get("result", {}).get("outcome", reply)


def act(session, line, message):
    word, _, rest = line.partition(" ")
    if word == "say":
        say(session, rest)
    elif word == "think":
        say(session, rest, "agent_thought_chunk")
    elif word == "flood":
        for number in range(int(rest)):
            say(session, f"w{number} " + ("\n\n" if number % 50 == 49 else ""))
    elif word == "permission":
        say(session, "outcome " + json.dumps(permission(session, rest.split())) + "\n\n")
    elif word == "may-write":
        file, *kinds = rest.split()
        say(session, "outcome " + json.dumps(permission(session, kinds, file=file)) + "\n\n")
    elif word == "read":
        reply = ask("fs/read_text_file", sessionId=session, path=os.path.join(os.getcwd(), rest))
        say(session, "read " + json.dumps(reply.get("result") or reply["error"]) + "\n\n")
    elif word == "write":
        path, _, text = rest.partition(" ")
        reply = ask("fs/write_text_file", sessionId=session, path=os.path.join(os.getcwd(), path), content=text)
        say(session, "wrote " + json.dumps(reply.get("error")) + "\n\n")
    elif word == "replace":
        path, old, new = rest.split(" ")
        path = os.path.join(os.getcwd(), path)
        text = ask("fs/read_text_file", sessionId=session, path=path)["result"]["content"]
        reply = ask("fs/write_text_file", sessionId=session, path=path, content=text.replace(old, new))
        say(session, "replaced " + json.dumps(reply.get("error")) + "\n\n")
    elif word == "terminal":
        made = ask("terminal/create", sessionId=session, command=rest, outputByteLimit=1000)
        if "error" in made:
            return say(session, "no terminal " + json.dumps(made["error"]))
        terminal = made["result"]["terminalId"]
        update(session, "tool_call", toolCallId="t", title="a command", kind="execute", status="in_progress",
               content=[{"type": "terminal", "terminalId": terminal}])
        ended = ask("terminal/wait_for_exit", sessionId=session, terminalId=terminal)
        output = ask("terminal/output", sessionId=session, terminalId=terminal)
        say(session, "terminal " + json.dumps([ended["result"], len(output["result"]["output"])]))
    elif word == "hang-terminal":
        made = ask("terminal/create", sessionId=session, command=rest)
        say(session, "left " + made["result"]["terminalId"])
    elif word == "method":
        say(session, "method " + json.dumps(ask(rest)["error"]["code"]))
    elif word == "wait":
        say(session, "waiting")
        cancelled.wait()
    elif word == "ignore-cancel":
        say(session, "ignoring")
        threading.Event().wait()
    elif word == "garbage":
        sys.stdout.buffer.write(b'this is no message\n\xff\xfe\n[1, 2]\n{"jsonrpc": "2.0"}\n\n')
        sys.stdout.buffer.flush()
    elif word == "huge":
        with lock:
            sys.stdout.write("x" * (int(rest) << 20) + "\n")
            sys.stdout.flush()
    elif word == "die":
        sys.stderr.write("the last words\n")
        sys.stderr.flush()
        os._exit(int(rest))
    elif word == "images":
        kinds = [block["type"] for block in message]
        say(session, "blocks " + json.dumps(kinds))
    elif word == "as":
        say(session, "as " + os.environ.get("NB_AS", ""))


def prompt(request):
    session = request["params"]["sessionId"]
    cancelled.clear()
    message = request["params"]["prompt"]
    for line in message[0]["text"].splitlines():
        if cancelled.is_set():
            break
        act(session, line.strip(), message)
    stop = "cancelled" if cancelled.is_set() else "end_turn"
    answer(request, {"stopReason": stop})
    if KIND == "twice":
        answer(request, {"stopReason": stop})


def handle(request):
    method = request.get("method")
    params = request.get("params") or {}
    if method == "initialize":
        if KIND == "chat-only":
            return send({"id": request["id"], "error": {"code": -32601, "message": "Method not found"}})
        able = {"loadSession": SESSIONS is not None, "promptCapabilities": {"image": True}}
        logins = [{"id": "browser", "name": "Log in with a browser"}]
        version = 99 if KIND == "later" else 1
        return answer(request, {"protocolVersion": version, "agentCapabilities": able, "authMethods": logins})
    if method == "authenticate":
        os.environ["LOGGED_IN"] = params["methodId"]
        return answer(request, {})
    if method == "session/new":
        if KIND == "login" and "LOGGED_IN" not in os.environ:
            return send({"id": request["id"], "error": {"code": -32000, "message": "Authentication required"}})
        session = f"s-{os.getpid()}-{time.monotonic_ns()}"
        if SESSIONS:
            with open(SESSIONS, "a", encoding="utf-8") as file:
                file.write(session + "\n")
        answer(request, {"sessionId": session, **SETTINGS})
        return update(session, "available_commands_update", availableCommands=[{"name": "compact", "description": "x"}])
    if method == "session/load":
        known = open(SESSIONS, encoding="utf-8").read().split()
        if params["sessionId"] not in known:
            return send({"id": request["id"], "error": {"code": -32002, "message": "no such session"}})
        say(params["sessionId"], "an answer of before")
        return answer(request, SETTINGS)
    if method in ("session/set_mode", "session/set_config_option"):
        return answer(request, {})
    if method == "session/cancel":
        return cancelled.set()
    if method == "session/prompt":
        return threading.Thread(target=prompt, args=(request,), daemon=True).start()
    if method == "chat/send":
        return answer(request, {"response": "you said " + params["message"]})


if KIND == "exits":
    sys.exit("wrong arguments")
if KIND == "prints":
    print("Welcome to the agent!\n" * 100)
    sys.exit(3)

for line in sys.stdin:
    message = json.loads(line)
    if "method" in message:
        handle(message)
    elif message.get("id") in requests:
        requests[message["id"]][1] = message
        requests[message["id"]][0].set()

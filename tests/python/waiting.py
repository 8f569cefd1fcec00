"""A person's cell that waits behind an agent's: others see it, and it runs on no kernel but the one it waits for."""

import json
import os
import pathlib
import signal
import subprocess

from launch import arguments, nb, say, until
from window import Window, journal, session_of

PYTHON = os.environ["NB_TEST_PYTHON"]
NOTEBOOK = "t.ipynb"
RAN = pathlib.Path("ran")
CODE = f"open('{RAN}', 'w')"
AGENT = ("--as", "ada")

# What ends the kernel, and a word of the error that the person reads.
ENDS = {
    "restart": (lambda: nb("restart", NOTEBOOK, "--force", *AGENT), "restarted"),
    "shutdown": (lambda: nb("shutdown", NOTEBOOK, "--force", *AGENT), "shut down"),
    "kill": (lambda: os.kill(session_of(NOTEBOOK)["pid"], signal.SIGKILL), "died"),
}


def events(request):
    """Returns what the journal has about a request, in order, and about its withdrawal.

    A recorder that is just ending may have seen the request begin, and even end, too.
    """
    lines = [line for line in journal() if request in (line.get("msg_id"), *line.get("msg_ids", ()))]
    lines = [line for line in lines if line["event"] != "begun_outside" and line.get("status") != "observed_ok"]
    return [line["event"] + (f" {line['status']}" if "status" in line else "") for line in lines]


def journalled(request, *words):
    until(f"{words} in the journal", lambda: events(request) == list(words))


def waits(*words):
    return json.loads(nb(*words, "--json", *AGENT, expect=None))


def wait_behind(window):
    """Begins an agent's cell, and sends a person's cell, which waits; returns its request and the agent's job."""
    window.run("x = 1")
    code = "import time\nwhile True: time.sleep(0.01)"
    job = json.loads(nb("run", "-n", NOTEBOOK, "-d", code, "--json", *AGENT))["job"]
    window.client.wait(
        "the agent's cell", lambda _, m: m.type == "execute_input" and "while" in m.content["code"]
    )
    request = window.execute(CODE)
    journalled(request, "queued")
    return request, job


def main():
    options = arguments(case="restart")
    nb("insert", NOTEBOOK, "-s", CODE, *AGENT)
    with Window(options.kernel, NOTEBOOK).ready() as window:
        if options.case in ("held", "late"):
            {"held": held, "late": late}[options.case](window)
            window.close()
            return
        request, job = wait_behind(window)
        if options.case in ENDS:
            ended(window, request, *ENDS[options.case])
        elif options.case == "withdrawn":
            withdrawn(window, request, job)
        else:
            seen(window, request, job)
        window.close()


def ended(window, request, end, word):
    end()
    reply, iopub = window.client.finish(request)
    text = reply.content["evalue"]
    assert reply.content["status"] == "error" and word in text, reply
    assert [m.content["evalue"] for m in iopub if m.type == "error"] == [text]
    say(text)
    journalled(request, "queued", "done aborted")
    nb("open", NOTEBOOK, "--python", PYTHON)
    assert window.run("print('x' in globals())").endswith("False\n")
    assert not RAN.exists(), "it ran on the next kernel"
    assert not waits("jobs")["waits"]


def seen(window, request, job):
    """Each command of the agent shows who waits, until the cell is sent."""
    cell = json.loads(nb("cells", NOTEBOOK, "--json", *AGENT))["cells"][0]
    # As many letters of the id as it takes: one that begins with four digits is not cut there.
    text = waits("status", NOTEBOOK)["sessions"][0]["waits"][0]["text"]
    short = text.removeprefix("human (VS Code), cell 0 · ")
    assert cell["id"].startswith(short) and len(short) < len(text), text
    for found in (
        waits("status", NOTEBOOK)["sessions"][0]["waits"],
        waits("jobs")["waits"],
        waits("wait", job, "--timeout", "0.2")["waits"],
    ):
        assert [it["text"] for it in found] == [text], found
        assert (found[0]["cell"], found[0]["index"], found[0]["msg_id"]) == (cell["id"], 0, request), found
    for words in (("status", NOTEBOOK), ("jobs",)):
        assert f"waits: {text}\n" in nb(*words, *AGENT), words
    told_in_each_answer(job, f"human (VS Code) waits with cell 0 · {short} behind your cell")
    refused = waits("restart", NOTEBOOK)
    assert "which waits for the kernel" in json.dumps(refused), refused
    nb("interrupt", job, *AGENT)
    reply, _ = window.client.finish(request)
    assert reply.content["status"] == "ok" and RAN.exists(), reply
    journalled(request, "queued", "requested", "done ok")
    assert not waits("jobs")["waits"]


def told_in_each_answer(job, line):
    """Each answer to the agent says who waits behind its cell, by each door; none to others does."""
    shell = (("cells", NOTEBOOK), ("cell", NOTEBOOK, "0"), ("log", NOTEBOOK), ("wait", job, "--timeout", "0.2"))
    for words in shell * 3:
        assert said(*words, *AGENT).count(line) == 1, words
        assert line not in said(*words, "--as", "bob"), words
    assert [it["cell"] for it in waits("cells", NOTEBOOK)["waits_behind_you"]]
    calls = [
        ("get_notebook_state", {}),
        ("read_cell", {"cell": 0}),
        ("history", {"action": "log"}),
        ("get_run_status", {}),
    ] * 3
    for name, told in (("ada", 1), ("bob", 0)):
        for text in answers(name, calls):
            assert text.count(line) == told, (name, text)


def said(*words):
    done = subprocess.run([os.environ["NB_TEST_BINARY"], *words], capture_output=True, text=True)
    return done.stdout + done.stderr


def answers(name, calls):
    """Returns the texts of the answers of `nb mcp` to calls, one after the other."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    requests = [("initialize", hello)]
    requests += [("tools/call", {"name": tool, "arguments": {"notebook": NOTEBOOK, **more}}) for tool, more in calls]
    with subprocess.Popen(
        [os.environ["NB_TEST_BINARY"], "mcp", "--as", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        for number, (method, params) in enumerate(requests):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            print(json.dumps(message), file=server.stdin, flush=True)
            answer = json.loads(server.stdout.readline())
            assert answer["id"] == number, answer
            if number == 0:
                print('{"jsonrpc": "2.0", "method": "notifications/initialized"}', file=server.stdin, flush=True)
            else:
                yield "".join(block["text"] for block in answer["result"]["content"])
        server.stdin.close()


def held(window):
    """Nothing is written into the notebook from the moment when a person's cell waits until it has ended."""
    agents = "import os, time\nn = 0\nwhile not os.path.exists('go'): n += 1; print(n); time.sleep(0.05)\nprint('over')"
    nb("insert", NOTEBOOK, "-s", agents, *AGENT)
    cell = json.loads(nb("cells", NOTEBOOK, "--json", *AGENT))["cells"][1]["id"]
    window.run("x = 1")
    job = json.loads(nb("exec", "-n", NOTEBOOK, cell, "-d", "--json", *AGENT))["job"]
    until("the first outputs", lambda: cells()[1]["outputs"])
    request = window.execute("while not os.path.exists('on'): time.sleep(0.01)")
    journalled(request, "queued")
    record = pathlib.Path(".nb/jobs") / job / "job.json"
    why = until("they are held back", lambda: json.loads(record.read_text())["cells"][0].get("unwritten"))
    say(why)
    assert "human (VS Code)'s cell" in why and "written once it has ended" in why, why
    unchanged = pathlib.Path(NOTEBOOK).read_bytes()
    assert "over" not in str(cells()[1]["outputs"])
    (flushed,) = waits("save", NOTEBOOK)["flushed"]
    assert [it["why"] for it in flushed["unwritten"]] == [why], flushed
    # The agent's cell ends, and the person's runs.
    pathlib.Path("go").touch()
    journalled(request, "queued", "requested")
    done = waits("wait", job)
    assert done["cells"][0]["status"] == "ok" and "has not ended" in done["cells"][0]["unwritten"], done
    assert pathlib.Path(NOTEBOOK).read_bytes() == unchanged
    assert json.loads(record.read_text())["held"]
    pathlib.Path("on").touch()
    reply, _ = window.client.finish(request)
    assert reply.content["status"] == "ok", reply
    until("its outputs are written", lambda: "over" in str(cells()[1]["outputs"]))
    until("nothing is held back", lambda: "held" not in json.loads(record.read_text()))


def late(window):
    """Outputs that come after the end of their job are held back like others."""
    wait = "while not os.path.exists('{}'): await asyncio.sleep(0.01)"
    task = f"async def late():\n    {wait.format('go')}\n    print('late')"
    task = f"import asyncio, os\n{task}\n_ = asyncio.create_task(late())"
    nb("insert", NOTEBOOK, "-s", task, *AGENT)
    cell = json.loads(nb("cells", NOTEBOOK, "--json", *AGENT))["cells"][1]["id"]
    window.run("x = 1")
    job = json.loads(nb("exec", "-n", NOTEBOOK, cell, "--json", *AGENT))["job"]
    assert cells()[1]["execution_count"] == 2
    record = pathlib.Path(".nb/jobs") / job / "job.json"
    request = window.execute(wait.format("on"))
    journalled(request, "requested")
    pathlib.Path("go").touch()
    until("they are held back", lambda: json.loads(record.read_text()).get("held"))
    assert not cells()[1]["outputs"]
    pathlib.Path("on").touch()
    window.client.finish(request)
    until("they are written", lambda: "late" in str(cells()[1]["outputs"]))
    until("nothing is held back", lambda: "held" not in json.loads(record.read_text()))


def cells():
    return json.loads(pathlib.Path(NOTEBOOK).read_text())["cells"]


def withdrawn(window, request, job):
    window.client.send("control", "interrupt_request", {})
    reply, _ = window.client.finish(request)
    assert reply.content["ename"] == "KeyboardInterrupt", reply
    journalled(request, "queued", "done withdrawn", "withdrew")
    assert not waits("jobs")["waits"]
    nb("interrupt", job, *AGENT)
    assert not RAN.exists(), "it ran after it was withdrawn"


main()

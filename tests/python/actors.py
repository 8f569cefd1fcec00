"""Who ran what: through nb, through the proxy as VS Code and JupyterLab name cells, and directly on the
kernel."""

import collections
import contextlib
import json
import pathlib

from launch import SECONDS, arguments, joined, nb, reply_to, run, state
from raw import Client, connection_file, process
from window import journal

ADDRESS = "vscode-notebook-cell:/t.ipynb#W{}sZmlsZQ%3D%3D"
WAITS = "import os, time\nprint('on', flush=True)\nwhile not os.path.exists('{}'): time.sleep(0.02)"
CELLS = {
    "aaaa1111": "x = 1",
    "bbbb2222": "x += 1",
    "cccc3333": "1/0",
    "dddd4444": WAITS.format("go"),
    "eeee5555": "print('after')",
}


def main():
    options = arguments()
    pathlib.Path("t.ipynb").write_text(notebook())
    nb("status", "--as", "codex")
    nb("exec", "t.ipynb", "aaaa", "--as", "claude")
    nb("run", "scratch = 1", "--as", "claude")
    at_front_ends(options.kernel)
    assert codes(log("--since", "last", "--by", "human", "--as", "codex")) == ["x += 1", "x = 1", "1/0"]
    assert stale() == {
        "bbbb2222": "ran_after", "cccc3333": "failed", "dddd4444": "not_run", "eeee5555": "not_run",
    }, stale()
    in_the_next_cells_way()
    before_the_recorder_came()

    ran = log()
    executions = [
        (name(entry["by"]), entry["cell"], entry["code"], entry["status"], entry["past_nb"]) for entry in ran
    ]
    # The console's cell and the job's next one were both in the kernel's queue: the log has them in the
    # order of their requests.
    past = executions.index(("ada", None, "past = 2", "ok", True))
    assert past in (8, 9), executions
    executions.insert(8, executions.pop(past))
    assert executions == [
        ("claude", "aaaa1111", "x = 1", "ok", False),
        ("claude", None, "scratch = 1", "ok", False),
        ("human", "bbbb2222", "x += 1", "ok", False),
        ("human", "aaaa1111", "x = 1", "ok", False),
        ("human", "cccc3333", "1/0", "error", False),
        ("ada", None, "past = 1", "ok", True),
        ("ada", None, "past / 0", "error", True),
        ("claude", "dddd4444", CELLS["dddd4444"], "ok", False),
        ("ada", None, "past = 2", "ok", True),
        ("claude", "eeee5555", CELLS["eeee5555"], "ok", False),
        ("ada", None, None, "ok", True),
        ("claude", "eeee5555", CELLS["eeee5555"], "ok", False),
    ], json.dumps(executions, indent=1)
    jobs = {entry["job"] for entry in ran if entry["by"] == "claude" and entry["cell"]}
    assert None not in jobs and len(jobs) == 3, ran
    took = [entry["took_ms"] for entry in ran if entry["code"]]
    assert all(isinstance(one, int) for one in took), took
    assert codes(log("--by", "human")) == ["x += 1", "x = 1", "1/0"]
    assert {entry["by"] for entry in log("--by", "agent")} == {"claude"}
    assert codes(log("--by", "ada")) == ["past = 1", "past / 0", "past = 2", None]
    lines = nb("log", "t.ipynb").splitlines()
    assert sum("straight on the kernel" in line for line in lines) == 4, lines
    once()

    # All cells and code of all actors, on the next kernel.
    nb("restart", "--as", "claude", "--force")
    replay = json.loads(nb("exec", "t.ipynb", "--replay", "--json", "--as", "claude"))["replay"]
    again = ["aaaa1111", "bbbb2222", "aaaa1111", "dddd4444", "eeee5555", "eeee5555"]
    assert (replay["cells"], replay["failed"], replay["scratch"]) == (again, ["cccc3333"], 5), replay
    assert nb("run", "x").strip() == "1"


def notebook():
    cells = [
        {"cell_type": "code", "id": id, "metadata": {}, "source": source, "outputs": [], "execution_count": None}
        for id, source in CELLS.items()
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def at_front_ends(kernel):
    """The proxy runs, and observes a console that is connected directly to the kernel."""
    path = connection_file()
    with process(kernel, path), Client(path) as client:
        client.get_ready()
        client.run("front_ends_own = 1", store_history=False)
        client.run("x += 1", metadata={"cellId": "bbbb2222"})
        client.run("x = 1", metadata={"cellId": ADDRESS.format(0)})
        client.finish(client.execute("1/0", metadata={"cellId": ADDRESS.format(2)}))
        with straight() as console:
            run(console, "past = 1")
            assert reply_to(console, console.execute("past / 0"))["content"]["ename"] == "ZeroDivisionError"
        # The proxy writes what it observes after it has forwarded the messages.
        while [entry["status"] for entry in log("--by", "ada")] != ["ok", "error"]:
            pass


def in_the_next_cells_way():
    """A recorder runs: between its two cells the kernel runs a console's."""
    job = json.loads(nb("exec", "t.ipynb", "dddd", "eeee", "-d", "--json", "--as", "claude"))["job"]
    with straight(ready=False) as console:
        while not any(entry["code"] == CELLS["dddd4444"] for entry in log()):
            pass
        request = console.execute("past = 2")
        # The kernel has received it once it answers a later message.
        console.control_channel.send(console.session.msg("kernel_info_request"))
        console.get_control_msg(timeout=SECONDS)
        pathlib.Path("go").touch()
        reply_to(console, request)
        nb("wait", job)


def before_the_recorder_came():
    with straight() as console:
        request = console.execute(WAITS.format("go2"))
        until(console, request, "on")
        job = json.loads(nb("exec", "t.ipynb", "eeee", "-d", "--json", "--as", "claude"))["job"]
        while not json.loads(nb("jobs", "--json"))["jobs"][-1].get("behind"):
            pass
        pathlib.Path("go2").touch()
        reply_to(console, request)
        nb("wait", job)


@contextlib.contextmanager
def straight(ready=True):
    """A console that uses the connection file of the kernel itself; its user calls herself ada."""
    with joined(state()["connection_file"], ready) as console:
        console.session.username = "ada"
        yield console


def until(client, request, text):
    while True:
        message = client.get_iopub_msg(timeout=SECONDS)
        if message["parent_header"].get("msg_id") == request and text in message["content"].get("text", ""):
            return


def log(*words):
    return [entry for entry in json.loads(nb("log", "t.ipynb", "--json", *words))["log"] if entry["event"] == "ran"]


def stale():
    """The cells that are out of date, whoever ran them, with the reasons."""
    cells = json.loads(nb("cells", "t.ipynb", "--stale", "--json"))["cells"]
    return {cell["id"]: cell["stale"]["why"] for cell in cells}


def codes(ran):
    return [entry["code"] for entry in ran]


def name(by):
    return "human" if by.startswith("human (") else by


def once():
    """Each execution is in the journal once for each process that reports it."""
    entries = journal()
    keys = collections.Counter(
        (entry["generation"], entry["msg_id"], entry["event"]) for entry in entries if entry["event"] in ("requested", "begun_outside")
    )
    assert max(keys.values()) == 1, keys
    asked = [entry for entry in entries if entry["event"] == "requested"]
    # What a front end runs for itself is recorded without its code.
    assert all(bool(entry.get("code")) == entry.get("store_history", True) for entry in asked), asked


main()

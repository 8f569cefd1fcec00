"""A kernel that ends under a front end: what its cells read, and what starts another kernel."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import psutil
from launch import SECONDS, arguments, nb, say, state, until
from raw import Client, argv, connection_file
from window import Window, journal, session_of

PYTHON = os.environ["NB_TEST_PYTHON"]
NOTEBOOK = "t.ipynb"


def main():
    options = arguments(case="killed")
    cases = {
        "killed": killed, "agents": agents, "stopped": stopped, "restarted": restarted,
        "launched": launched, "attached": attached,
    }  # fmt: skip
    cases[options.case](options.kernel)


def stderr(iopub):
    streams = [m.content for m in iopub if m.type == "stream"]
    return "".join(s["text"] for s in streams if s["name"] == "stderr")


def kill(pid):
    dead = psutil.Process(pid)
    os.kill(pid, signal.SIGKILL)
    dead.wait(SECONDS)


def running(window, code):
    request = window.execute(f"print('on', flush=True)\n{code}")
    window.client.wait(
        "the cell runs", lambda _, m: m.type == "stream" and m.parent.get("msg_id") == request
    )
    # Who records the kernel's end takes the cell from the journal, which the proxy writes a moment later.
    until("it is in the journal", lambda: request in [line.get("msg_id") for line in journal()])
    return request


def refused(window, request, *words):
    """Checks that the request fails with an error that a person can read; returns its text."""
    reply, iopub = window.client.finish(request)
    assert reply.content["status"] == "error", reply
    for word in words:
        assert word in reply.content["evalue"], reply.content
    assert [m.content["evalue"] for m in iopub if m.type == "error"] == [reply.content["evalue"]]
    return reply.content["evalue"]


def noticed(window, code, *words):
    """Checks that the cell runs, and that its stderr begins with these words. Returns its stdout."""
    request = window.execute(code)
    reply, iopub = window.client.finish(request)
    assert reply.content["status"] == "ok", reply
    text = stderr(iopub)
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"
    say(f"stderr: {text.strip()}")
    return "".join(m.content["text"] for m in iopub if m.type == "stream" and m.content["name"] == "stdout")


def quiet(window, code):
    reply, iopub = window.client.finish(window.execute(code))
    assert reply.content["status"] == "ok", reply
    assert not stderr(iopub), stderr(iopub)


def killed(kernel):
    with Window(kernel, NOTEBOOK).ready() as window, Window(kernel, NOTEBOOK).ready() as other:
        for number in (1, 2):
            quiet(window, f"x = {number}")
            quiet(other, "y = 1")
            pid = session_of(NOTEBOOK)["pid"]
            request = running(window, "import time; time.sleep(600)")
            kill(pid)
            began = time.monotonic()
            text = refused(window, request, "died", "variables are gone", "next cell")
            say(f"the cell ended {(time.monotonic() - began) * 1000:.0f} ms after the kill")
            # Only a cell starts another kernel.
            reply, _ = window.client.finish(
                window.client.send("shell", "complete_request", {"code": "pri", "cursor_pos": 3})
            )
            assert (reply.type, reply.content["status"]) == ("complete_reply", "error"), reply
            record = session_of(NOTEBOOK)
            assert record["status"] == "died", record
            assert record["ended"]["cell"], record["ended"]
            reply, _ = window.client.finish(window.client.execute("1", store_history=False))
            assert reply.content["status"] == "error", reply
            assert session_of(NOTEBOOK)["status"] == "died", "a cell of the front end's own revived it"

            began = time.monotonic()
            printed = noticed(window, "print('x' in globals())", "died at", "human (VS Code)", "variables are gone")
            assert printed == "False\n", printed
            say(f"the next cell ran on another kernel after {time.monotonic() - began:.2f} s")
            quiet(window, "1")
            # A client that ran nothing at that time reads it too.
            noticed(other, "1", "died at", "variables are gone")
            quiet(other, "1")
            record = session_of(NOTEBOOK)
            assert (record["status"], record["generation"]) == ("live", number + 1), record
            say(f"round {number}: {text}")
        for one in (window, other):
            assert len(one.client.sessions) == 1, one.client.sessions
            one.close()
    events = [line["event"] for line in journal()]
    assert events.count("died") == 2, events


def agents(kernel):
    """The kernel dies in an agent's cell: the person reads whose cell it was."""
    with Window(kernel, NOTEBOOK).ready() as window:
        quiet(window, "x = 1")
        pid = session_of(NOTEBOOK)["pid"]
        environment = {**os.environ, "NB_AS": "ada"}
        agent = subprocess.Popen(
            [os.environ["NB_TEST_BINARY"], "run", "-n", NOTEBOOK, "while True: pass"],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            window.client.wait(
                "the agent's cell", lambda _, m: m.type == "execute_input" and "while" in m.content["code"]
            )
            kill(pid)
            agent.wait(SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                agent.kill()
            agent.wait(SECONDS)
        # A cell that was sent before is refused: it would have run on the old kernel.
        until("the proxy knows", lambda: "died at" in pathlib.Path(".nb/proxy.log").read_text())
        noticed(window, "1", "died at", "ada", "(job ", "--replay")
        window.close()


def stopped(kernel):
    with Window(kernel, NOTEBOOK).ready() as window:
        quiet(window, "x = 1")
        nb("shutdown", NOTEBOOK, "--force")
        for _ in range(3):
            text = refused(window, window.execute("print(x)"), "shut down", "nb open")
        assert session_of(NOTEBOOK)["status"] == "stopped"
        nb("open", NOTEBOOK, "--python", PYTHON)
        printed = noticed(window, "print('x' in globals())", "shut down", "variables are gone")
        assert printed == "False\n", printed
        quiet(window, "1")
        window.close()
    say(text)


def restarted(kernel):
    """An agent restarts the kernel while a window is open."""
    with Window(kernel, NOTEBOOK).ready() as window:
        quiet(window, "x = 1")
        nb("restart", NOTEBOOK, "--force", "--as", "ada")
        printed = noticed(window, "print('x' in globals())", "restarted at", "by ada", "variables are gone")
        assert printed == "False\n", printed
        quiet(window, "1")
        # A running cell is interrupted and not just killed, so that it can clean up.
        running(window, "import time\ntry: time.sleep(600)\nfinally: open('tidied', 'w')")
        nb("restart", NOTEBOOK, "--force", "--as", "ada")
        assert os.path.exists("tidied"), "the cell was killed"
        noticed(window, "1", "restarted at", "by ada")
        window.close()


def launched(kernel):
    """A front end that connects to a dead kernel gets another one, and reads why."""
    kill(session_of(NOTEBOOK)["pid"])
    with Window(kernel, NOTEBOOK).ready() as window:
        noticed(window, "x = 1", "died at", "variables are gone")
        quiet(window, "x")
        window.close()
    nb("shutdown", NOTEBOOK)
    with Window(kernel, NOTEBOOK).ready() as window:
        quiet(window, "x = 1")
        window.close()
    assert session_of(NOTEBOOK)["status"] == "live"
    # The process that restarted it was killed, and nobody waits for that.
    kill(session_of(NOTEBOOK)["pid"])
    file = pathlib.Path(".nb/state.json")
    file.write_text(json.dumps(state() | {"sessions": {NOTEBOOK: session_of(NOTEBOOK) | {"status": "restarting"}}}))
    with Window(kernel, NOTEBOOK).ready() as window:
        assert window.run("print(6 * 7)") == "42\n"
        window.close()


def attached(kernel):
    """No new kernel is started in place of one that another program started."""
    path = connection_file()
    other = subprocess.Popen(
        [PYTHON, "-m", "ipykernel_launcher", "-f", str(path)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        nb("open", "a.ipynb", "--attach", path)
        not_restarted(kernel, "a.ipynb")
        with Window(kernel, "a.ipynb").ready() as window:
            assert window.run("print(x)") == "1\n"
            request = running(window, "import time; time.sleep(600)")
            other.kill()
            other.wait(SECONDS)
            refused(window, request, "kernel")
            for _ in range(2):
                text = refused(window, window.execute("1"), "nb open")
            window.close()
        nb("shutdown", "a.ipynb")
    finally:
        other.kill()
        other.wait(SECONDS)
    say(text)


def not_restarted(kernel, notebook):
    """A restart of it by a Jupyter server, and by VS Code, is refused, and the user reads why."""
    environment = {"JPY_SESSION_NAME": notebook, "JPY_PARENT_PID": str(os.getpid())}
    path = connection_file()
    for number in (1, 2):
        command, own = argv(kernel, path)
        child = subprocess.Popen(command, env={**own, **environment}, stdin=subprocess.DEVNULL)
        with Client(path) as client:
            client.get_ready()
            reply, iopub = client.finish(client.execute("x = 1" if number == 1 else "print(x)"))
            assert reply.content["status"] == "ok", reply
            if number == 1:
                client.send("control", "shutdown_request", {"restart": True})
            else:
                assert "not restarted" in stderr(iopub), iopub
                child.terminate()
            child.wait(SECONDS)
    with Window(kernel, notebook).ready() as window:
        quiet(window, "x")
        window.terminate()
        with Window(kernel, notebook, window.session).ready() as again:
            assert noticed(again, "print(x)", "not restarted") == "1\n"
            again.close()
        window.wait_for_end()


main()

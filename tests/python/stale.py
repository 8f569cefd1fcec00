"""A live pid that is not our kernel does not count as a kernel, and is never signalled."""

import json
import os
import pathlib
import signal
import subprocess

import psutil
from launch import SECONDS, arguments, nb, say, state, until
from raw import Client, argv, connection_file, process, stdout
from window import journal

STATE = pathlib.Path(".nb/state.json")


def main():
    options = arguments()
    nb("open", "t.ipynb", "--python", os.environ["NB_TEST_PYTHON"])
    innocent = subprocess.Popen(["sleep", "600"])
    try:
        reused(options.kernel, innocent)
        bare(options.kernel, innocent)
    finally:
        innocent.kill()
        innocent.wait(SECONDS)


def unharmed(innocent, after):
    assert innocent.poll() is None, f"{after} hit somebody else's process: {innocent.returncode}"


def reused(kernel, innocent):
    """The kernel has died and its pid is now another process's: the start time shows that."""
    pid = state()["kernel_pid"]
    dead = psutil.Process(pid)
    os.kill(pid, signal.SIGKILL)
    dead.wait(SECONDS)
    text = STATE.read_text()
    assert f": {pid}" in text or f":{pid}" in text, text
    changed = text.replace(f": {pid}", f": {innocent.pid}").replace(f":{pid}", f":{innocent.pid}")
    STATE.write_text(changed)
    for words in (["status"], ["interrupt", "t.ipynb"], ["run", "-n", "t.ipynb", "1"],
                  ["restart", "t.ipynb"], ["shutdown", "t.ipynb"]):  # fmt: skip
        STATE.write_text(changed)
        output = nb(*words, expect=None)
        unharmed(innocent, f"nb {' '.join(words)}")
        say(f"  nb {' '.join(words)}: {output.strip()[:200]!r}")
    STATE.write_text(changed)
    command, environment = argv(kernel, connection_file())
    done = subprocess.run(
        command, env=environment | {"NB_AUTOSTART": "0"}, capture_output=True, text=True,
        timeout=SECONDS, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode > 0 and "nb open" in done.stderr, done
    unharmed(innocent, "nb-proxy")
    nb("open", "t.ipynb", "--python", os.environ["NB_TEST_PYTHON"])
    assert "42" in nb("run", "-n", "t.ipynb", "print(6 * 7)")
    path = connection_file()
    with process(kernel, path), Client(path) as client:
        client.get_ready()
        assert client.run("print(6 * 7)") == "42\n"
        # The proxy is killed here: what it has not written by then is not known later.
        until("the end of the cell in the journal", lambda: journal()[-1]["event"] == "done")
    unharmed(innocent, "nb open")
    nb("shutdown", "t.ipynb")
    say("a reused pid: told apart, never signalled")


def bare(kernel, innocent):
    """A state with only the three keys, a live pid, and nobody at the sockets."""
    kept = STATE.read_bytes()
    own = connection_file()
    STATE.write_text(
        json.dumps({"notebook": "t.ipynb", "connection_file": str(own), "kernel_pid": innocent.pid})
    )
    try:
        for words in (["status"], ["interrupt"], ["run", "1"], ["shutdown"]):
            nb(*words, expect=None, env={**os.environ, "NB_TIMEOUT": "5"})
            unharmed(innocent, f"nb {' '.join(words)}")
        path = connection_file()
        command, environment = argv(kernel, path)
        child = subprocess.Popen(
            command, env=environment | {"NB_AUTOSTART": "0"}, stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            # The process may end with a message, or wait for the kernel and report that in the cell.
            with Client(path) as client:
                request = client.execute("print(1)")
                while child.poll() is None:
                    client.pump(0.5)
                    replies = [m for m in client.received["shell"] if m.parent["msg_id"] == request]
                    if replies:
                        assert replies[0].content["status"] == "error", replies
                        assert stdout(client.received["iopub"]) == ""
                        break
                else:
                    assert child.returncode > 0 and child.stderr.read().strip(), child.returncode
        finally:
            child.kill()
            child.wait(SECONDS)
        unharmed(innocent, "nb-proxy")
    finally:
        STATE.write_bytes(kept)
    say("a live pid behind a dead connection file: never signalled")


main()

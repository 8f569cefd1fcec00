"""A front end on a kernel of a server: nb-proxy, which has no client of servers, lets nb start and restart it."""

import json
import os
import pathlib
import signal

import psutil
from launch import SECONDS, arguments, say
from raw import argv
from window import Window

NOTEBOOK = "t.ipynb"


def main():
    options = arguments()
    with Window(options.kernel, NOTEBOOK).ready() as window:
        assert window.run("x = 5\nprint(x)") == "5\n"
        window.terminate()
        with Window(options.kernel, NOTEBOOK, window.session).ready() as again:
            assert again.run("print('x' in globals())\nx = 6") == "False\n"
            again.close()
        window.wait_for_end()
    say("the front end has restarted the kernel")
    kill_the_bridge()
    with Window(options.kernel, NOTEBOOK).ready() as window:
        assert window.run("print(x)") == "6\n"
        window.close()
    say("its bridge was started again")
    words, _ = argv(options.kernel, "file")
    pathlib.Path(words[0]).with_name("nb").unlink()
    kill_the_bridge()
    with Window(options.kernel, NOTEBOOK).ready() as window:
        request = window.execute("print(x)")
        reply, _ = window.client.finish(request)
        assert reply.content["status"] == "error", reply
        for part in ("its kernel is on the server gpu", "there is no nb at", "nb serve"):
            assert part in reply.content["evalue"], reply.content
        say(reply.content["evalue"])


def kill_the_bridge():
    """Kills the process that holds the connection to the server, and its supervisor before."""
    state = json.loads(pathlib.Path(".nb/state.json").read_text())
    session = state["sessions"][NOTEBOOK]
    pid_file = pathlib.Path(session["connection_file"]).with_suffix(".pid")
    record = json.loads(pid_file.read_text())
    bridge, supervisor = psutil.Process(record["pid"]), psutil.Process(record["supervisor"]["pid"])
    for process in (supervisor, bridge):
        os.kill(process.pid, signal.SIGKILL)
    bridge.wait(SECONDS)


main()

"""An environment without ipykernel that was not chosen is named in the first cell, and only there."""

import itertools
import os
import subprocess

from launch import SECONDS, arguments, nb, say
from raw import Client, connection_file, process

PYTHON = os.environ["NB_TEST_PYTHON"]


def main():
    options = arguments()
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", ".venv"], check=True)
    os.environ["JPY_SESSION_NAME"] = os.path.realpath("t.ipynb")
    path = connection_file()
    with process(options.kernel, path) as child, Client(path) as client:
        client.get_ready()
        first, second = (cell(client) for _ in range(2))
        child.terminate()
        child.wait(SECONDS)
    name, text = first[0]
    venv = os.path.realpath(".venv")
    assert name == "stderr", first
    assert text.startswith(f"[nb] {venv} has no ipykernel and was passed over; to use it: "), first
    assert first[1:] == second == [("stdout", "42\n")], (first, second)
    nb("shutdown", "t.ipynb")
    say(text)


def cell(client):
    reply, iopub = client.finish(client.execute("print(6 * 7)"))
    assert reply.content["status"] == "ok", reply
    # The kernel may send a line in several messages.
    streams = itertools.groupby((m.content for m in iopub if m.type == "stream"), lambda s: s["name"])
    return [(name, "".join(s["text"] for s in parts)) for name, parts in streams]


main()

"""An editor's extension speaks with `nb live` on a comm of the shared kernel, as JupyterLab's does.

It is answered while the kernel is busy, without a status; the kernel can send nothing in its place; and once the last
editor has gone, a recorder takes the outputs of the cell that still runs.
"""

import json
import pathlib
import uuid

import nbformat
from launch import arguments, say, until
from raw import Client, connection_file, process

COMM = f"nb.live-{uuid.uuid4()}"
CELL = "c0"
# It runs until it may end, and tries to speak as `nb live` before.
CODE = f"""import os, time
from comm import create_comm
print('before')
for target, name in [('other', '{COMM}'), ('nb.live', 'x')]:
    forged = create_comm(target_name=target, comm_id=name, data={{}})
    forged.send({{'type': 'forged'}})
    forged.close()
while not os.path.exists('go'):
    time.sleep(0.01)
print('after')
"""


def main(kernel):
    path = pathlib.Path("t.ipynb")
    cell = nbformat.v4.new_code_cell(CODE, id=CELL)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    connection = connection_file()
    with process(kernel, connection), Client(connection) as client:
        client.get_ready()
        request = client.execute(CODE, metadata={"cellId": CELL})
        until("output", lambda: any(is_printed(message, request) for message in pumped(client)))
        say("the kernel is busy")
        client.send("shell", "comm_open", {"comm_id": COMM, "target_name": "nb.live", "data": {}})
        tells(client, {"type": "initialize", "editor": "a test", "can": ["change"]})
        until("initialized", lambda: any(it["type"] == "initialized" for it in told(client)))
        opened = {"cell": CELL, "id": CELL, "cell_type": "code", "source": CODE}
        tells(client, {"type": "open", "doc": "1", "notebook": str(path.absolute()), "cells": [opened], "dirty": False})
        until("synced", lambda: any(it["type"] == "synced" for it in told(client)))
        say("it is answered while the kernel is busy")
        everything = client.received["iopub"]
        assert not any(it["type"] == "forged" for it in told(client)), told(client)
        opened = [m for m in everything if m.type == "comm_open"]
        assert not opened, opened
        # Else a front end would show the busy kernel as idle.
        idle = [m for m in everything if m.type == "status" and m.content["execution_state"] == "idle"]
        assert not any(m.parent.get("msg_type", "").startswith("comm_") for m in idle), idle
        client.send("shell", "comm_close", {"comm_id": COMM, "data": {}})
        until("a recorder", lambda: list(pathlib.Path(".nb/jobs").glob("*/ready")))
        say("a recorder takes over")
        assert not list(pathlib.Path(".nb/live").glob("*.json"))
        pathlib.Path("go").touch()
        until("the outputs", lambda: printed(path) == "before\nafter\n")


def tells(client, data):
    client.send("shell", "comm_msg", {"comm_id": COMM, "data": data})


def pumped(client):
    client.pump(0.05)
    return client.received["iopub"]


def told(client):
    """What came on the comm."""
    return [m.content["data"] for m in pumped(client) if m.type == "comm_msg" and m.content["comm_id"] == COMM]


def is_printed(message, request):
    return message.type == "stream" and message.parent.get("msg_id") == request


def printed(path):
    [cell] = json.loads(path.read_text())["cells"]
    return "".join("".join(output.get("text", "")) for output in cell["outputs"])


if __name__ == "__main__":
    main(arguments().kernel)

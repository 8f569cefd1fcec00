"""What a proxy reports about itself: its record, its log on SIGUSR1, `nb status --json`."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

from launch import SECONDS, arguments, until
from raw import Client, connection_file, process

NB = pathlib.Path(".nb")


def main():
    options = arguments()
    path = connection_file()
    with contextlib.ExitStack() as stack:
        child = stack.enter_context(process(options.kernel, path))
        client = stack.enter_context(Client(path))
        client.get_ready()
        record(child, client)
        at_once(child, client)
        shown()
        child.terminate()
        child.wait(SECONDS)
        assert not (NB / f"proxies/{child.pid}.json").exists()


def counted(child):
    return json.loads((NB / f"proxies/{child.pid}.json").read_text())["counters"]


def record(child, client):
    before = until("something is counted", lambda: counted(child))
    for _ in range(20):
        client.run("print('not to be told')")
    asked = before["from_clients"]["shell"]["messages"] + 20
    now = until(
        "twenty cells are counted",
        lambda: (counters := counted(child))["from_clients"]["shell"]["messages"] >= asked and counters,
    )
    assert now["to_clients"]["iopub"]["messages"] >= before["to_clients"]["iopub"]["messages"] + 80
    assert now["from_kernel"]["iopub"]["bytes"] > now["from_kernel"]["iopub"]["messages"]
    assert now["to_kernel"]["shell"]["messages"] >= asked
    assert now["subscribers"] >= 1
    assert now["lost"] == now["cut"] == now["restarts"] == 0
    text = (NB / f"proxies/{child.pid}.json").read_text()
    assert "not to be told" not in text


def at_once(child, client):
    """SIGUSR1 writes both, with everything that came before it."""
    client.run("1")
    lines = (NB / "proxy.log").read_text().count("counters")
    child.send_signal(signal.SIGUSR1)
    until("a line of counters", lambda: (NB / "proxy.log").read_text().count("counters") > lines)
    last = [line for line in (NB / "proxy.log").read_text().splitlines() if "counters" in line][-1]
    assert "published=" in last and "lost=0" in last and f"[{child.pid}]" in last, last


def shown():
    command = [os.environ["NB_TEST_BINARY"], "status", "t.ipynb", "--json"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    joined = json.loads(output.stdout)["sessions"][0]["joined"]
    assert [it["counters"]["lost"] for it in joined] == [0], joined


main()

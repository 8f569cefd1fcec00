"""Somebody who is stopped holds a lock of the project: no front end waits for that.

`--file` names the file in `.nb` that is locked.
"""

import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import time

from launch import arguments, say, until
from raw import Client, connection_file, process

HOLDS = """
import fcntl, os, signal, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""

# More than any cell here needs, and less than anybody waits for a lock that is stuck.
STALL = 5


def main():
    options = arguments(file="journal.jsonl")
    nb = pathlib.Path(".nb")
    paths = [connection_file(), connection_file()]
    with process(options.kernel, paths[0]), process(options.kernel, paths[1]):
        with Client(paths[0]) as one, Client(paths[1]) as other:
            one.get_ready()
            other.get_ready()
            one.run("1")
            command = [sys.executable, "-c", HOLDS, str(nb / options.file)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder, killed(holder):
                assert holder.stdout.readline() == "held\n"
                longest = 0.0
                for number in range(20):
                    for client in (one, other):
                        began = time.monotonic()
                        assert client.run(f"print({number})", STALL) == f"{number}\n"
                        longest = max(longest, time.monotonic() - began)
                say(f"the longest of 40 cells took {longest:.3f} s")
                if options.file == "journal.jsonl":
                    until("the log tells", lambda: "has been locked" in (nb / "proxy.log").read_text())
                    assert f"process {holder.pid}" in (nb / "proxy.log").read_text()
            until("both have written all", lambda: ended(nb) >= 41)


@contextlib.contextmanager
def killed(process):
    """Kills the process at the end: a stopped one never ends by itself."""
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)


def ended(nb):
    lines = (nb / "journal.jsonl").read_text().splitlines()
    entries = map(json.loads, lines)
    return sum(it["event"] == "done" and it.get("status") == "ok" for it in entries)


main()

"""A stopped process holds locks of the project, and no front end waits for them.

`--file` names the file in `.nb` that is locked; `all` means every file that exists. The number to look
at is the longest wait that is printed with `--cells` of 500 on an idle machine.
"""

import contextlib
import pathlib
import signal
import subprocess
import sys
import time

from launch import arguments, say, until
from raw import Client, connection_file, process
from window import journal

HOLDS = """
import fcntl, os, signal, sys
files = [open(name, "a") for name in sys.argv[1:]]
for file in files:
    fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""

# More than any cell here needs, and less than the time for which anybody waits for a stuck lock.
STALL = 5


def main():
    options = arguments(file="journal.jsonl", cells=20)
    nb = pathlib.Path(".nb")
    paths = [connection_file(), connection_file()]
    with process(options.kernel, paths[0]), process(options.kernel, paths[1]):
        with Client(paths[0]) as one, Client(paths[1]) as other:
            one.get_ready()
            other.get_ready()
            one.run("1")
            files = [nb / options.file]
            if options.file == "all":
                files = [path for path in nb.rglob("*") if path.is_file()]
                say(f"held: {', '.join(sorted(str(path) for path in files))}")
            command = [sys.executable, "-c", HOLDS, *map(str, files)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder, killed(holder):
                assert holder.stdout.readline() == "held\n"
                cells = Longest("cells")
                for number in range(options.cells):
                    for client in (one, other):
                        with cells:
                            assert client.run(f"print({number})", STALL) == f"{number}\n"
                interrupts, joins = Longest("interrupts"), Longest("joins")
                for _ in range(max(1, options.cells // 50)):
                    request = one.execute("import time; print('on', flush=True); time.sleep(60)")
                    mine = lambda _, message: message.type == "stream" and message.parent.get("msg_id") == request
                    one.wait("it runs", mine)
                    with interrupts:
                        one.send("control", "interrupt_request")
                        reply, _ = one.finish(request, STALL)
                        assert reply.content["status"] == "error", reply
                    with joins, Client(paths[1]) as new:
                        new.get_ready(STALL)
                    assert new.received["iopub"], new.received
                if options.file in ("journal.jsonl", "all"):
                    until("the log tells", lambda: "has been locked" in (nb / "proxy.log").read_text())
                    assert f"process {holder.pid}" in (nb / "proxy.log").read_text()
            # Each proxy keeps 1,000 entries in memory: two for each of its cells, and two for each of the
            # other's.
            kept = min(2 * options.cells, 480)
            until("both have written what they keep", lambda: ended() > kept)


class Longest:
    """Measures how long the longest of many steps took."""

    def __init__(self, subject):
        self.subject, self.seconds = subject, []

    def __enter__(self):
        self.began = time.monotonic()

    def __exit__(self, *_):
        self.seconds.append(time.monotonic() - self.began)
        if len(self.seconds) in (1, 10, 40, 1000):
            middle = sorted(self.seconds)[len(self.seconds) // 2]
            say(f"{len(self.seconds)} {self.subject}: {middle:.3f} s, {max(self.seconds):.3f} s at most")


@contextlib.contextmanager
def killed(process):
    """Kills the process at the end, since a stopped one never ends by itself."""
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)


def ended():
    return sum(entry["event"] == "done" and entry.get("status") == "ok" for entry in journal())


main()

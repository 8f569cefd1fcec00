"""A front end leaves while a cell runs: another process has to record what its cells print from then on.

`--how` says how it leaves: `ends` (SIGTERM of its process), `killed` (-9), `early` (-9
before anything is stored), `asks-killed` (-9 while a cell waits for input), `leaves` (its connections
close, the process stays), `stays` (likewise; the cell then asks a question, which `nb reply` answers),
`queue` (SIGTERM with more cells in the kernel's queue), `asks` (SIGTERM while a cell waits for input),
`dies` (the client is another process, killed with -9; the cell ends `--after` so many seconds), `stands`
(likewise, but it is stopped first and killed once the cell has ended), `reads` (SIGTERM once the client
has read the cell's end), `reloads` (SIGTERM, and another process of it runs a cell, which reports the
first one's outputs). The notebook's cells have ids `c0`, `c1`...; the caller looks for their output in
the notebook.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

from launch import SECONDS, arguments, say, until
from raw import Client, connection_file, process

options = arguments(how="ends", seed=0, code="", lines=50, connection="", after=0)
chance = random.Random(options.seed)


def runs(client, cell, code):
    return client.execute(code, metadata={"cellId": cell})


def is_handed_over(job):
    return json.loads(job.read_text())["front_end"]["whole"]


def printed(client, request):
    return sum(
        m.content["text"].count("\n")
        for m in client.received["iopub"]
        if m.type == "stream" and m.parent.get("msg_id") == request
    )


def answer():
    """Lets the cell ask a question, and answers as another actor, while the kernelspec's process still
    runs."""
    [job] = [ready.parent for ready in pathlib.Path(".nb/jobs").glob("*/ready")]
    pathlib.Path("go").touch()
    nb = os.environ["NB_TEST_BINARY"]
    wait = subprocess.run([nb, "wait", job.name, "--timeout", "60"], capture_output=True, text=True)
    assert wait.returncode == 7 and "name? " in wait.stdout + wait.stderr, wait
    subprocess.run([nb, "reply", job.name, "Bob"], check=True)
    subprocess.run([nb, "wait", job.name, "--timeout", "60"], check=True)


def editor():
    """A client in a separate process: runs the cells and reads all messages until it is killed."""
    client = Client(pathlib.Path(options.connection))
    client.get_ready()
    [code] = [code.encode().decode("unicode_escape") for code in options.code.split("|||")]
    request = runs(client, "c0", code)
    client.wait("a line", lambda *_: printed(client, request) >= 1)
    print("runs", flush=True)
    while True:
        client.pump(1)


def after_editor(path, stands):
    """Lets an editor run the cell and leave. The cell ends once there is a file `go`, and then makes a
    file `ended`."""
    command = [sys.executable, *sys.argv, "--how", "editor", "--connection", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "runs\n"
        child.send_signal(signal.SIGSTOP if stands else signal.SIGKILL)
        if not stands:
            child.wait(SECONDS)
        time.sleep(options.after)
        pathlib.Path("go").touch()
        until("the cell's end", pathlib.Path("ended").exists)
        nb = os.environ["NB_TEST_BINARY"]
        log = [nb, "log", "-n", "t.ipynb", "--json"]
        until(
            "the proxy has the end",
            lambda: '"status":"ok"' in subprocess.run(log, capture_output=True, text=True).stdout,
        )
        if stands:
            # The proxy checks more than once whether the editor has read the end.
            time.sleep(options.after)
            child.kill()
    until("a recorder has the cell", lambda: list(pathlib.Path(".nb/jobs").glob("*/over")))


def main():
    path = connection_file()
    if options.how in ("dies", "stands"):
        with process(options.kernel, path):
            return after_editor(path, options.how == "stands")
    cells = [code.encode().decode("unicode_escape") for code in options.code.split("|||")]
    with process(options.kernel, path) as child:
        client = Client(path)
        client.get_ready()
        requests = [runs(client, f"c{at}", code) for at, code in enumerate(cells)]
        if options.how == "reads":
            client.finish(requests[0])
        elif options.how in ("asks", "asks-killed"):
            client.wait("a question", lambda channel, _: channel == "stdin")
        else:
            many = 1 if options.how == "early" else chance.randint(1, options.lines)
            client.wait(
                f"{many} lines", lambda *_: printed(client, requests[0]) >= many, 2 * SECONDS
            )
        if options.how == "killed":
            # The messages of a long cell are stored in a file.
            kept = pathlib.Path(".nb/front_end_outputs")
            has_lines = lambda f: all(rf"{n}\n" in f.read_text() for n in range(3))
            client.wait("what is kept", lambda *_: any(map(has_lines, kept.glob("*/events.jsonl"))))
        if options.how in ("early", "asks-killed"):
            event = "prompted" if options.how == "asks-killed" else "requested"
            log = pathlib.Path(".nb/journal.jsonl")
            until("the journal", lambda: f'"event":"{event}"' in log.read_text())
        began = time.monotonic()
        if options.how in ("leaves", "stays"):
            for s in client.sockets.values():
                s.close()
            # The kernelspec's process stays until it has handed everything over; the caller waits for the job.
            end = time.monotonic() + 2 * SECONDS
            while not any(is_handed_over(job) for job in pathlib.Path(".nb/jobs").glob("*/job.json")):
                assert time.monotonic() < end, "nobody took the cell over"
                time.sleep(0.05)
            say(f"handed over after {time.monotonic() - began:.1f} s")
            if options.how == "stays":
                answer()
            return
        is_killed = options.how in ("killed", "early", "asks-killed")
        child.send_signal(signal.SIGKILL if is_killed else signal.SIGTERM)
        child.wait(SECONDS)
        say(f"gone after {(time.monotonic() - began) * 1000:.0f} ms, {child.returncode}")
    if options.how == "reloads":
        path = connection_file()
        with process(options.kernel, path):
            client = Client(path)
            client.get_ready()
            request, again = runs(client, "c1", "1"), runs(client, "c1", "2")
            pathlib.Path("go").touch()
            client.finish(request)
            client.finish(again)
            [notice] = [
                m for m in client.received["iopub"]
                if m.type == "stream" and "ran on while this window was away" in m.content["text"]
            ]
            assert notice.parent["msg_id"] == request, notice
            assert "File: Revert File" in notice.content["text"], notice


editor() if options.how == "editor" else main()

"""Runs tests one by one, each in a process of its own, and measures each.

The CPU time of a test is that of all processes that it started, also of those that left its process group.
"""

import collections
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

PR_SET_CHILD_SUBREAPER = 36
# How long the processes of a test may run after it (seconds).
SECONDS_AFTER = 15

Test = collections.namedtuple("Test", "binary folder name")
Run = collections.namedtuple("Run", "test passed wall cpu left output")


def binaries(arguments=()):
    """Builds the tests and returns their programs, by name."""
    command = ["cargo", "test", "--no-run", "--message-format=json", *arguments]
    messages = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    found = {}
    for message in map(json.loads, messages.splitlines()):
        if message.get("executable") and message.get("profile", {}).get("test"):
            target = message["target"]
            # The library and a program of the root package have one name.
            name = "lib" if "lib" in target["kind"] and target["name"] == "nb" else target["name"]
            found[name] = (message["executable"], os.path.dirname(message["manifest_path"]))
    return found


def tests(words, programs):
    """Returns the tests whose names contain one of the words; all for no words. Ignored tests are left out."""
    found = []
    for binary, (program, folder) in programs.items():
        def names(*arguments):
            command = [program, "--list", "--format=terse", *arguments]
            lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, cwd=folder).stdout
            return [line[: -len(": test")] for line in lines.splitlines() if line.endswith(": test")]

        ignored = set(names("--ignored"))
        for name in names():
            full = f"{binary} {name}"
            if name not in ignored and (not words or any(word in full for word in words)):
                found.append(Test(program, folder, name))
    return found


def children():
    """Returns the processes whose parent is this process."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                after_name = file.read().rsplit(")", 1)[1].split()
            if int(after_name[1]) == os.getpid() and after_name[0] != "Z":
                found.append(int(pid))
        except OSError:
            pass
    return found


def measure(test, output):
    """Runs a test in this process, which has no other children, and returns its figures."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    start = time.monotonic()
    environment = {**os.environ, "CARGO_MANIFEST_DIR": test.folder}
    process = subprocess.Popen(
        [test.binary, "--exact", test.name, "--nocapture"],
        cwd=test.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )
    # What the test's processes have left ends as a child of this one.
    pid = status = None
    while pid != process.pid:
        pid, status = os.waitpid(-1, 0)
    wall = time.monotonic() - start
    left = []
    end = time.monotonic() + SECONDS_AFTER
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            if time.monotonic() > end:
                for child in children():
                    with open(f"/proc/{child}/cmdline") as file:
                        left.append(file.read().replace("\0", " ").strip())
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.02)
    times = os.times()
    cpu = times.children_user + times.children_system
    return {"passed": status == 0, "wall": wall, "cpu": cpu, "left": left}


def run(test):
    """Runs a test in a process of its own."""
    with tempfile.TemporaryFile() as output:
        me = [sys.executable, __file__, *test, str(output.fileno())]
        figures = subprocess.run(me, stdout=subprocess.PIPE, check=True, pass_fds=[output.fileno()]).stdout
        output.seek(0)
        text = output.read().decode(errors="replace")
    return Run(test, output=text, **json.loads(figures))


def run_all(tests, jobs):
    """Runs tests, some at the same time, and gives each result as it comes."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(run, tests)


if __name__ == "__main__":
    *test, output = sys.argv[1:]
    print(json.dumps(measure(Test(*test), int(output))))

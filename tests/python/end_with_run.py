"""Ends the processes of a run of the tests when the run has ended, and prints what was skipped.

The argument is the beginning of the paths of all folders of the run. The run holds the other end of stdin, and writes a
line there for each skipped test: its name, what is missing, and the package that has it, with tabs between them.
"""

import os
import sys
import time

FOLDERS = os.fsencode(sys.argv[1])
SECONDS = 10


def names_a_folder(pid):
    for name in ("environ", "cmdline"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                if FOLDERS in file.read():
                    return True
        except OSError:
            pass
    try:
        return FOLDERS in os.readlink(f"/proc/{pid}/cwd".encode())
    except OSError:
        return False


def left():
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and names_a_folder(pid)]


skipped = [line.split("\t") for line in sys.stdin.read().splitlines()]
end = time.monotonic() + SECONDS
# A process that was just starting another one is killed before, or the other one is found in the next round.
while time.monotonic() < end and (pids := left()):
    for pid in pids:
        try:
            os.kill(pid, 9)
        except OSError:
            pass

if skipped:
    tests = len({test for test, _, _ in skipped})
    missing = "; ".join(sorted({missing for _, missing, _ in skipped}))
    packages = " ".join(sorted({package for _, _, package in skipped if package}))
    install = f": sudo apt-get install {packages}" if packages else ""
    print(f"skipped on this machine: {tests} test{'s'[: tests - 1]} ({missing}){install}", file=sys.stderr)

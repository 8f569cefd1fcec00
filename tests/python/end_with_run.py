"""Ends the processes of a run of the tests when the run has ended.

The argument is the beginning of the paths of all folders of the run. The run holds the other end of stdin.
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


sys.stdin.buffer.read()
end = time.monotonic() + SECONDS
# A process that was just starting another one is killed before, or the other one is found in the next round.
while time.monotonic() < end and (pids := left()):
    for pid in pids:
        try:
            os.kill(pid, 9)
        except OSError:
            pass

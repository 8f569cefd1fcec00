"""Runs programs alternately and prints their costs as JSON: medians of wall time and of CPU time in
seconds, and of peak memory in KB.

Stdin has `{"runs": 9, "programs": [{"run": ["nb", "edit", "a.ipynb", "0", "x = {run}"]}, …]}`; `{run}`
is the number of the run. Two runs come before, to fill caches and to show what must have been seen. The
lists of commands `before` and `after` are run around each run, and not counted. CPU time and memory are
those of the program and of the children that it waited for.
"""

import json
import os
import statistics
import sys
import tempfile
import time

asked = json.load(sys.stdin)
said = tempfile.NamedTemporaryFile()
silent = [
    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_RDWR, 0),
    (os.POSIX_SPAWN_OPEN, 2, said.name, os.O_WRONLY | os.O_TRUNC, 0),
]


def run(command, number):
    command = [word.replace("{run}", str(number)) for word in command]
    start = time.perf_counter()
    child = os.posix_spawnp(command[0], command, os.environ, file_actions=silent)
    _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - start
    code = os.waitstatus_to_exitcode(status)
    if number >= 0 and code != 0:
        sys.exit(f"{command} ended with {code}: {said.read().decode()}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


taken = [[] for _ in asked["programs"]]
for number in range(-2, asked["runs"]):
    for program, times in zip(asked["programs"], taken):
        for command in program.get("before", []):
            run(command, number)
        took = run(program["run"], number)
        for command in program.get("after", []):
            run(command, number)
        if number >= 0:
            times.append(took)


def summary(times):
    seconds, cpu, peaks = zip(*times)
    return statistics.median(seconds), statistics.median(cpu), max(peaks)


print(json.dumps([summary(times) for times in taken]))

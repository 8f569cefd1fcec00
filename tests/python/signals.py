"""Kills as editors and agents' harnesses do them, by walking parent pids. The kernel stays alive."""

import os
import signal
import subprocess
import threading
import time

import psutil
from launch import SECONDS, arguments, evaluate, joined, nb, say, state
from raw import Client, connection_file, process


def main():
    options = arguments()
    nb("open", "t.ipynb", "--python", os.environ["NB_TEST_PYTHON"])
    nb("run", "-n", "t.ipynb", "kept = 'since before'")
    pid = state()["kernel_pid"]
    front_ends(options.kernel, pid)
    nb("shutdown", "t.ipynb")
    shell()


def front_ends(kernel, pid):
    """SIGTERM to every descendant of the launched process and to it, early and late."""
    for milliseconds in (1, 20, 100, 1000):
        path = connection_file()
        before = path.stat().st_mtime_ns, path.read_bytes()
        with process(kernel, path) as child:
            # The delay itself is tested here: a kill this long after the launch.
            threading.Event().wait(milliseconds / 1000)
            began = terminate_tree(child.pid)
            child.wait(SECONDS)
            took = time.monotonic() - began
        assert (path.stat().st_mtime_ns, path.read_bytes()) == before, "connection file changed"
        alive(pid)
        # 200 ms are promised, but not for a debug build on a busy machine.
        assert took < 20, f"SIGTERM {milliseconds} ms after the launch: gone in {took:.2f} s"
        say(f"SIGTERM {milliseconds} ms after the launch: gone in {took * 1000:.0f} ms")
    # While a cell runs and its output is on the way.
    path = connection_file()
    with process(kernel, path) as child, Client(path) as client:
        client.get_ready()
        request = client.execute("import time\nprint('on', flush=True)\ntime.sleep(1.5)\ndone = 'yes'")
        client.wait("the cell runs", lambda _, m: m.type == "stream" and m.parent.get("msg_id") == request)
        began = terminate_tree(child.pid)
        child.wait(SECONDS)
        took = time.monotonic() - began
    assert took < 20, f"the exit took {took:.2f} s"
    alive(pid)
    with joined(state()["connection_file"]) as client:
        assert evaluate(client, "done") == "yes", "the cell did not run to its end"
    say(f"SIGTERM in mid-cell: gone in {took * 1000:.0f} ms, the cell ran to its end")


def shell():
    """kill -9 of everything that is found by parent pid under a shell that ran `nb open`."""
    command = '"$NB_TEST_BINARY" open t.ipynb --python "$NB_TEST_PYTHON" && echo opened && cat'
    harness = subprocess.Popen(
        ["bash", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        for line in harness.stdout:
            if line == "opened\n":
                break
        else:
            raise AssertionError("nb open failed in the shell")
        pid = state()["kernel_pid"]
        family = kill_family(harness.pid)
    finally:
        harness.kill()
        harness.wait(SECONDS)
    assert pid not in family, "the kernel is a descendant of the shell"
    kernel = psutil.Process(pid)
    assert os.getsid(pid) == pid, f"the kernel's session is {os.getsid(pid)}, not its own"
    with joined(state()["connection_file"]) as client:
        assert evaluate(client, "6 * 7") == 42
    assert kernel.is_running(), "the kernel went with the shell"
    assert "JPY_PARENT_PID" not in kernel.environ()
    output = nb("run", "-n", "t.ipynb", "print('still here')")
    assert "still here" in output, output
    say(f"kill -9 of {len(family)} processes under the shell: kernel {pid} lives on")
    nb("shutdown", "t.ipynb")
    for milliseconds in (5, 50, 300, 700):
        interrupted_open(command, milliseconds)


def interrupted_open(command, milliseconds):
    """kill -9 during `nb open`: the next one repairs what it left."""
    harness = subprocess.Popen(
        ["bash", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        threading.Event().wait(milliseconds / 1000)
        kill_family(harness.pid)
    finally:
        harness.kill()
        harness.wait(SECONDS)
    nb("open", "t.ipynb", "--python", os.environ["NB_TEST_PYTHON"])
    assert "42" in nb("run", "-n", "t.ipynb", "print(6 * 7)")
    nb("shutdown", "t.ipynb")
    say(f"kill -9 {milliseconds} ms into nb open: the next one works")


def kill_family(pid):
    family = [pid] + [p.pid for p in psutil.Process(pid).children(recursive=True)]
    for member in reversed(family):
        try:
            os.kill(member, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return family


def terminate_tree(pid):
    """SIGTERM to every descendant, then to the process; returns when that was."""
    for descendant in psutil.Process(pid).children(recursive=True):
        try:
            descendant.send_signal(signal.SIGTERM)
        except psutil.NoSuchProcess:
            pass
    began = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    return began


def alive(pid):
    assert state()["kernel_pid"] == pid, state()
    output = nb("run", "-n", "t.ipynb", "print(kept)")
    assert "since before" in output, output


main()

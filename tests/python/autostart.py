"""Choosing the kernelspec when no kernel runs starts a kernel, which outlives the front end."""

import os
import signal

import psutil
from launch import SECONDS, arguments, nb, say, state
from raw import Client, connection_file, process

PYTHON = os.environ["NB_TEST_PYTHON"]


def main():
    options = arguments()
    nb("open", "t.ipynb", "--python", PYTHON)
    nb("shutdown", "t.ipynb")
    comes_up(options.kernel, "after nb shutdown")

    pid = state()["kernel_pid"]
    dead = psutil.Process(pid)
    os.kill(pid, signal.SIGKILL)
    dead.wait(SECONDS)
    comes_up(options.kernel, "after a kill -9")


def comes_up(kernel, when):
    path = connection_file()
    with process(kernel, path) as child, Client(path) as client:
        client.get_ready()
        assert client.run("mine = 6 * 7\nprint(mine)") == "42\n"
        pid = int(client.run("import os\nprint(os.getpid())"))
        family = [p.pid for p in psutil.Process(child.pid).children(recursive=True)]
        assert pid not in family, "the kernel is the proxy's descendant"
        child.terminate()
        child.wait(SECONDS)
    assert state()["kernel_pid"] == pid, state()
    assert "42" in nb("run", "-n", "t.ipynb", "print(mine)")
    say(f"{when}: kernel {pid} came up and outlived its front end")


main()

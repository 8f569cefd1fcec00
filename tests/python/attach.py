"""A kernel that jupyter_client started is shared, and never ended, by `nb` and its front ends."""

import json
import os
import pathlib
import subprocess

import psutil
from jupyter_client import KernelManager
from jupyter_core.paths import jupyter_runtime_dir
from launch import PLAIN, SECONDS, arguments, joined, nb, say, state
from raw import Client, connection_file, process


def main():
    options = arguments()
    file = pathlib.Path(jupyter_runtime_dir()).resolve() / "kernel-8a6e-4711.json"
    file.parent.mkdir(exist_ok=True)
    foreign = KernelManager(kernel_name=PLAIN, connection_file=str(file))
    foreign.start_kernel()
    try:
        shared(options, foreign, file)
    finally:
        foreign.shutdown_kernel(now=True)
    kernel_has_died(file)


def shared(options, foreign, file):
    pid = foreign.provisioner.pid
    opened = json.loads(nb("open", "b.ipynb", "--attach", file, "--json"))
    assert opened["owned"] is False and opened["created"] is True, opened
    assert opened["connection_file"] == str(file.resolve()), opened
    assert opened["kernel_generation"] == 1, opened
    notebook = json.loads(pathlib.Path("b.ipynb").read_text())
    assert notebook["metadata"]["kernelspec"]["name"] == PLAIN, notebook
    session = state()["sessions"]["b.ipynb"]
    assert session["transport"] == "tcp", session
    assert session["kernelspec"]["language"] == "python", session
    assert session["kernel_info"]["implementation"] == "ipython", session
    assert os_pid("b.ipynb") == pid
    say("attached by path")

    by_name = json.loads(nb("open", "b.ipynb", "--attach", file.name, "--json"))
    assert by_name["kernel_generation"] == 1, by_name
    nb("open", "c.ipynb", "--attach", "4711")
    assert os_pid("c.ipynb") == pid
    say("attached by name and by a part of it")

    through_the_proxy(options.kernel, pid)
    refused = nb("restart", "b.ipynb", "--json", expect=5)
    assert "not started by nb" in refused, refused
    running = subprocess.Popen(
        [os.environ["NB_TEST_BINARY"], "run", "-n", "b.ipynb", "--stream", SLEEP],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert running.stdout.readline() == "here\n"
    assert json.loads(nb("interrupt", "b.ipynb", "--json"))["mode"] == "message"
    assert running.wait(SECONDS) in (3, 130)
    running.stdout.close()

    output = nb("shutdown", "b.ipynb")
    assert "started by another program and goes on" in output, output
    assert psutil.pid_exists(pid)
    nb("run", "-n", "b.ipynb", "1", expect=6)
    again = json.loads(nb("open", "b.ipynb", "--json"))
    assert again["owned"] is False and os_pid("b.ipynb") == pid, again
    say("let go, and joined again")

    foreign.restart_kernel(now=True)
    with joined(file):
        say("restarted by its own program")
    pid = foreign.provisioner.pid
    assert os_pid("b.ipynb") == pid


def kernel_has_died(file):
    output = nb("status", "b.ipynb", expect=6)
    assert "died" in output, output
    output = nb("open", "b.ipynb", "--json", expect=6)
    assert "answers no more" in output and "--own" in output, output
    nb("open", "c.ipynb", "--attach", file, expect=6)
    own = json.loads(
        nb("open", "b.ipynb", "--own", "--python", os.environ["NB_TEST_PYTHON"], "--json")
    )
    assert own["owned"] is True and own["how"] == "started", own
    assert own["kernel_generation"] > 1, own
    nb("shutdown", "b.ipynb")


SLEEP = "import time\nprint('here', flush=True)\nwhile True: time.sleep(0.01)"


def os_pid(notebook):
    return int(nb("run", "-n", notebook, "import os; print(os.getpid())"))


def through_the_proxy(kernel, pid):
    path = connection_file()
    os.environ["NB_NOTEBOOK"] = "b.ipynb"
    with process(kernel, path) as child, Client(path) as client:
        del os.environ["NB_NOTEBOOK"]
        client.get_ready()
        assert client.run("import os\nprint(os.getpid())") == f"{pid}\n"
        child.terminate()
        child.wait(SECONDS)
    assert psutil.pid_exists(pid)
    say("a front end used it through the proxy and left")


main()

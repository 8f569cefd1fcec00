"""Clients that run a notebook's cells without a person (nbclient, papermill, `jupyter execute`) on the
shared kernel: their end leaves others' cells alone, and they end when the kernel dies.

jupyter_client ends a kernel with an interrupt and a shutdown right after it.
"""

import os
import pathlib
import pty
import subprocess
import sys
import threading

import nbformat
from launch import SECONDS, OwnPortsManager, arguments, joined, launched, say, state
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat.v4 import new_code_cell, new_notebook

DIES = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"


def main():
    options = arguments(case="interrupt", rounds=3)
    cases = {
        "interrupt": interrupt, "two": two, "timeout": timeout, "death": death, "execute": execute,
        "console": console, "script": script, "next": next_cell, "sigterm": sigterm,
    }  # fmt: skip
    cases[options.case](options)


def notebook(*cells):
    return new_notebook(cells=[new_code_cell(cell) for cell in cells])


def batch(options, *cells, **traits):
    return NotebookClient(
        notebook(*cells), kernel_name=options.kernel, kernel_manager_class=OwnPortsManager, timeout=SECONDS, **traits
    )


def fifo(name):
    path = pathlib.Path(name)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


def interrupt(options):
    """Another client's cell waits in the kernel's queue while the last cell of a notebook runs."""
    for number in range(options.rounds):
        begun, go = fifo("begun"), fifo("go")
        client = batch(options, "x = 1", "open('begun', 'w').close(); _ = open('go').read()")
        running = threading.Thread(target=client.execute)
        running.start()
        begun.read_text()
        with joined(state()["connection_file"], ready=False) as other:
            request = other.execute("import time\ntime.sleep(1)\nprint('whole')")
            # The request has reached the kernel: its control thread answers while its shell is busy.
            other.control_channel.send(other.session.msg("kernel_info_request", {}))
            other.get_control_msg(timeout=SECONDS)
            go.write_text("")
            running.join(2 * SECONDS)
            assert not running.is_alive(), "the notebook does not end"
            reply = other.get_shell_msg(timeout=SECONDS)
            assert reply["parent_header"]["msg_id"] == request, reply
            assert reply["content"]["status"] == "ok", f"round {number}: {reply['content']}"
    say(f"{options.rounds} ends beside another's cell, which was whole each time")


def two(options):
    """Two notebooks at once: the end of one leaves the other's cells alone."""
    failed = []

    def run(count):
        try:
            batch(options, *["import time\ntime.sleep(0.3)"] * count).execute()
        except Exception as error:
            failed.append(error)

    for _ in range(options.rounds):
        both = [threading.Thread(target=run, args=[count]) for count in (2, 4)]
        for one in both:
            one.start()
        for one in both:
            one.join(2 * SECONDS)
            assert not one.is_alive(), "a notebook does not end"
        assert not failed, failed


def timeout(options):
    """A cell that takes too long is ended by the client that sent it, and the kernel stays alive."""
    client = batch(options, "while True: pass")
    client.timeout = 1
    try:
        client.execute()
        raise AssertionError("it never ends")
    except CellTimeoutError:
        pass
    with joined(state()["connection_file"]) as other:
        reply = other.execute_interactive("1", timeout=SECONDS)
        assert reply["content"]["status"] == "ok", reply


def death(options):
    """The same as on a kernel of its own: with and without errors allowed, while a cell runs and by a
    restart."""
    for allowed in (False, True):
        client = batch(options, "x = 1", DIES, "print('x' in globals())", allow_errors=allowed)
        try:
            client.execute()
            raise AssertionError("the last cell ran without the variables of the first")
        except DeadKernelError:
            pass
        last = client.nb.cells[-1]
        assert last.execution_count is None and not last.outputs, last
        died = client.nb.cells[1].outputs
        assert [output.ename for output in died] == ["KernelDied"], died
        subprocess.run([os.environ["NB_TEST_BINARY"], "open", "t.ipynb", "--python", sys.executable], check=True)


def execute(options):
    nbformat.write(notebook("x = 1", DIES, "print(x)"), "dies.ipynb")
    program = pathlib.Path(sys.executable).with_name("jupyter-execute")
    done = subprocess.run(
        [program, "--allow-errors", f"--kernel_name={options.kernel}", "--inplace", "dies.ipynb"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * SECONDS,
    )  # fmt: skip
    assert done.returncode == 1, done
    assert "DeadKernelError" in done.stderr, done.stderr
    assert "nb-proxy: The shared kernel" in done.stderr, done.stderr


def console(_):
    """At a terminal there is a person, whose next cell starts another kernel."""
    assert in_terminal("--case", "next") == 0


def script(options):
    """A script could answer a question but has no terminal: each later cell says how to fix it."""
    reply = next_cell(options, check=False)
    assert reply["status"] == "error", reply
    assert "nb open" in reply["evalue"], reply


def next_cell(options, check=True):
    """Runs a cell after the one in which the kernel died."""
    with launched(options.kernel) as manager, joined(manager.connection_file) as client:
        assert client.execute_interactive("x = 1", timeout=SECONDS)["content"]["status"] == "ok"
        reply = client.execute_interactive(DIES, timeout=SECONDS)
        assert reply["content"]["ename"] == "KernelDied", reply
        reply = client.execute_interactive("print('x' in globals())", timeout=2 * SECONDS)
        assert not check or reply["content"]["status"] == "ok", reply
        return reply["content"]


def sigterm(options):
    """jupyverse restarts in this way: the log says why the shared kernel was not restarted."""
    with launched(options.kernel) as manager, joined(manager.connection_file) as client:
        client.execute_interactive("x = 1", timeout=SECONDS)
        manager.provisioner.process.terminate()
        manager.provisioner.process.wait(SECONDS)
    log = pathlib.Path(".nb/proxy.log").read_text()
    assert "SIGTERM came without a shutdown_request" in log, log
    assert "To restart it: nb restart" in log, log


def in_terminal(*words):
    """Runs this script on its own pseudo-terminal; returns its exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, *sys.argv, *words])
    try:
        while os.read(terminal, 4096):
            pass
    except OSError:  # Linux: the other side is closed
        pass
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()

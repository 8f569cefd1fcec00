"""The right kernel: each notebook that a front end opens has its own, in whatever way it is named."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import psutil
from launch import SECONDS, arguments, nb, say, state
from raw import argv, connection_file
from window import Window, journal, session_of

PYTHON = os.environ["NB_TEST_PYTHON"]
# If nothing else selects a Python, the active environment does.
ACTIVE = {"VIRTUAL_ENV": str(pathlib.Path(PYTHON).parent.parent)}
LOG = pathlib.Path(".nb/proxy.log")


def main():
    options = arguments(case="third")
    cases = {
        "third": third, "first": first, "shared": shared, "unnamed": unnamed,
        "refused": refused, "broken": broken, "explicit": explicit,
        "vanished": vanished, "sockets": sockets, "several": several, "lent": lent,
    }  # fmt: skip
    cases[options.case](options.kernel)


def write(notebook):
    path = pathlib.Path(notebook)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))


def third(kernel):
    """A third notebook gets its own kernel, which survives its front end."""
    nb("run", "-n", "t.ipynb", "mine = 't'")
    nb("open", "u.ipynb", "--python", PYTHON)
    nb("run", "-n", "u.ipynb", "mine = 'u'")
    write("third.ipynb")
    for notebook, known in (("third.ipynb", "nobody"), ("t.ipynb", "t"), ("u.ipynb", "u")):
        began = time.monotonic()
        with Window(kernel, notebook, environment=ACTIVE).ready() as window:
            ready = time.monotonic() - began
            printed = window.run("print(globals().get('mine', 'nobody'))")
            took = time.monotonic() - began
            say(f"{notebook}: ready after {ready * 1000:.0f} ms, its first cell ran after {took:.2f} s")
            assert printed == f"{known}\n", f"{notebook}: {printed}"
            window.run(f"mine = {notebook!r}")
            window.close()
        assert notebook in nb("run", "-n", notebook, "print(mine)"), notebook
    pids = {session_of(name)["pid"] for name in ("t.ipynb", "u.ipynb", "third.ipynb")}
    assert len(pids) == 3, pids
    lines = [line for line in LOG.read_text().splitlines() if "--kernel-of" in line]
    assert len(lines) == 1 and "nb open" in lines[0], lines
    say(lines[0])
    nb("shutdown", "u.ipynb")


def first(kernel):
    """Nothing is set up: the front end's first notebook creates the project and its kernel."""
    assert not pathlib.Path(".nb").exists()
    write("t.ipynb")
    with Window(kernel, "t.ipynb", environment=ACTIVE).ready() as window:
        assert window.run("x = 6 * 7\nprint(x)") == "42\n"
        window.close()
    assert "42" in nb("run", "-n", "t.ipynb", "print(x)")
    assert "launched" in LOG.read_text(), "what came before the project was known is not in its log"
    # The same, with names from a Jupyter server.
    write("sub/v.ipynb")
    for name, folder in ((os.path.realpath("sub/v.ipynb"), "sub"), ("sub/v.ipynb", "sub"), ("RTC:sub/v.ipynb", "sub")):
        ran = served(kernel, name, folder, "x = globals().get('x', 0) + 1\nprint(x)")
        say(f"{name}: {ran.strip()}")
    assert ran == "3\n", ran
    assert "3" in nb("run", "-n", "sub/v.ipynb", "print(x)")
    nb("shutdown", "sub/v.ipynb")


def served(kernel, name, folder, code):
    """Runs one cell with a server's environment variables."""
    from raw import Client

    path = connection_file()
    command, own = argv(kernel, path)
    environment = {**own, **ACTIVE, "JPY_SESSION_NAME": name, "JPY_PARENT_PID": str(os.getpid())}
    child = subprocess.Popen(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL)
    try:
        with Client(path) as client:
            client.get_ready()
            return client.run(code)
    finally:
        child.terminate()
        child.wait(SECONDS)


def shared(kernel):
    """`nb open B --kernel-of A`: both notebooks are on A's kernel, also after a restart."""
    nb("run", "-n", "t.ipynb", "mine = 't'")
    nb("open", "b.ipynb", "--kernel-of", "t.ipynb")
    with Window(kernel, "b.ipynb").ready() as window, Window(kernel, "t.ipynb").ready() as owner:
        assert window.run("print(mine)") == "t\n"
        assert owner.run("mine = 'both'\nprint(mine)") == "both\n"
        assert window.run("print(mine)") == "both\n"
        window.terminate()
        with Window(kernel, "b.ipynb", window.session).ready() as again:
            assert again.run("print('mine' in globals())") == "False\n"
            assert session_of("t.ipynb")["generation"] == 2
            # No cell of the other window failed; its next cell reads who has restarted the kernel.
            reply, iopub = owner.client.finish(owner.execute("print('mine' in globals())"))
            assert reply.content["status"] == "ok", reply
            stderr = text_of(iopub, "stderr")
            assert "restarted" in stderr and "human (VS Code)" in stderr, stderr
            again.close()
        window.wait_for_end()
        owner.close()


def lent(kernel):
    """A notebook begins to share a kernel while it is open: its cells then run there."""
    nb("run", "-n", "t.ipynb", "mine = 't'")
    nb("open", "b.ipynb", "--python", PYTHON)
    with Window(kernel, "b.ipynb").ready() as window:
        window.run("mine = 'b'")
        nb("shutdown", "b.ipynb", "--force")
        nb("open", "b.ipynb", "--kernel-of", "t.ipynb")
        reply, iopub = window.client.finish(window.execute("print(mine)"))
        assert text_of(iopub, "stdout") == "t\n", (reply, iopub)
        assert "uses the kernel of t.ipynb" in text_of(iopub, "stderr"), iopub
        window.close()
    asked = [line for line in journal() if line["event"] == "requested" and line.get("code") == "print(mine)"]
    assert [(line["session"], line["generation"]) for line in asked] == [("t.ipynb", 1)], asked


def unnamed(kernel):
    """Nothing names a notebook: the only live kernel is used; once a cell names the notebook, its own."""
    nb("run", "-n", "t.ipynb", "mine = 't'")
    write("other.ipynb")
    with Window(kernel, "other.ipynb", environment=ACTIVE).ready() as window:
        # An interactive window's cells name no notebook.
        reply, iopub = window.client.finish(window.client.execute("print(mine)"))
        assert text_of(iopub, "stdout") == "t\n", (reply, iopub)
        assert window.run("print('mine' in globals())") == "False\n"
        assert session_of("other.ipynb")["pid"] != session_of("t.ipynb")["pid"]
        window.close()
    nb("shutdown", "other.ipynb")


def refused(kernel):
    """`NB_AUTOSTART=0`: no kernel is started; if that is known at launch, the launch says so and ends."""
    write("new.ipynb")
    alone = {"NB_AUTOSTART": "0"}
    command, own = argv(kernel, connection_file())
    named = {"JPY_SESSION_NAME": os.path.realpath("new.ipynb"), "JPY_PARENT_PID": "1"}
    done = subprocess.run(
        command, env={**own, **alone, **named}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 1, done
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 2 and "nb open" in lines[1], done.stderr
    with Window(kernel, "new.ipynb", environment=alone).ready() as window:
        reply, iopub = window.client.finish(window.execute("1"))
        error = reply.content
        assert error["status"] == "error" and "nb open" in error["evalue"], reply
        assert iopub[-1].content.get("execution_state") == "idle", iopub
        window.close()
    assert "new.ipynb" not in state()["sessions"], state()
    say(lines, error["evalue"])


def broken(kernel):
    """No kernel can be started: the cell says why, and the next one tries again."""
    path = pathlib.Path("r.ipynb")
    spec = {"name": "no-such", "display_name": "None", "language": "cobol"}
    content = {"cells": [], "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(content))
    with Window(kernel, "r.ipynb").ready() as window:
        reply, _ = window.client.finish(window.execute("1"))
        error = reply.content
        assert error["status"] == "error" and "cobol" in error["evalue"], reply
        assert "nb open" in error["evalue"], reply
        nb("open", "r.ipynb", "--python", PYTHON)
        assert window.run("print(6 * 7)") == "42\n"
        window.close()
    nb("shutdown", "r.ipynb")
    say(error["evalue"])


def explicit(kernel):
    """NB_NOTEBOOK names the kernel, whatever notebook the front end has open."""
    nb("run", "-n", "t.ipynb", "mine = 't'")
    write("other.ipynb")
    with Window(kernel, "other.ipynb", environment={"NB_NOTEBOOK": "t.ipynb"}).ready() as window:
        assert window.run("print(mine)") == "t\n"
        window.terminate()
        # It can be restarted like any other.
        again = Window(kernel, "other.ipynb", window.session, environment={"NB_NOTEBOOK": "t.ipynb"})
        with again.ready():
            assert again.run("print('mine' in globals())") == "False\n"
            again.close()
        window.wait_for_end()
    assert "other.ipynb" not in state()["sessions"]


def vanished(kernel):
    """The runtime folders are removed, as at the last logout, and the installed program too."""
    folder = pathlib.Path(os.environ["TMPDIR"]) / "runtime"
    runtime = {name: str(folder / name) for name in ("XDG_RUNTIME_DIR", "JUPYTER_RUNTIME_DIR")}
    for path in runtime.values():
        pathlib.Path(path).mkdir(parents=True, mode=0o700)
    nb("shutdown", "t.ipynb")
    nb("open", "t.ipynb", env={**os.environ, **runtime})
    with Window(kernel, "t.ipynb", environment=runtime).ready() as window:
        window.run("mine = 1")
        shutil.rmtree(folder)
        assert window.run("print(mine)") == "1\n"
        with Window(kernel, "t.ipynb", environment=runtime).ready() as other:
            assert other.run("print(mine)") == "1\n"
            other.close()
        assert "1" in nb("run", "-n", "t.ipynb", "print(mine)", env={**os.environ, **runtime})
        # A running proxy no longer needs its program file: it can still start a kernel.
        pathlib.Path(window.child.exe()).unlink()
        os.kill(session_of("t.ipynb")["pid"], signal.SIGKILL)
        while True:
            reply, _ = window.client.finish(window.execute("print('mine' in globals())"))
            if reply.content["status"] == "ok":
                break
            assert reply.content["ename"] == "KernelDied", reply
        window.close()
    nb("serve")
    with Window(kernel, "t.ipynb", environment=runtime).ready() as window:
        assert window.run("print(6 * 7)") == "42\n"
        window.close()


def several(kernel):
    """Notebooks opened and closed one after another leave their kernels running until somebody ends
    them."""
    names = [f"n{number}.ipynb" for number in range(4)]
    for name in names:
        write(name)
        with Window(kernel, name, environment=ACTIVE).ready() as window:
            window.run(f"mine = {name!r}")
            window.close()
    pids = {session_of(name)["pid"] for name in names}
    assert len(pids) == len(names) and all(psutil.pid_exists(pid) for pid in pids), pids
    listed = nb("status", "--all")
    assert all(name in listed for name in names), listed
    assert "n2.ipynb" in nb("run", "-n", "n2.ipynb", "print(mine)")
    ended = nb("shutdown", "--idle", "0s")
    left = [name for name in names if session_of(name)["status"] != "stopped"]
    assert not left and not any(map(runs, pids)), (left, ended)
    say(listed)


def runs(pid):
    """Says whether the process runs; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def sockets(kernel):
    """The kernel lives but its sockets are removed: the message says so, and how to make them again."""
    info = json.loads(pathlib.Path(session_of("t.ipynb")["connection_file"]).read_text())
    for number in range(1, 6):
        pathlib.Path(f"{info['ip']}-{number}").unlink()
    with Window(kernel, "t.ipynb") as window:
        window.ready()
        reply, _ = window.client.finish(window.execute("1"))
        error = reply.content
        assert error["status"] == "error" and "nb restart" in error["evalue"], reply
        nb("restart", "t.ipynb", "--force")
        reply, iopub = window.client.finish(window.execute("print(6 * 7)"))
        assert text_of(iopub, "stdout") == "42\n", (reply, iopub)
        window.close()
    say(error["evalue"])


def text_of(iopub, name):
    streams = [m.content for m in iopub if m.type == "stream"]
    return "".join(s["text"] for s in streams if s["name"] == name)


sys.exit(main())

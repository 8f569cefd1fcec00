"""A chosen kernelspec keeps working: after `cargo clean`, after an upgrade of nb, and without a runtime
folder, which systemd removes at the last logout."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
from unittest import mock

import psutil
from launch import SECONDS, arguments, nb, say, state
from raw import Client, argv, connection_file, process

TESTED = pathlib.Path(os.environ["NB_TEST_BINARY"])
OPEN = ["open", "t.ipynb", "--json", "--python", os.environ["NB_TEST_PYTHON"]]


def main():
    options = arguments()
    work = pathlib.Path("..").resolve()
    cleaned(options.kernel, work / "target")
    upgraded(options.kernel, work)
    logged_out(options.kernel, work / "run-user")
    nb("shutdown", "t.ipynb")


def run(program, *words):
    done = subprocess.run(
        [program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@contextlib.contextmanager
def front_end(kernel):
    path = connection_file()
    # Behind a Jupyter server there is a person, so a dead kernel is started again.
    server = {"JPY_SESSION_NAME": os.path.realpath("t.ipynb"), "JPY_PARENT_PID": str(os.getpid())}
    with contextlib.ExitStack() as stack:
        with mock.patch.dict(os.environ, server):
            child = stack.enter_context(process(kernel, path))
        client = stack.enter_context(Client(path))
        client.get_ready()
        yield client
        child.terminate()
        child.wait(SECONDS)


def pid(client):
    return int(client.run("import os\nprint(os.getpid())"))


def next_pid(client):
    try:
        return pid(client)
    except AssertionError as error:
        # The cell was sent before anybody knew that the kernel had ended; the next one starts another
        # kernel.
        assert "KernelDied" in str(error), error
        return pid(client)


def cleaned(kernel, folder):
    folder.mkdir()
    build = folder / "nb"
    shutil.copy2(TESTED, build)
    served = run(build, "serve", "--json")
    opened = run(build, *OPEN)
    chosen, _ = argv(kernel, "f")
    shutil.rmtree(folder)
    assert chosen[0] == served["program"] and argv(kernel, "f")[0] == chosen
    with front_end(kernel) as client:
        assert pid(client) == opened["kernel_pid"]
        # The started kernel's supervisor is this program too, whose first file no longer exists.
        dies(opened["kernel_pid"])
        assert next_pid(client) != opened["kernel_pid"]
    say("cargo clean: the chosen kernel works")


def dies(pid):
    dead = psutil.Process(pid)
    os.kill(pid, signal.SIGKILL)
    dead.wait(SECONDS)


def upgraded(kernel, work):
    newer = work / "newer"
    shutil.copy2(TESTED, newer)
    with newer.open("ab") as file:
        # An ELF file may have any bytes after its end.
        file.write(b"another version")
    before, _ = argv(kernel, "f")
    with front_end(kernel) as client:
        assert client.run("mine = 42\nprint(mine)") == "42\n"
        old = pid(client)
        served = run(newer, "serve", "--json")
        assert served["changed"] is True, served
        assert pathlib.Path(served["program"]).read_bytes() == newer.read_bytes()
        assert argv(kernel, "f")[0] == before, "VS Code would not know it again"
        assert client.run("print(mine)") == "42\n"
        with front_end(kernel) as other:
            assert other.run("print(mine)") == "42\n" and pid(other) == old
        # The program file of the old proxy no longer exists.
        dies(old)
        assert next_pid(client) != old
    answer = run(newer, "status", "--json")
    assert answer["spec"]["state"] == "good", answer
    say("an upgrade: running and new front ends work")
    nb("serve")


def logged_out(kernel, folder):
    jupyters = folder / "jupyter"
    jupyters.mkdir(parents=True)
    nb("shutdown", "t.ipynb")
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    os.environ["JUPYTER_RUNTIME_DIR"] = str(jupyters)
    opened = json.loads(nb(*OPEN))
    assert list(jupyters.iterdir()), "other clients would not find it"
    shutil.rmtree(folder)
    assert json.loads(nb(*OPEN))["kernel_pid"] == opened["kernel_pid"]
    assert "42" in nb("run", "-n", "t.ipynb", "print(6 * 7)")
    pathlib.Path("connections").mkdir()
    os.environ["JUPYTER_RUNTIME_DIR"] = "connections"
    with front_end(kernel) as client:
        assert pid(client) == opened["kernel_pid"]
    del os.environ["XDG_RUNTIME_DIR"]
    restarted = json.loads(nb("restart", "t.ipynb", "--json"))
    assert restarted["kernel_pid"] == state()["kernel_pid"] != opened["kernel_pid"]
    assert "42" in nb("run", "-n", "t.ipynb", "print(6 * 7)")
    say("no runtime folder: nothing is missed")


main()

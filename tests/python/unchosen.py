"""A notebook of a stranger's folder is shown in JupyterLab, which starts the kernel that the notebook names: no
program of the folder runs, before a person chooses it."""

import json
import os
import pathlib
import shlex
import sys
from unittest import mock

from launch import SECONDS, arguments, nb, say
from raw import Client, connection_file, process, stdout

CANARY = pathlib.Path("../canary").resolve()


def main():
    options = arguments()
    CANARY.mkdir()
    hostile()
    notebook("first.ipynb", "nb-shared", "python")
    first = shown(options.kernel, "first.ipynb")
    assert f"This kernel runs {sys.executable}, not {pathlib.Path('.venv/bin/python').resolve()}: " in first, first
    choice = first.split("when you choose it: ")[1].splitlines()[0]
    # That start is no choice of a person, neither for the next notebook nor after the kernel's end.
    notebook("second.ipynb", "NB-Shared", "python")
    shown(options.kernel, "second.ipynb")
    nb("shutdown", "first.ipynb")
    shown(options.kernel, "first.ipynb")
    # Kernelspecs of the folder: by their language, and by a name that the notebook gets later.
    for name, spec in [("r.ipynb", "nb-shared-r"), ("named.ipynb", "folders-own")]:
        notebook(name, spec, "R")
        failed(options.kernel, name)
    assert not list(CANARY.iterdir()), sorted(CANARY.iterdir())

    # What the first cell says chooses the folder's Python: the traps work.
    shutdown, opened = choice.split(" && ")
    nb(*shlex.split(shutdown)[1:])
    nb(*shlex.split(opened)[1:], expect=1)
    assert list(CANARY.iterdir()), choice
    say(choice)


def trap(path, start="#!/bin/sh\n"):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{start}touch {CANARY}/{str(path).replace('/', '_')}\n")
    path.chmod(0o755)


def hostile():
    for name in ("python", "python3", "git", "nb"):
        trap(f".venv/bin/{name}")
    pathlib.Path(".venv/pyvenv.cfg").write_text("home = /usr/bin\n")
    packages = pathlib.Path(".venv/lib/python3.13/site-packages")
    packages.mkdir(parents=True)
    (packages / "ipykernel_launcher.py").write_text("")
    for prefix in ("env", ".conda", ".pixi/envs/default"):
        trap(f"{prefix}/bin/python")
        pathlib.Path(prefix, "conda-meta").mkdir()
        trap(f"{prefix}/etc/conda/activate.d/x.sh", "")
    # Beside the notebook, where `python -m` looks first.
    for module in ("ipykernel_launcher", "runpy", "sitecustomize", "IPython", "zmq", "traitlets"):
        pathlib.Path(f"{module}.py").write_text(f"open({str(CANARY / module)!r}, 'w')\n")
    for prefix, name in [(".venv", "ir"), (".venv", "folders-own"), (".conda", "folders-own")]:
        trap("kernel.sh")
        spec = {"argv": [os.path.abspath("kernel.sh"), "{connection_file}"], "language": "R"}
        folder = pathlib.Path(prefix, "share/jupyter/kernels", name)
        folder.mkdir(parents=True)
        (folder / "kernel.json").write_text(json.dumps({"display_name": name, **spec}))
    variables = f"VIRTUAL_ENV={os.path.abspath('.venv')}\nJUPYTER_PATH={os.path.abspath('.venv/share/jupyter')}\n"
    pathlib.Path(".env").write_text(variables)
    # Another's folder of nb, with a kernel and settings.
    pathlib.Path(".nb").mkdir()
    pathlib.Path(".nb/id").write_text("0123456789abcdef0123456789abcdef")
    argv = [os.path.abspath(".venv/bin/python"), "{connection_file}"]
    kernelspec = {"name": "python3", "display_name": "", "argv": argv, "language": "python"}
    session = {
        "notebook": os.path.abspath("first.ipynb"), "connection_file": "", "status": "stopped",
        "backend": {"kind": "attached", "host": {}}, "kernelspec": kernelspec,
    }  # fmt: skip
    state = {"version": 1, "sessions": {"first.ipynb": session}}
    pathlib.Path(".nb/state.json").write_text(json.dumps(state))
    settings = f"[kernel_env]\nPYTHONPATH = {os.getcwd()!r}\n"
    pathlib.Path(".nb/config.toml").write_text(settings)


def notebook(name, spec, language):
    metadata = {
        "kernelspec": {"name": spec, "display_name": spec, "language": language},
        "language_info": {"name": language},
    }
    content = {"cells": [], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    pathlib.Path(name).write_text(json.dumps(content))


def server(name):
    """The variables that a Jupyter server sets, of which this process is one."""
    variables = {"JPY_SESSION_NAME": os.path.realpath(name), "JPY_PARENT_PID": str(os.getpid())}
    return mock.patch.dict(os.environ, variables)


def shown(kernel, name):
    """Shows a notebook in JupyterLab; returns what its first cell prints."""
    path = connection_file()
    with server(name), process(kernel, path) as child, Client(path) as client:
        client.get_ready()
        request = client.execute("import os, sys; print(sys.executable, sys.path.count(''))", silent=True)
        client.finish(request)
        ran = sorted(CANARY.iterdir())
        assert not ran, f"{name}: {ran}"
        reply, iopub = client.finish(client.execute("print(__import__('sys').executable)"))
        assert reply.content["status"] == "ok", reply
        assert sys.executable in stdout(iopub), iopub
        child.terminate()
        child.wait(SECONDS)
    return "".join(m.content["text"] for m in iopub if m.type == "stream")


def failed(kernel, name):
    """Shows a notebook whose kernel would be one of the folder's."""
    path = connection_file()
    with server(name), process(kernel, path) as child, Client(path) as client:
        # The subscription may come after the other sockets, and what was published before is not received.
        client.get_ready()
        reply, _ = client.finish(client.execute("1"))
        assert reply.content["status"] == "error", reply
        child.terminate()
        child.wait(SECONDS)


main()

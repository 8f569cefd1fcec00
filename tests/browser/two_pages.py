"""Two browsers have a notebook open in JupyterLab with nb's extension: what an agent does and what each person saves is in
both pages and in the file once. With jupyter-collaboration all goes through its room."""

import json
import os
import pathlib
import sys

from lab import SECONDS, SHARED, Server, begin, chromium, expect, nb, say, until, write
from live import no_dialog, records
from tab import Notebook

SIZE = {"width": 1100, "height": 900}
PATH = "room.ipynb"
SPEC = {"name": "nb-shared", "display_name": SHARED}
ALONE = """() => {
    const { model } = window.jupyterapp.shell.currentWidget.context;
    return !model.collaborative || [...model.sharedModel.awareness.getStates().values()].filter(it => it.user).length === 1;
}"""
CODE = "import time\nfor n in range(3):\n    print('line', n, flush=True)\n    time.sleep(1)\n'end'"


def main():
    expect.set_options(timeout=1000 * SECONDS)
    nb("serve", "--jupyterlab")
    write(PATH, "first = 1  # ", "second = 1  # ", "agent = 1", kernelspec=SPEC)
    nb("open", PATH, "--python", os.environ["NB_TEST_PYTHON"])
    with Server() as server, chromium() as browser:
        books = []
        for _ in range(2):
            page = browser.new_context(viewport=SIZE).new_page()
            books.append(Notebook(page, server, PATH))
            books[-1].is_idle()
        until(lambda: len([it for it in records() if json.loads(it)["notebooks"]]) == 2)
        edits(books)
        runs(books)
        books[1].page.close()
        until(lambda: len(records()) == 1)
        alone(books[0])


def cells():
    return json.loads(pathlib.Path(PATH).read_text())["cells"]


def sources():
    return ["".join(cell["source"]) for cell in cells()]


def edits(books):
    say("an agent edits, inserts, moves and removes while two people type")
    for at, book in enumerate(books):
        book.source(at).click()
        book.page.keyboard.press("Control+End")
    agent = cells()[2]["id"]
    for count in range(1, 4):
        edit = begin("edit", PATH, agent, f"agent = {count}")
        while edit.poll() is None:
            for book in books:
                book.page.keyboard.type("x", delay=30)
        assert edit.returncode == 0
        nb("insert", PATH, "--at", "0", f"new = {count}")
    nb("rm", PATH, "0")
    nb("move", PATH, "1", "--to", "0")
    typed = [book.source(at + 2).inner_text().strip() for at, book in enumerate(books)]
    # One after the other: JupyterLab asks when the file changes while it saves, which two saves of one moment do.
    for at, book in enumerate(books):
        no_dialog(book)
        book.save()
        for other in books:
            expect(other.source(at + 2)).to_contain_text(typed[at])
        until(lambda: typed[at] in sources())
    say(typed)
    wanted = ["new = 1", "new = 2", *typed, "agent = 3"]
    for book in books:
        for at, text in enumerate(wanted):
            expect(book.source(at)).to_contain_text(text)
    until(lambda: sources() == wanted)
    assert all("x" in text for text in typed), typed
    for book in books:
        no_dialog(book)
    log = nb("log", PATH)
    assert log.count("claude") >= 8, log


def runs(books):
    say("an agent runs a cell while two pages are there")
    nb("edit", PATH, cells()[4]["id"], CODE)
    nb("exec", PATH, cells()[4]["id"])
    outputs = cells()[4]["outputs"]
    assert "".join(outputs[0]["text"]) == "line 0\nline 1\nline 2\n" and len(outputs) == 2, outputs
    for book in books:
        book.ends(4, "'end'")
        assert book.cell(4).locator(".jp-OutputArea").inner_text().count("line 1") == 1
        expect(book.page.locator(".nb-running")).to_have_count(0)


def alone(book):
    say("and while one is there: it shows the outputs while the cell runs")
    # A room knows of a page that has gone after half a minute.
    book.page.wait_for_function(ALONE, timeout=1000 * SECONDS)
    running = begin("exec", PATH, cells()[4]["id"])
    expect(book.page.locator(".nb-running")).to_contain_text("claude")
    expect(book.cell(4).locator(".jp-InputPrompt")).to_contain_text("*")
    expect(book.cell(4).locator(".jp-OutputArea")).to_contain_text("line 1")
    assert running.poll() is None, "it was shown at its end only"
    assert running.wait(SECONDS) == 0
    book.ends(4, "'end'")
    assert book.cell(4).locator(".jp-OutputArea").inner_text().count("line 1") == 1
    until(lambda: len(cells()[4]["outputs"]) == 2)
    book.save()
    no_dialog(book)


if __name__ == "__main__":
    sys.exit(main())

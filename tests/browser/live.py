"""A tab of JupyterLab with nb's extension: what others write appears in it, and what the person types is kept."""

import contextlib
import json
import os
import pathlib
import signal
import sys
import time

from lab import SECONDS, SHARED, Server, begin, chromium, expect, nb, say, until, write
from tab import PLAIN, Notebook

SIZE = {"width": 1100, "height": 900}
PATH = "live.ipynb"
SPEC = {"name": "nb-shared", "display_name": SHARED}


def main():
    expect.set_options(timeout=1000 * SECONDS)
    say(nb("serve", "--jupyterlab"))
    write(PATH, "human = 1", "agent = 1", "last = 1", kernelspec=SPEC)
    nb("open", PATH, "--python", os.environ["NB_TEST_PYTHON"])
    with Server() as server, chromium() as browser:
        page = browser.new_page(viewport=SIZE)
        page.on("console", lambda message: say("console:", message.text))
        book = Notebook(page, server, PATH)
        book.is_idle()
        until(is_connected)
        assert len(records()) == 1, records()
        edits(book)
        runs(book)
        starts_again(book)
        conflict(book)
        without(page, server)


def records():
    """What the commands of nb know of open editors."""
    found = []
    for path in pathlib.Path(".nb/live").glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            found.append(path.read_text())
    return found


def is_connected():
    return any(json.loads(record)["notebooks"] for record in records())


def cells():
    return json.loads(pathlib.Path(PATH).read_text())["cells"]


def sources():
    return ["".join(cell["source"]) for cell in cells()]


def no_dialog(book):
    assert book.page.locator(".jp-Dialog").count() == 0, book.page.locator(".jp-Dialog").inner_text()


def edits(book):
    say("an agent edits while a person types")
    book.source(0).click()
    book.page.keyboard.press("Control+End")
    book.page.keyboard.type("  # typed", delay=60)
    began = time.monotonic()
    nb("edit", PATH, cells()[1]["id"], "agent = 'edited'")
    expect(book.source(1)).to_have_text("agent = 'edited'")
    say(f"seen {time.monotonic() - began:.2f} s after the command was begun")
    nb("insert", PATH, "--at", "0", "first = 0")
    expect(book.source(0)).to_have_text("first = 0")
    book.page.keyboard.type(" on", delay=60)
    expect(book.source(1)).to_have_text("human = 1  # typed on")
    book.saves()
    no_dialog(book)
    assert sources() == ["first = 0", "human = 1  # typed on", "agent = 'edited'", "last = 1"], sources()


def runs(book):
    say("an agent runs a cell")
    code = "import time\nfor n in range(4):\n    print('line', n, flush=True)\n    time.sleep(1)\n'end'"
    nb("edit", PATH, cells()[2]["id"], code)
    running = begin("exec", PATH, cells()[2]["id"])
    expect(book.cell(2).locator(".jp-OutputArea")).to_contain_text("line 1")
    assert running.poll() is None, "it was shown at its end only"
    expect(book.page.locator(".nb-running")).to_contain_text("claude · cell 2")
    assert running.wait(SECONDS) == 0
    book.ends(2, "'end'")
    expect(book.cell(2).locator(".nb-note")).to_contain_text("claude")
    expect(book.page.locator(".nb-running")).to_have_count(0)
    book.is_saved()
    no_dialog(book)


def starts_again(book):
    say("nb live is killed: what is typed stays the person's, and edits arrive")
    book.write(3, "last = 'typed'")
    until(lambda: any("last = 'typed'" in record for record in records()))
    (pid,) = {json.loads(record)["pid"] for record in records()}
    os.kill(pid, signal.SIGKILL)
    until(lambda: any("last = 'typed'" in record and json.loads(record)["pid"] != pid for record in records()))
    nb("edit", PATH, cells()[0]["id"], "first = 1")
    expect(book.source(0)).to_have_text("first = 1")
    expect(book.page.locator(".nb-conflict")).to_have_count(0)
    book.write(3, "last = 1")
    book.saves()
    no_dialog(book)


def conflict(book):
    say("both change one line")
    book.write(3, "last = 'mine'")
    until(lambda: any("last = 'mine'" in record for record in records()))
    text = pathlib.Path(PATH).read_text()
    pathlib.Path(PATH).write_text(text.replace("last = 1", "last = 'theirs'"))
    note = book.cell(3).locator(".nb-conflict")
    expect(note).to_contain_text("changed these lines")
    note.get_by_role("button", name="both").click()
    expect(note).to_have_count(0)
    book.saves()
    no_dialog(book)
    assert sources()[3] == "last = 'mine'\nlast = 'theirs'", sources()


def without(page, server):
    say("a notebook on another kernel is saved without a wait for nb")
    write("plain.ipynb", "x = 1", kernelspec={"name": "python3", "display_name": PLAIN})
    book = Notebook(page, server, "plain.ipynb")
    book.is_idle()
    book.page.evaluate("""() => {
        const { setTimeout } = window;
        window.waits = [];
        window.setTimeout = (...words) => {
            window.waits.push(words[1]);
            return setTimeout(...words);
        };
    }""")
    book.write(0, "x = 2")
    book.saves()
    waits = book.page.evaluate("window.waits")
    assert waits and 5000 not in waits, waits


if __name__ == "__main__":
    sys.exit(main())

"""What is typed on the page of `nb web` is known to agents before it is saved, and what others write comes before the file."""

import contextlib
import json
import os
import pathlib
import re
import subprocess

from lab import SECONDS, chromium, expect, nb, say, until, write
from web_tab import Book, Web

BOOK = "book.ipynb"
FIRST, SECOND = "a = 1\nb = 2\nc = 3", "y = 1\nz = 2"
CHANGED = re.compile("changed")


def main():
    expect.set_options(timeout=1000 * SECONDS)
    write(BOOK, FIRST, SECOND)
    web = Web()
    with contextlib.ExitStack() as ends, chromium() as browser:
        ends.callback(web.end)
        context = browser.new_context(viewport={"width": 1000, "height": 700})
        page = context.new_page()
        page.goto(web.address)
        address = f"{page.url.split('#')[0]}#{BOOK}"
        book = opens(page, address)
        agent_knows(book)
        agent_comes_first(book)
        late_answer(book)
        undoes(book)
        others_wait(book)
        survives_reload(book)
        two_tabs(book, opens(context.new_page(), address, 2))
        # A browser of its own knows nothing of the other one's cookie: it has the token.
        two_browsers(book, browser.new_context(), address)
        ends_with_tab(book)
        assert book.problems == [], book.problems


def opens(page, address, count=1):
    book = Book(page)
    page.goto(address)
    expect(book.source(1)).to_be_visible()
    until(lambda: len(records()) == count)
    return book


def records():
    """The notebooks that pages have open, as `nb` records them."""
    files = pathlib.Path(".nb/live").glob("*.json")
    found = []
    for file in files:
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            found += json.loads(file.read_text())["notebooks"]
    return found


def unsaved():
    return sorted(cell["source"] for notebook in records() for cell in notebook["cells"])


def sources():
    return ["".join(cell["source"]) for cell in json.loads(pathlib.Path(BOOK).read_text())["cells"]]


def ids():
    return [cell["id"] for cell in json.loads(pathlib.Path(BOOK).read_text())["cells"]]


def refused(*words):
    """What an agent's `nb` says that is refused because of a person's text."""
    done = subprocess.run(
        [os.environ["NB_TEST_BINARY"], *words],
        capture_output=True, text=True, timeout=SECONDS, env={**os.environ, "NB_AS": "claude"},
    )  # fmt: skip
    assert done.returncode == 5, done
    return done.stdout + done.stderr


def types(book, index, line, text):
    """Types at the end of a line, and stays in the cell."""
    book.source(index).locator(".cm-line").nth(line).click()
    book.page.keyboard.press("End")
    book.page.keyboard.type(text)


def text(book, index):
    return book.page.evaluate("index => document.querySelectorAll('.cell')[index]?.cellView.text", index)


def shows(book, index, wanted):
    until(lambda: text(book, index) == wanted)


def saves(book, index):
    book.source(index).press("Control+s")
    expect(book.cell(index)).not_to_have_class(CHANGED)


def agent_knows(book):
    say("an agent knows what is typed before it is saved")
    cell = ids()[0]
    nb("cell", BOOK, cell)
    types(book, 0, 0, "0  # mine")
    until(lambda: unsaved() == ["a = 10  # mine\nb = 2\nc = 3"])
    assert sources()[0] == FIRST
    said = refused("edit", BOOK, cell, "a = 7\nb = 2\nc = 3")
    assert "browser has unsaved text of the cell" in said and "a = 10  # mine" in said, said
    # Other lines are merged, and the file has only the agent's.
    nb("edit", BOOK, cell, "a = 1\nb = 2\nc = 33")
    shows(book, 0, "a = 10  # mine\nb = 2\nc = 33")
    assert sources()[0] == "a = 1\nb = 2\nc = 33"
    expect(book.cell(0).locator(".note")).not_to_have_text("others changed it")
    # The adjacent line too: what the agent wrote is no change of the person's.
    types(book, 0, 1, "2")
    saves(book, 0)
    assert sources()[0] == "a = 10  # mine\nb = 22\nc = 33"
    until(lambda: unsaved() == [])
    log = json.loads(nb("log", BOOK, "--json"))["log"]
    assert [entry["by"] for entry in log if entry["event"] == "edited"] == ["claude", "human (browser)"], log


def agent_comes_first(book):
    say("an agent's edit is on the page before the page reads the file")
    page, held = book.page, []
    reads = re.compile("outputs=false")
    page.route(reads, lambda route: held.append(route))
    nb("edit", BOOK, ids()[1], "--replace", "y = 1", "y = 11")
    shows(book, 1, "y = 11\nz = 2")
    for route in held:
        route.fallback()
    page.unroute(reads)
    expect(book.cell(1)).not_to_have_class(CHANGED)


def late_answer(book):
    say("an answer from before an edit replaces nothing, and is no text of the person's")
    page, held = book.page, []
    reads = re.compile("outputs=false")
    page.route(reads, lambda route: held.append((route, route.fetch())) if len(held) < 2 else route.fallback())
    for count in [3, 4]:
        nb("edit", BOOK, ids()[1], "--replace", sources()[1].split("\n")[1], f"z = {count}")
        until(lambda: page.evaluate("1") and held)
    shows(book, 1, "y = 11\nz = 4")
    route, answer = held[0]
    assert "z = 3" in answer.text(), answer.text()
    route.fulfill(response=answer)
    # The page has taken it before it asks again.
    until(lambda: page.evaluate("1") and len(held) > 1)
    assert text(book, 1) == "y = 11\nz = 4"
    nb("edit", BOOK, ids()[1], "--replace", "z = 4", "z = 2")
    shows(book, 1, "y = 11\nz = 2")
    held[1][0].fallback()
    assert unsaved() == []


def undoes(book):
    say("the person's undo takes back what the person has typed")
    types(book, 1, 0, "0")
    until(lambda: unsaved() == ["y = 110\nz = 2"])
    nb("edit", BOOK, ids()[1], "--replace", "z = 2", "z = 22")
    shows(book, 1, "y = 110\nz = 22")
    for _ in range(3):
        book.page.keyboard.press("Control+z")
    shows(book, 1, "y = 11\nz = 22")
    until(lambda: unsaved() == [])


def others_wait(book):
    say("a steady typist and an agent: every letter and every edit is there")
    book.source(1).locator(".cm-line").nth(0).click()
    book.page.keyboard.press("End")
    for count in range(10):
        book.page.keyboard.type("1" * 5)
        nb("edit", BOOK, ids()[1], "--replace", sources()[1].split("\n")[1], f"z = {count}")
    shows(book, 1, f"y = 11{'1' * 50}\nz = 9")
    saves(book, 1)
    assert sources()[1] == f"y = 11{'1' * 50}\nz = 9"
    expect(book.cell(1).get_by_role("group", name="Conflict")).to_be_hidden()


def survives_reload(book):
    say("what was typed before a reload is there after it, and agents know it")
    book.write(1, "typed = 1")
    until(lambda: unsaved() == ["typed = 1"])
    book.page.once("dialog", lambda dialog: dialog.accept())
    book.page.reload()
    shows(book, 1, "typed = 1")
    until(lambda: unsaved() == ["typed = 1"])
    expect(book.cell(1)).to_have_class(CHANGED)
    saves(book, 1)
    assert sources()[1] == "typed = 1"
    # Once: what is saved is not typed again.
    book.page.reload()
    shows(book, 1, "typed = 1")
    expect(book.cell(1)).not_to_have_class(CHANGED)


def two_tabs(book, other):
    say("two tabs: both are known, and what one saves is merged in the other")
    types(book, 0, 0, "!")
    types(other, 1, 0, "0")
    until(lambda: unsaved() == ["a = 10  # mine!\nb = 22\nc = 33", "typed = 10"])
    types(other, 0, 2, "3")
    saves(other, 0)
    shows(book, 0, "a = 10  # mine!\nb = 22\nc = 333")
    assert sources()[0] == "a = 10  # mine\nb = 22\nc = 333"
    saves(book, 0)
    shows(other, 0, "a = 10  # mine!\nb = 22\nc = 333")
    other.page.keyboard.press("Escape")
    saves(other, 1)
    shows(book, 1, "typed = 10")
    assert other.problems == [], other.problems
    other.page.close()
    until(lambda: len(records()) == 1)


def two_browsers(book, context, address):
    say("another browser gets an agent's edit, and keeps what is typed in the first one to itself")
    context.add_cookies(book.page.context.cookies())
    other = opens(context.new_page(), address, 2)
    types(book, 1, 0, "  # first")
    until(lambda: unsaved() == ["typed = 10  # first"])
    assert text(other, 1) == "typed = 10"
    nb("edit", BOOK, ids()[0], "--replace", "b = 22", "b = 2")
    for each in [book, other]:
        shows(each, 0, "a = 10  # mine!\nb = 2\nc = 333")
    saves(book, 1)
    shows(other, 1, "typed = 10  # first")
    context.close()


def ends_with_tab(book):
    say("the record ends with the tab")
    types(book, 1, 0, "!")
    until(lambda: unsaved() == ["typed = 10  # first!"])
    book.page.close()
    until(lambda: records() == [])
    nb("cell", BOOK, ids()[1])
    nb("edit", BOOK, ids()[1], "agent = 1")
    assert sources()[1] == "agent = 1"


main()

"""The page of `nb web` keeps what a person types, whatever fails or comes late meanwhile."""

import contextlib
import json
import os
import pathlib
import re

from lab import SECONDS, chromium, expect, nb, say, until, write
from web_tab import Book, Web

RUN = "run.ipynb"
ASKS = "asks.ipynb"
BOOK = "book.ipynb"
ENDS = "ends.ipynb"
CHANGED = re.compile("changed")


class Held:
    """Requests that reach the server only once they are let go."""

    def __init__(self, page, method, path):
        self.page, self.method, self.path = page, method, path
        self.routes = []
        self.is_open = False
        page.route(path, self._take)

    def _take(self, route):
        if self.is_open or route.request.method != self.method:
            route.fallback()
        else:
            self.routes.append(route)

    def let_go(self):
        self.is_open = True
        for route in self.routes:
            route.fallback()


class Line:
    """The connection of a page, which can be cut."""

    def __init__(self, page):
        self.page = page
        self.is_cut = False
        self.sockets = []
        page.route_web_socket("**/api/ws*", self._connects)
        page.route("**/api/**", lambda route: route.abort() if self.is_cut else route.fallback())

    def _connects(self, socket):
        if self.is_cut:
            socket.close()
            return
        self.sockets.append(socket)
        socket.connect_to_server()

    def cut(self):
        self.is_cut = True
        self.sockets[-1].close()
        expect(banner(self.page)).to_contain_text("the connection to nb web is lost")

    def mend(self):
        self.is_cut = False
        expect(self.page.locator("body")).not_to_have_class(re.compile("offline"))


def main():
    expect.set_options(timeout=1000 * SECONDS)
    write(RUN, "x = 1", "y = 2")
    write(ASKS, "name = input('Who? ')", "print('then')")
    write(BOOK, "x = 1", "y = 2", "z = 3")
    write(ENDS, "x = 1", "a = 1\r\nb = 2\r\n")
    pathlib.Path("below").mkdir()
    write(f"below/{RUN}", "below")
    for name in [ASKS, f"below/{RUN}"]:
        nb("open", name, "--python", os.environ["NB_TEST_PYTHON"])
    web = Web()
    with contextlib.ExitStack() as ends, chromium() as browser:
        ends.callback(web.end)
        context = browser.new_context(viewport={"width": 1200, "height": 800})
        page = context.new_page()
        line = Line(page)
        page.clock.install()
        page.goto(web.address)
        book = Book(page)
        lists(page)
        nb("shutdown", f"below/{RUN}")
        nb("open", RUN, "--python", os.environ["NB_TEST_PYTHON"])
        types_ahead(book)
        answers(book)
        shows(book, BOOK, 3)
        delete_is_refused(book)
        leaves(book)
        clicks_slowly(book)
        offline(book, line)
        restores(book, line)
        moved(book)
        refused_once(book)
        ends_of_lines(book)
        dead_connection(book, line)
        assert book.problems == [], book.problems


def banner(page):
    return page.locator("body > .banner")


def shows(book, name, count):
    book.page.evaluate("name => { location.hash = name }", name)
    expect(book.page.locator("header h1")).to_have_text(name)
    expect(book.page.locator(".cell")).to_have_count(count)
    for index in range(count):
        expect(book.source(index)).to_be_visible()


def sources(name):
    return ["".join(cell["source"]) for cell in json.loads(pathlib.Path(name).read_text())["cells"]]


def ids(name):
    return [cell["id"] for cell in json.loads(pathlib.Path(name).read_text())["cells"]]


def others_write(name, index, text):
    """Somebody else changes a cell, after a look at it."""
    cell = ids(name)[index]
    nb("cell", name, cell)
    nb("edit", "--force", name, cell, text)


def lists(page):
    say("the list has each kernel once, and does not replace a notebook that was opened meanwhile")
    rows = page.locator("main li")
    expect(rows.filter(has_text=f"below/{RUN}")).to_contain_text("idle")
    expect(rows.filter(has_text=re.compile(f"^{RUN}"))).to_have_text(RUN)
    shows(Book(page), RUN, 2)
    held = Held(page, "GET", "**/api/notebooks")
    with page.expect_request("**/api/notebooks"):
        page.get_by_role("link", name="nb", exact=True).click()
    shows(Book(page), RUN, 2)
    with page.expect_response("**/api/notebooks"):
        held.let_go()
    expect(page.locator("header .kernel")).to_have_text("no kernel")
    expect(page.locator(".cell")).to_have_count(2)


def types_ahead(book):
    say("what is typed before its cell is there is for that cell")
    page = book.page
    shows(book, RUN, 2)

    def new_cell(begin, keys, index, text):
        held = Held(page, "POST", "**/cells")
        begin()
        keys()
        held.let_go()
        expect(book.source(index)).to_have_text(text)
        page.unroute(held.path)

    def two_cells():
        page.keyboard.type("odd = [i for i in range(9)]")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("add = 3")

    book.write(1, "precious = 42")
    new_cell(lambda: page.keyboard.press("Shift+Enter"), two_cells, 3, "add = 3")
    expect(book.source(2)).to_have_text("odd = [i for i in range(9)]")
    book.has_ended(1)
    book.has_ended(2)
    book.select(0)

    def edits():
        page.keyboard.press("Enter")
        page.keyboard.type("table = load()")

    new_cell(lambda: page.keyboard.press("b"), edits, 1, "table = load()")
    book.select(4)
    insert = page.get_by_role("button", name="Add code cell", exact=True)
    new_cell(insert.click, lambda: page.keyboard.type("odd = load()"), 5, "odd = load()")
    book.select(0)
    until(lambda: sources(RUN)[1:] == ["table = load()", "precious = 42", "odd = [i for i in range(9)]", "add = 3", "odd = load()"])  # fmt: skip


def answers(book):
    say("the answer to a question stays while other cells wait")
    page = book.page
    shows(book, ASKS, 2)
    page.get_by_role("button", name="Run all cells").click()
    field = book.cell(0).get_by_role("textbox", name="Who?")
    field.fill("Ad")
    for _ in range(2):
        # It is asked again and again which cells wait.
        page.wait_for_event("response", lambda response: response.url.endswith("/jobs"), timeout=1000 * SECONDS)
    expect(field).to_have_value("Ad")
    field.press_sequentially("a")
    field.press("Enter")
    expect(book.outputs(1)).to_contain_text("then")
    book.has_ended(1)


def conflict(book, index, own_text, others_text):
    """Leaves a cell with a text after others have changed it."""
    book.write(index, own_text)
    others_write(BOOK, index, others_text)
    expect(book.cell(index).locator(".note")).to_have_text("others changed it")
    book.select(0)
    expect(book.cell(index).get_by_role("group", name="Conflict")).to_contain_text(others_text)


def delete_is_refused(book):
    say("a cell that could not be deleted still has what was typed")
    conflict(book, 1, "mine", "theirs")
    book.select(1)
    book.page.keyboard.press("d")
    book.page.keyboard.press("d")
    expect(banner(book.page)).to_be_visible()
    others_write(BOOK, 1, "theirs again")
    others_write(BOOK, 2, "seen")
    expect(book.source(2)).to_have_text("seen")
    expect(book.source(1)).to_have_text("mine")


def leaves(book):
    say("a notebook with a text that is not saved is left only after a question")
    page = book.page
    home = page.get_by_role("link", name="nb", exact=True)
    asked = []
    page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    home.click()
    expect(page).to_have_url(re.compile(f"#{BOOK}$"))
    assert asked == [f"{BOOK} has texts that are not saved. Leave it and lose them?"], asked
    expect(book.source(1)).to_have_text("mine")
    page.once("dialog", lambda dialog: dialog.accept())
    home.click()
    expect(page.get_by_role("link", name=BOOK)).to_be_visible()
    shows(book, BOOK, 3)
    expect(book.source(1)).to_have_text("theirs again")
    # What can be saved is saved.
    book.write(2, "typed")
    home.click()
    expect(page.get_by_role("link", name=BOOK)).to_be_visible()
    assert sources(BOOK)[2] == "typed"
    shows(book, BOOK, 3)


def clicks_slowly(book):
    say("the first click answers a conflict, however slow it is")
    page = book.page
    conflict(book, 1, "mine again", "theirs once more")
    book.source(1).click()
    keep = book.cell(1).get_by_role("button", name="Overwrite")
    box = keep.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    others_write(BOOK, 2, "seen by then")
    expect(book.source(2)).to_have_text("seen by then")
    page.mouse.up()
    expect(book.cell(1).get_by_role("group", name="Conflict")).to_be_hidden()
    until(lambda: sources(BOOK)[1] == "mine again")


def offline(book, line):
    say("what was typed without a connection is written after it is back")
    line.cut()
    book.write(0, "typed offline")
    book.select(1)
    expect(book.cell(0)).to_have_class(CHANGED)
    line.mend()
    expect(book.cell(0)).not_to_have_class(CHANGED)
    assert sources(BOOK)[0] == "typed offline"
    expect(banner(book.page)).to_be_hidden()


def restores(book, line):
    say("what was typed in cells that others have deleted can come back, later as well")
    page = book.page
    conflict(book, 1, "mine A", "theirs A")
    book.write(2, "mine B")
    nb("rm", "--force", BOOK, *ids(BOOK)[1:])
    offers = page.locator(".offers .banner")
    expect(offers).to_have_count(2)
    line.cut()
    line.mend()
    expect(offers).to_have_count(2)
    for text in ["mine A", "mine B"]:
        offers.filter(has_text=text).get_by_role("button", name="Restore").click()
        expect(offers.filter(has_text=text)).to_have_count(0)
        expect(page.locator(".cell", has_text=text)).to_be_visible()
    book.select(0)
    until(lambda: sorted(sources(BOOK)) == ["mine A", "mine B", "typed offline"])


def moved(book):
    say("a notebook that is back takes the text, and the problem is gone")
    page = book.page
    book.write(0, "typed while it was away")
    os.rename(BOOK, "away.ipynb")
    book.select(1)
    expect(banner(page)).to_contain_text(BOOK)
    expect(book.cell(0)).to_have_class(CHANGED)
    os.rename("away.ipynb", BOOK)
    expect(book.cell(0)).not_to_have_class(CHANGED)
    expect(banner(page)).to_be_hidden()
    assert sources(BOOK)[0] == "typed while it was away"


def refused_once(book):
    say("a text that could not be written is written later, also without an event")
    page = book.page
    refused = []

    def refuse(route):
        if route.request.method != "PUT" or refused:
            return route.fallback()
        refused.append(route.request.url)
        return route.fulfill(status=404, body="it was away for a moment")

    page.route("**/api/**", refuse)
    book.write(0, "typed while a write failed")
    book.select(1)
    expect(banner(page)).to_contain_text("it was away for a moment")
    expect(book.cell(0)).not_to_have_class(CHANGED)
    expect(banner(page)).to_be_hidden()
    assert sources(BOOK)[0] == "typed while a write failed"
    assert len(refused) == 1, refused
    page.unroute("**/api/**", refuse)


def ends_of_lines(book):
    say("a cell with other ends of lines is not changed by a look at it")
    page = book.page
    shows(book, ENDS, 2)
    writes = []
    page.on("request", lambda request: request.method == "PUT" and writes.append(request))
    book.source(1).click()
    book.select(0)
    expect(book.cell(1)).not_to_have_class(CHANGED)
    assert writes == [], writes
    book.write(1, "a = 1\nb = 22\n")
    book.source(1).press("Control+s")
    expect(book.cell(1)).not_to_have_class(CHANGED)
    expect(book.cell(1).get_by_role("group", name="Conflict")).to_be_hidden()
    assert len(writes) == 1, writes
    book.select(0)
    others_write(ENDS, 1, "a = 9")
    expect(book.source(1)).to_have_text("a = 9")


def dead_connection(book, line):
    say("a connection that says nothing is made anew")
    page = book.page
    count = len(line.sockets)
    # A message of the last write may still come in between.
    until(lambda: page.clock.fast_forward(80_000) or len(line.sockets) > count)
    others_write(ENDS, 0, "after it")
    expect(book.source(0)).to_have_text("after it")


main()

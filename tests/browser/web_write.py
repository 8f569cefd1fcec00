"""A person writes in the page of `nb web` for a while, also beside an agent in the same cell."""

import contextlib
import json
import os
import pathlib
import re

from lab import SECONDS, chromium, expect, nb, picture, say, until, write
from web_tab import Book, Web, accessible

BOOK, EMPTY, MOVED = "draft.ipynb", "empty.ipynb", "kept/moved.ipynb"

# What a person does in the page stands in buttons with these names, which the keyboard reaches.
NAMES = [
    "New notebook", "Add code cell", "Add Markdown cell", "Rename", "Undo", "History",
    "Why stale", "Stop", "Assistant", "Merge", "Restore", "Keys",
]  # fmt: skip

PRINTS = "import time\nfor i in range(3000):\n    print('line', i)\n    time.sleep(0.1)"

FOCUSED = """() => {
    const { activeElement } = document;
    return activeElement.getAttribute('aria-label') ?? activeElement.textContent;
}"""


def main():
    expect.set_options(timeout=1000 * SECONDS)
    pathlib.Path("kept").mkdir()
    write(BOOK, PRINTS, "a = 1\nb = 2\nc = 3\nprint(a, b, c)", "name = input('Who? ')\nprint('hello', name)", "1 / 0")
    write(EMPTY)
    text = json.loads(pathlib.Path(BOOK).read_text())
    for cell, name in zip(text["cells"], ["prints00", "letters0", "asks0000", "fails000"]):
        cell["id"] = name
    pathlib.Path(BOOK).write_text(json.dumps(text))
    nb("open", BOOK, "--python", os.environ["NB_TEST_PYTHON"])
    web = Web()
    with contextlib.ExitStack() as ends, chromium() as browser:
        ends.callback(web.end)
        context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light", accept_downloads=True)
        # Injected by the browser: the page's own policy forbids it.
        context.add_init_script(path=os.environ["NB_TEST_AXE"])
        page = context.new_page()
        page.goto(f"{web.address}#{EMPTY}")
        expect(page.get_by_role("button", name="Add code cell at the end")).to_be_visible()
        accessible(page, "empty")
        page.evaluate(f"location.hash = '{BOOK}'")
        book = Book(page)
        expect(book.source(1)).to_contain_text("a = 1")
        other_lines(book)
        same_lines(book)
        names(book)
        asked(book)
        typing(book)
        place(book)
        cells(book)
        found(book)
        files(book)
        nb("shutdown", MOVED)
        assert book.problems == [], book.problems


def saved(book):
    expect(book.page.locator("header .saved")).to_have_text("Saved")


def source_of(cell):
    return next("".join(each["source"]) for each in json.loads(pathlib.Path(BOOK).read_text())["cells"] if each["id"] == cell)


def replace(book, index, old, new):
    """Types in place of a part of a cell's text; nothing is written yet."""
    text = source_of(book.cell(index).get_attribute("data-cell"))
    book.write(index, text.replace(old, new))


def other_lines(book):
    say("other lines of the same cell are merged")
    nb("cell", BOOK, "letters0")
    replace(book, 1, "c = 3", "c = 33")
    expect(book.page.locator("header .saved")).to_have_text("Not saved")
    nb("edit", BOOK, "letters0", "--replace", "a = 1", "a = 11")
    book.source(1).press("Control+s")
    expect(book.source(1)).to_have_text("a = 11b = 2c = 33print(a, b, c)")
    expect(book.cell(1).get_by_role("group", name="Conflict")).to_be_hidden()
    saved(book)
    assert source_of("letters0") == "a = 11\nb = 2\nc = 33\nprint(a, b, c)"


def same_lines(book):
    say("the same lines are shown with the difference and the other's name")
    replace(book, 1, "b = 2", "b = 'mine'")
    nb("edit", "--force", BOOK, "letters0", "--replace", "b = 2", "b = 'theirs'")
    expect(book.cell(1).locator(".note")).to_have_text("others changed it")
    book.source(1).press("Control+s")
    box = book.cell(1).get_by_role("group", name="Conflict")
    expect(box).to_contain_text("claude changed the same lines")
    expect(box.locator(".removed")).to_have_text("- b = 'theirs'")
    expect(box.locator(".added")).to_have_text("+ b = 'mine'")
    picture(book.page, "web-merge")
    accessible(book.page, "conflict")


def names(book):
    say("each thing to do has its name, and the keyboard reaches it")
    page = book.page
    nb("insert", BOOK, "--id", "deleted0", "gone = True")
    nb("rm", BOOK, "deleted0")
    page.get_by_role("button", name="History", exact=True).click()
    panel = page.get_by_role("complementary")
    expect(panel).to_contain_text("claude: rm")
    accessible(page, "history open")
    row = panel.locator(".row", has_text="claude: edit 1 · lett").first
    row.locator("summary").click()
    expect(row.locator(".diff")).to_contain_text("+ b = 'theirs'")
    panel.get_by_role("tab", name="Deleted cells").click()
    deleted = panel.locator(".row", has_text="gone = True")
    deleted.locator("summary").click()
    expect(deleted.locator(".diff")).to_have_text("- gone = True")
    tree = page.locator("body").aria_snapshot()
    for name in NAMES:
        assert f'button "{name}"' in tree, (name, tree)
    page.get_by_role("link", name="nb", exact=True).focus()
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(FOCUSED))
    assert reached >= set(NAMES), set(NAMES) - reached
    page.get_by_role("button", name="History", exact=True).click()
    book.cell(1).get_by_role("button", name="Merge", exact=True).click()
    saved(book)
    assert source_of("letters0") == "a = 11\nb = 'mine'\nb = 'theirs'\nc = 33\nprint(a, b, c)"
    expect(book.source(1)).to_have_text("a = 11b = 'mine'b = 'theirs'c = 33print(a, b, c)")


def asked(book):
    say("who runs a cell that asks is asked at once, also if the keys go on to the next cell")
    book.source(2).click()
    book.source(2).press("Shift+Enter")
    field = book.cell(2).get_by_role("textbox", name="Who?")
    expect(field).to_be_focused()
    book.page.keyboard.type("Ada")
    book.page.keyboard.press("Enter")
    expect(book.outputs(2)).to_contain_text("hello Ada")
    book.has_ended(2)


def typing(book):
    say("what is typed while outputs come is whole, and its cell stays where it is")
    page = book.page
    book.run(0)
    expect(book.outputs(0)).to_contain_text("line 1")
    accessible(page, "running")
    text = "".join(f"k{number:02}" for number in range(100))
    book.source(3).click()
    page.keyboard.press("Control+a")
    page.keyboard.type("# ")
    top = book.cell(3).bounding_box()["y"]
    before = len(lines(book))
    page.keyboard.type(text, delay=30)
    assert len(lines(book)) > before + 20, "no output came while one typed"
    assert abs(book.cell(3).bounding_box()["y"] - top) < 3
    expect(book.source(3)).to_have_text(f"# {text}")
    book.source(3).press("Control+s")
    saved(book)
    assert source_of("fails000") == f"# {text}"
    say("the cursor stays in sight, however far down one types")
    for _ in range(40):
        page.keyboard.press("Enter")
    cursor = book.source(3).locator(".cm-line").last
    expect(cursor).to_be_in_viewport()
    page.get_by_role("button", name="Stop", exact=True).click()
    book.has_ended(0)
    book.write(3, "1 / 0")
    book.source(3).press("Control+Enter")
    expect(book.outputs(3)).to_contain_text("ZeroDivisionError")
    book.has_ended(3)
    accessible(page, "failed")
    page.get_by_role("button", name="Assistant", exact=True).click()
    expect(page.get_by_role("textbox", name="Message to the assistant")).to_be_visible()
    accessible(page, "assistant open")
    page.get_by_role("button", name="Assistant", exact=True).click()


def lines(book):
    return re.findall(r"line \d+", book.outputs(0).inner_text())


def place(book):
    say("a page that is loaded again shows the same place, selection and durations")
    page = book.page
    book.select(3)
    took = book.cell(3).locator(".note").inner_text()
    assert re.fullmatch(r"\d+ ms|\d+\.\d s", took), took
    top = book.cell(3).bounding_box()["y"]
    page.reload()
    expect(book.cell(3)).to_have_attribute("aria-current", "true")
    expect(book.cell(3).locator(".note")).to_have_text(took)
    expect(book.outputs(0)).to_contain_text("KeyboardInterrupt")
    expect(book.outputs(3)).to_contain_text("ZeroDivisionError")
    until(lambda: abs(book.cell(3).bounding_box()["y"] - top) < 30)


def cells(book):
    say("cells between others, copies, cleared outputs")
    page = book.page
    count = page.locator(".cell").count()
    book.select(1)
    book.cell(1).get_by_role("button", name="Duplicate this cell").click()
    expect(page.locator(".cell")).to_have_count(count + 1)
    expect(book.cell(2)).to_have_attribute("aria-current", "true")
    expect(book.source(2)).to_contain_text("a = 11")
    book.cell(2).hover()
    book.cell(2).get_by_role("button", name="Insert a Markdown cell here").click()
    expect(page.locator(".cell")).to_have_count(count + 2)
    expect(book.source(2)).to_be_focused()
    writes = []
    page.route("**/cells/*", lambda route: writes.append(route) if route.request.method == "PUT" else route.continue_())
    page.keyboard.insert_text("*between*")
    page.keyboard.press("Escape")
    expect(book.cell(2).locator(".rendered em")).to_have_text("between")
    # What was typed is undone too, although it is still being written.
    for _ in range(3):
        page.get_by_role("button", name="Undo", exact=True).click()
    assert len(writes) == 1, writes
    writes[0].continue_()
    page.unroute("**/cells/*")
    expect(page.locator(".cell")).to_have_count(count)
    book.select(3)
    book.cell(3).get_by_role("button", name="Clear its outputs").click()
    expect(book.outputs(3)).to_have_text("")
    page.get_by_role("button", name="Clear all outputs").click()
    expect(book.outputs(0)).to_have_text("")
    page.get_by_role("button", name="Add Markdown cell at the end").click()
    expect(book.source(count)).to_be_focused()
    page.keyboard.insert_text("The end")
    page.keyboard.press("Escape")
    saved(book)


def found(book):
    say("a text is found")
    book.page.keyboard.press("f")
    panel = book.page.get_by_role("complementary")
    field = panel.get_by_role("searchbox", name="Text to find")
    expect(field).to_be_focused()
    book.page.keyboard.type("HELLO")
    expect(panel.locator(".row")).to_have_text([re.compile(r"2 · asks · name = input\('Who\? '\) line 2: print\('hello', name\)")])
    panel.locator(".row").get_by_role("button").click()
    expect(book.cell(2)).to_have_attribute("aria-current", "true")
    book.page.get_by_role("button", name="History", exact=True).click()


def files(book):
    say("download, rename, new notebook, open by its path")
    page = book.page
    with page.expect_download() as download:
        page.get_by_role("button", name="Download", exact=True).click()
    assert download.value.suggested_filename == BOOK
    assert pathlib.Path(download.value.path()).read_bytes() == pathlib.Path(BOOK).read_bytes()
    page.once("dialog", lambda dialog: dialog.accept("../outside"))
    page.get_by_role("button", name="Rename", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("is outside of")
    assert pathlib.Path(BOOK).exists()
    page.once("dialog", lambda dialog: dialog.accept(MOVED.removesuffix(".ipynb")))
    page.get_by_role("button", name="Rename", exact=True).click()
    expect(page).to_have_title(f"{MOVED} – nb")
    expect(book.source(1)).to_contain_text("a = 11")
    assert pathlib.Path(MOVED).exists() and not pathlib.Path(BOOK).exists()
    # Its kernel came along.
    assert nb("run", "-n", MOVED, "name").strip() == "'Ada'"
    page.once("dialog", lambda dialog: dialog.accept("new one"))
    page.get_by_role("button", name="New notebook", exact=True).click()
    expect(page).to_have_title("new one.ipynb – nb")
    expect(page.locator("header .kernel")).to_contain_text("idle")
    page.get_by_role("link", name="nb", exact=True).click()
    page.once("dialog", lambda dialog: dialog.accept(MOVED))
    page.get_by_role("button", name="Open a notebook by its path").click()
    expect(page).to_have_title(f"{MOVED} – nb")
    expect(book.source(1)).to_contain_text("a = 11")


main()

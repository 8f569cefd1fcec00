"""Widgets on the page of `nb web`, connected to the kernel."""

import contextlib
import os
import re

from lab import SECONDS, chromium, expect, nb, picture, say, until, write
from web_tab import Book, Web

BOOK = "widgets.ipynb"
CELLS = [
    (
        "import ipywidgets as w\n"
        "slider = w.IntSlider(value=3, max=10, description='Size')\n"
        "label = w.Label('nothing yet')\n"
        "slider.observe(lambda change: setattr(label, 'value', f'dialled {change[\"new\"]}'), 'value')\n"
        "w.VBox([slider, label])"
    ),
    "@w.interact(x=(0, 10))\ndef f(x=5): print('x is', x)",
    "out = w.Output()\nout",
    "with out: print('in the widget')",
    "from tqdm.notebook import tqdm\nfor _ in tqdm(range(3), desc='bar'): pass",
    "button = w.Button(description='Press')\nbutton.on_click(lambda _: print('was pressed'))\nbutton",
    "from traitlets import Unicode\nclass Other(w.DOMWidget):\n    _model_module = _view_module = Unicode('other-package').tag(sync=True)\n    _model_name = _view_name = Unicode('Other').tag(sync=True)\nOther()",
    (
        "one, two, three, four = [w.IntSlider(max=10, description=name) for name in 'abcd']\n"
        "w.jslink((one, 'value'), (two, 'value'))\n"
        "w.jsdlink((two, 'value'), (three, 'max'))\n"
        "w.jsdlink((one, '_view_name'), (four, 'description'))\n"
        "w.VBox([one, two, three, four])"
    ),
    "import time\nprogress = w.IntProgress(max=3)\ndisplay(progress)\nfor step in range(3):\n    progress.value = step\n    input('more? ')",
]
SLIDER, INTERACT, OUTPUT, CAPTURED, BAR, BUTTON, OTHER, LINKED, LONG = range(len(CELLS))


def main():
    expect.set_options(timeout=1000 * SECONDS)
    write(BOOK, *CELLS)
    nb("open", BOOK, "--python", os.environ["NB_TEST_PYTHON"])
    web = Web()
    with contextlib.ExitStack() as ends, chromium() as browser:
        ends.callback(web.end)
        context = browser.new_context(viewport={"width": 1200, "height": 900}, color_scheme="light")
        page = context.new_page()
        page.goto(web.address)
        page.get_by_role("link", name=BOOK).click()
        book = Book(page)
        made_on_the_page(book)
        second = context.new_page()
        second.goto(page.url)
        two_tabs(book, Book(second))
        while_a_cell_runs(book)
        kernel_ends(book, Book(second))
        assert book.problems == [], book.problems


def made_on_the_page(book):
    say("made by cells that the page runs: connected")
    for index in range(LONG):
        book.cell(index).scroll_into_view_if_needed()
        book.run(index)
        book.has_ended(index)
    book.cell(SLIDER).scroll_into_view_if_needed()
    expect(book.outputs(SLIDER).locator(".widget")).to_contain_text("nothing yet")
    expect(book.outputs(SLIDER)).not_to_contain_text("Not connected")
    dial(book, SLIDER)
    expect(book.outputs(SLIDER)).to_contain_text("dialled 4")
    assert nb("run", "-n", BOOK, "slider.value").strip() == "4"

    say("interact, and what a callback prints")
    expect(book.outputs(INTERACT)).to_contain_text("x is 5")
    dial(book, INTERACT)
    expect(book.outputs(INTERACT)).to_contain_text("x is 6")
    expect(book.outputs(INTERACT)).not_to_contain_text("x is 5")
    book.outputs(BUTTON).get_by_role("button", name="Press").click()
    expect(book.outputs(BUTTON)).to_contain_text("was pressed")
    expect(book.outputs(BAR)).to_contain_text("3/3")
    expect(book.outputs(OUTPUT)).to_contain_text("in the widget")
    expect(book.outputs(OTHER)).to_contain_text("a widget of the package other-package")
    picture(book.page, "web-widgets")


def two_tabs(first, second):
    say("a second tab has what the kernel has, and both agree")
    second.cell(SLIDER).scroll_into_view_if_needed()
    expect(second.outputs(SLIDER)).to_contain_text("dialled 4")
    expect(handle(second, SLIDER)).to_have_attribute("aria-valuenow", "4.0")
    second.cell(INTERACT).scroll_into_view_if_needed()
    expect(second.outputs(INTERACT)).to_contain_text("x is 6")
    dial(second, SLIDER)
    for book in [first, second]:
        expect(book.outputs(SLIDER)).to_contain_text("dialled 5")
        expect(handle(book, SLIDER)).to_have_attribute("aria-valuenow", "5.0")
    dial(second, INTERACT)
    for book in [first, second]:
        expect(book.outputs(INTERACT)).to_contain_text("x is 7")
        expect(book.outputs(INTERACT)).not_to_contain_text("x is 6")
    say("and what an agent sets is seen in both")
    nb("run", "-n", BOOK, "slider.value = 9")
    nb("run", "-n", BOOK, "with out: print('and more')")
    for book in [first, second]:
        expect(book.outputs(SLIDER)).to_contain_text("dialled 9")
        book.cell(OUTPUT).scroll_into_view_if_needed()
        expect(book.outputs(OUTPUT)).to_contain_text("and more")


def links(book):
    say("linked widgets agree while the kernel is busy")
    book.cell(LINKED).scroll_into_view_if_needed()
    handles = book.outputs(LINKED).locator(".noUi-handle")
    handles.nth(0).focus()
    for _ in range(4):
        book.page.keyboard.press("ArrowRight")
    expect(handles.nth(1)).to_have_attribute("aria-valuenow", "4.0")
    expect(handles.nth(2)).to_have_attribute("aria-valuemax", "4.0")
    handles.nth(1).focus()
    book.page.keyboard.press("ArrowLeft")
    expect(handles.nth(0)).to_have_attribute("aria-valuenow", "3.0")
    # What is no state for people is not linked.
    expect(book.outputs(LINKED).locator(".widget-label").nth(3)).to_have_text("d")


def while_a_cell_runs(book):
    say("a bar moves while its cell runs")
    book.cell(LONG).scroll_into_view_if_needed()
    book.run(LONG)
    bar = book.outputs(LONG).locator(".progress-bar")
    for width in ["0%", "33.33", "66.66"]:
        expect(bar).to_have_attribute("style", re.compile(f"width: {width}"))
        answer = book.cell(LONG).locator(".question input")
        expect(answer).to_be_visible()
        if width == "0%":
            links(book)
        answer.fill("yes")
        answer.press("Enter")
    book.has_ended(LONG)
    until(lambda: nb("run", "-n", BOOK, "one.value, two.value, three.max").strip() == "(3, 3, 3)")


def kernel_ends(first, second):
    say("without their kernel, widgets say that they are not connected")
    nb("restart", BOOK, "--force")
    for book in [first, second]:
        expect(book.outputs(SLIDER)).to_contain_text("Not connected")
    first.run(SLIDER)
    first.has_ended(SLIDER)
    expect(first.outputs(SLIDER)).to_contain_text("nothing yet")
    expect(first.outputs(SLIDER)).not_to_contain_text("Not connected")
    dial(first, SLIDER)
    expect(first.outputs(SLIDER)).to_contain_text("dialled 4")


def handle(book, index):
    return book.outputs(index).locator(".noUi-handle").first


def dial(book, index):
    handle(book, index).press("ArrowRight")


main()

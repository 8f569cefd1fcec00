"""Widgets that an agent makes, as a person finds them in JupyterLab: a table, each row of it tried.

The agent runs cells with `nb exec`; no front end has seen the widgets being made.
"""

import os
import sys
import time

from lab import IS_THOROUGH, SECONDS, SHARED, Server, chromium, expect, nb, say, write
from tab import Notebook

CELLS = [
    (
        "import ipywidgets as w\n"
        "slider = w.IntSlider(value=3, max=10)\n"
        "shown = w.Label('nothing yet')\n"
        "slider.observe(lambda change: setattr(shown, 'value', f'dialled {change[\"new\"]}'), 'value')\n"
        "w.VBox([slider, shown])"
    ),
    "@w.interact(x=(0, 10))\ndef f(x=5): print('x is', x)",
    "out = w.Output()\nout",
    "with out: print('in the widget')",
    "from tqdm.notebook import tqdm\nfor _ in tqdm(range(3), desc='bar'): pass",
]
SLIDER, INTERACT, OUTPUT, _, BAR = range(len(CELLS))
# What JupyterLab shows of a widget where it renders none.
TEXTS = {SLIDER: "VBox(children=(IntSlider(", INTERACT: "interactive(children=(", OUTPUT: "Output()", BAR: "| 0/3 ["}
SIZE = {"width": 1100, "height": 1400}
PATH = "widgets.ipynb"


def main():
    expect.set_options(timeout=1000 * SECONDS)
    write(PATH, *CELLS, kernelspec={"name": "nb-shared", "display_name": SHARED})
    nb("open", PATH, "--python", os.environ["NB_TEST_PYTHON"])
    nb("exec", PATH, "--all")
    with Server() as server, chromium() as browser:
        book = Notebook(browser.new_page(viewport=SIZE), server, PATH)
        book.is_idle()
        made_before(book)
        driven_by_the_agent(book)
        made_beside(book)
        kernel_gone(book)


def made_before(book):
    say("made before anybody joined, in a notebook that JupyterLab does not trust: text")
    for index, text in TEXTS.items():
        book.ends(index, text, count=r"\[\d*\]:")
    expect(book.panel.locator(".jupyter-widgets")).to_have_count(0)
    say("trusted: all of them render")
    trust(book)
    render(book, 3, "nothing yet")
    say("and react")
    dial(book, SLIDER)
    shows(book, SLIDER, "dialled 4")
    assert nb("run", "-n", PATH, "slider.value").strip() == "4"
    dial(book, INTERACT)
    shows(book, INTERACT, "x is 6")


def driven_by_the_agent(book):
    say("what the agent sets and prints is seen at once")
    nb("run", "-n", PATH, "slider.value = 7")
    shows(book, SLIDER, "dialled 7")
    nb("run", "-n", PATH, "with out: print('and more')")
    shows(book, OUTPUT, "in the widget\nand more")
    say("all of it is there after a reload of the page, once it was saved")
    book.saves()
    reload(book)
    shows(book, SLIDER, "dialled 7")
    shows(book, INTERACT, "x is 6")
    shows(book, OUTPUT, "in the widget\nand more")
    shows(book, BAR, "3/3")


def made_beside(book):
    say("made beside an open tab: there once the notebook is read from the disk, and trusted anew")
    book.saves()
    nb("exec", PATH, "--all")
    book.menu("File", "Reload Notebook from Disk")
    book.ends(SLIDER, TEXTS[SLIDER])
    trust(book)
    render(book, 3, "nothing yet")
    dial(book, SLIDER)
    shows(book, SLIDER, "dialled 4")


def kernel_gone(book):
    say("without their kernel: the state that was saved, and nothing reacts")
    book.saves()
    nb("restart", PATH, "--force")
    reload(book)
    render(book, 3, "nothing yet")
    dial(book, SLIDER)
    expect(handle(book, SLIDER)).to_have_attribute("aria-valuenow", "4.0")
    # The kernel has had the message before it runs the cell.
    assert nb("run", "-n", PATH, "'slider' in globals()").strip() == "False"
    expect(book.cell(SLIDER).locator(".widget-label:has-text('nothing yet')")).to_be_visible()


def reload(book):
    """Reloads the page, or only the notebook; once more where ipywidgets has given up a widget that it has by now.

    It looks every 100 ms for two seconds whether a model is there, and not again when the last of
    these waits is over: what was restored meanwhile is "not found", and stays so.
    """
    end = time.monotonic() + SECONDS
    while True:
        if IS_THOROUGH:
            book.page.reload()
        else:
            book.closes()
            book.opens(PATH)
        book.is_idle()
        widgets = [book.cell(index).locator(".jupyter-widgets").first for index in TEXTS]
        for widget in widgets:
            expect(widget).to_be_attached()
        if not any("model not found" in widget.text_content() for widget in widgets):
            return
        assert time.monotonic() < end, "a widget is never found"
        say("ipywidgets gave a widget up: once more")


def render(book, value, label):
    shows(book, SLIDER, label)
    expect(handle(book, SLIDER)).to_have_attribute("aria-valuenow", f"{value}.0")
    shows(book, INTERACT, "x is 5")
    shows(book, OUTPUT, "in the widget")
    shows(book, BAR, "3/3")


def shows(book, index, text):
    """A widget in the cell's output shows this text."""
    widget = book.cell(index).locator(".jupyter-widgets").first
    expect(widget).to_contain_text(text.split("\n")[0])
    expect(widget).to_contain_text(text.split("\n")[-1])


def handle(book, index):
    return book.cell(index).locator(".noUi-handle").first


def dial(book, index):
    handle(book, index).focus()
    book.page.keyboard.press("ArrowRight")


def trust(book):
    book.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:trust'); }")
    book.answers("Trust")


if __name__ == "__main__":
    sys.exit(main())

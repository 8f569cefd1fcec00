"""A person's day with the shared kernel in JupyterLab, an agent beside them.

    journey.py [SERVER]

With a name, the kernel runs on the server of that name. `cargo test` leaves out the second page, the second notebook and
the next day, and with a server all but the first page.
"""

import json
import os
import pathlib
import signal
import sys

from lab import IS_THOROUGH, SECONDS, SHARED, Server, begin, chromium, expect, nb, picture, say, until, write
from tab import PLAIN, Notebook

CELLS = [
    "x = 20\nprint('x is', x)",
    "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2]);",
    (
        "import ipywidgets\n"
        "dial = ipywidgets.IntSlider(value=3, max=10)\n"
        "shown = ipywidgets.Label()\n"
        "dial.observe(lambda change: setattr(shown, 'value', f'dialled {change[\"new\"]}'), 'value')\n"
        "ipywidgets.VBox([dial, shown])"
    ),
    "name = input('who? ')\nprint('hello', name)",
    "import time\nprint('begun')\nwhile True: time.sleep(0.05)",
    "print('x' in globals(), 'agents' in globals())",
]
SIZE = {"width": 1100, "height": 1400}
SET, PLOT, WIDGET, ASK, LOOP, LOOK = range(len(CELLS))


def main():
    expect.set_options(timeout=1000 * SECONDS)
    notebook, other = "analysis.ipynb", "other.ipynb"
    servers = sys.argv[1:]
    where = ["--server", *servers] if servers else ["--python", os.environ["NB_TEST_PYTHON"]]
    for name in (notebook, other):
        write(name, *CELLS, kernelspec={"name": "python3", "display_name": PLAIN})
    nb("open", notebook, *where)
    nb("run", "-n", notebook, "agents = 1")
    # The browser ends first: it shows what was there when something went wrong.
    with Server() as server, chromium() as browser:
        book = day(browser, server, notebook)
        if servers and not IS_THOROUGH:
            # The rest of the day does not depend on the kernel's place.
            return
        turns(book, notebook)
        if not IS_THOROUGH:
            death(book, notebook)
            return
        if not servers:
            second_notebook(book, other)
    with Server() as server, chromium() as browser:
        death(next_day(browser, server, notebook), notebook)


def day(browser, server, path):
    page = browser.new_page(viewport={"width": 1100, "height": 1000})
    book = Notebook(page, server, path)
    say("choosing")
    book.choose(SHARED)

    say("shared variables")
    book.run(SET)
    book.ends(SET, "x is 20")
    assert nb("run", "-n", path, "x + agents").strip() == "21"

    say("a plot")
    book.run(PLOT)
    expect(book.cell(PLOT).locator(".jp-OutputArea img")).to_be_visible()

    say("a widget")
    book.run(WIDGET)
    handle = book.cell(WIDGET).locator(".noUi-handle")
    handle.focus()
    page.keyboard.press("ArrowRight")
    expect(book.cell(WIDGET).locator(".widget-label:has-text('dialled 4')")).to_be_visible()
    assert nb("run", "-n", path, "dial.value").strip() == "4"
    picture(page, "jupyterlab")

    asks_and_is_interrupted(book)

    if IS_THOROUGH:
        say("a second tab")
        tab = Notebook(browser.new_page(viewport=SIZE), server, path)
        tab.is_idle()
        tab.run(LOOK)
        tab.ends(LOOK, "True True")
        tab.page.close()

    say("restart")
    before = status(path)["kernel_generation"]
    book.button("restart")
    page.locator(".jp-Dialog .jp-mod-accept").click()
    book.is_idle()
    book.run(LOOK)
    book.ends(LOOK, "False False")
    stderr = nb("run", "-n", path, "agents = 2", stream="stderr")
    assert "human (JupyterLab)" in stderr and "restarted the kernel" in stderr, stderr
    assert status(path)["kernel_generation"] == before + 1, "it was restarted once"
    return book


def asks_and_is_interrupted(book):
    say("input()")
    book.run(ASK)
    answer = book.cell(ASK).locator(".jp-Stdin-input")
    answer.fill("Ada")
    answer.press("Enter")
    book.ends(ASK, "hello Ada")

    say("interrupt")
    book.run(LOOP)
    expect(book.cell(LOOP).locator(".jp-OutputArea")).to_contain_text("begun")
    book.button("interrupt")
    book.ends(LOOP, "KeyboardInterrupt")


def turns(book, path):
    """A cell behind the agent's: it waits, Stop takes it back, and else it runs when it can."""
    say("a cell waits for the agent's")
    go = pathlib.Path("go").absolute()
    waits = (
        f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
        "print('agent done')"
    )
    agent = begin("run", "-n", path, waits)
    expect(book.page.locator("#jp-main-statusbar")).to_contain_text("| Busy")
    book.run(SET)
    expect(book.cell(SET).locator(".jp-InputPrompt")).to_have_text("[*]:")
    say("Stop takes it back")
    book.button("interrupt")
    book.ends(SET, "it did not run", count=r"\[ \]:|\[\d*\]:")
    assert agent.poll() is None, "the agent's cell was interrupted"
    say("another waits and runs")
    book.run(SET)
    expect(book.cell(SET).locator(".jp-InputPrompt")).to_have_text("[*]:")
    go.touch()
    assert agent.communicate(timeout=SECONDS)[0].strip() == "agent done"
    assert agent.returncode == 0
    book.ends(SET, "x is 20")
    book.save()
    book.is_saved()


def death(book, path):
    """The kernel is killed under a cell."""
    say("the kernel is killed")
    pid = int(nb("run", "-n", path, "import os; os.getpid()"))
    book.run(LOOP)
    expect(book.cell(LOOP).locator(".jp-InputPrompt")).to_have_text("[*]:")
    # What the page shows may be of the day before: the kernel itself has begun it.
    until(lambda: status(path)["running"])
    os.kill(pid, signal.SIGKILL)
    book.ends(LOOP, "KernelDied", count=r"\[ \]:|\[\d*\]:")
    say("the next cell brings another")
    book.run(LOOK)
    book.ends(LOOK, "variables are gone")
    book.ends(LOOK, "False False")


def status(path):
    sessions = json.loads(nb("status", "--json"))["sessions"]
    return next(session for session in sessions if session["notebook"] == path)


def second_notebook(book, path):
    """A notebook without a session gets a kernel of its own."""
    say("a second notebook")
    book.opens(path)
    book.choose(SHARED)
    book.run(LOOK)
    book.ends(LOOK, "False False")
    book.run(SET)
    book.ends(SET, "x is 20")
    assert nb("run", "-n", path, "x").strip() == "20"
    assert status(path)["kernel_pid"] != status("analysis.ipynb")["kernel_pid"]


def next_day(browser, server, path):
    """The server was ended and is back; so is the notebook, and the variables never went."""
    say("the next day")
    book = Notebook(browser.new_page(viewport=SIZE), server, path)
    expect(book.panel.locator(".jp-Toolbar-kernelName")).to_have_text(SHARED)
    book.is_idle()
    book.run(LOOK)
    book.ends(LOOK, "True True")
    return book


if __name__ == "__main__":
    sys.exit(main())

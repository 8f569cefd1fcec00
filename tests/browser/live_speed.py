"""Measures the extension of JupyterLab: how soon an agent's edit is on the screen in a notebook of 500 cells, and how much later
a page shows its first cell with the extension than without it, in turns."""

import math
import os
import pathlib
import statistics
import sys
import time

from lab import SECONDS, SHARED, Server, chromium, expect, nb, say, until, write
from live import is_connected
from tab import Notebook

SIZE = {"width": 1100, "height": 900}
PATH = "large.ipynb"
SPEC = {"name": "nb-shared", "display_name": SHARED}
EXTENSION = pathlib.Path(os.environ["JUPYTER_DATA_DIR"]) / "labextensions/nb-live"
EDITS = 30
PAIRS = 15
# Of Student's t for 14 degrees of freedom.
T95 = 2.145

SEEN = """text => new Promise(resolve => {
    const seen = () => [...document.querySelectorAll('.cm-content')].some(each => each.textContent === text);
    const observer = new MutationObserver(() => {
        if (!seen()) return;
        observer.disconnect();
        requestAnimationFrame(() => resolve(Date.now()));
    });
    observer.observe(document.body, { subtree: true, childList: true, characterData: true });
})"""


def main():
    expect.set_options(timeout=1000 * SECONDS)
    nb("serve", "--jupyterlab")
    write(PATH, *(f"cell_{number} = {number}" for number in range(500)), kernelspec=SPEC)
    nb("open", PATH, "--python", os.environ["NB_TEST_PYTHON"])
    with Server() as server, chromium() as browser:
        page = browser.new_page(viewport=SIZE)
        book = Notebook(page, server, PATH)
        book.is_idle()
        book.saves()
        until(is_connected)
        edits(page)
        page.close()
        first_cell(browser, server)


def edits(page):
    begun, written = [], []
    for number in range(EDITS):
        text = f"agent = {number}"
        page.evaluate(f"void (window.shown = ({SEEN})({text!r}))")
        before = time.time()
        nb("edit", PATH, "3", text)
        shown = page.evaluate("window.shown") / 1000
        begun.append(shown - before)
        written.append(shown - pathlib.Path(PATH).stat().st_mtime)
    for name, times in [("the command began", begun), ("the file was written", written)]:
        times = sorted(round(1000 * each) for each in times)
        say(f"on the screen after {name}: median {statistics.median(times)} ms, {times}")


def first_cell(browser, server):
    # Outside of the folder in which a server looks for extensions.
    hidden = EXTENSION.parent.with_name("nb-live")
    context = browser.new_context(viewport=SIZE)

    def loads():
        page = context.new_page()
        before = time.monotonic()
        page.goto(f"{server.address}/lab/tree/{PATH}?token={server.token}&reset")
        page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for()
        took = time.monotonic() - before
        page.close()
        return took

    loads()
    ratios = []
    for number in range(PAIRS):
        times = {}
        for has_extension in [True, False] if number % 2 else [False, True]:
            if not has_extension:
                EXTENSION.rename(hidden)
            try:
                times[has_extension] = loads()
            finally:
                if not has_extension:
                    hidden.rename(EXTENSION)
        ratios.append(times[True] / times[False])
        say(f"with {times[True]:.2f} s, without {times[False]:.2f} s")
    logs = [math.log(ratio) for ratio in ratios]
    spread = T95 * statistics.stdev(logs) / math.sqrt(PAIRS)
    mean = statistics.mean(logs)
    low, high = math.exp(mean - spread), math.exp(mean + spread)
    say(f"the first cell: ratio {math.exp(mean):.3f}, 95 % interval {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    sys.exit(main())

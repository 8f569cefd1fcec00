"""Tabs of `nb web`, agents and a person in JupyterLab work on one notebook at random.

Nothing may be lost, and in the end all show the same. What the person in JupyterLab saves over comes back.

    web_tabs.py TABS SECONDS
"""

import contextlib
import json
import os
import pathlib
import random
import re
import sys
import time

import four
from four import LINES, PATH, Person, cells, shell
from lab import SECONDS, Server, chromium, expect, say, write
from tab import PLAIN
from web_tab import Web, until

TABS = int(sys.argv[1])

# How many steps are taken even where the machine is slow.
FEWEST = 12

# What a tab shows: the sources, by the cells' ids, in order.
SHOWN = "[...document.querySelectorAll('.cell')].map(({ cellView: it }) => [it.id, it.text])"

# What JupyterLab shows.
LAB_SHOWN = "[...jupyterapp.shell.currentWidget.content.model.cells].map((it) => [it.id, it.sharedModel.getSource()])"


class Tab:
    """One tab: it has a cell of its own, and adds others."""

    def __init__(self, page, number, address):
        self.page, self.number = page, number
        self.id = f"tab{number:05}"
        self.text = f"tab{number} = 0"
        self.added, self.problems = [], []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.goto(address)
        expect(self.own.locator(".source")).to_contain_text(self.text)

    @property
    def own(self):
        return self.page.locator(f".cell[data-cell='{self.id}']")

    def step(self, count, kind):
        if kind == "add":
            self.add(count)
            return
        text = f"tab{self.number} = {count}\nprint('tab', tab{self.number})"
        self.write(self.own, text)
        self.page.keyboard.press("Control+Enter" if kind == "run" else "Control+s")
        self.is_written(self.own)
        self.text = text

    def write(self, cell, text):
        # A cell gets its editor when it comes near the screen.
        cell.scroll_into_view_if_needed()
        source = cell.locator(".cm-content")
        source.click()
        source.press("Control+a")
        self.page.keyboard.insert_text(text)

    def add(self, count):
        self.own.locator(".side").click()
        self.page.keyboard.press("Escape")
        self.own.focus()
        self.page.keyboard.press("b")
        fresh = self.page.locator(f".cell[aria-current]:not([data-cell='{self.id}'])")
        expect(fresh).to_be_visible()
        cell = self.page.locator(f".cell[data-cell='{fresh.get_attribute('data-cell')}']")
        text = f"# tab {self.number}, {count}"
        self.write(cell, text)
        self.page.keyboard.press("Control+s")
        self.is_written(cell)
        self.added.append(text)

    def is_written(self, cell):
        """Waits until the notebook has what was typed; where others have changed the cell meanwhile, it stays."""
        keep = cell.get_by_role("button", name="Overwrite")
        written = self.page.locator(f".cell[data-cell='{cell.get_attribute('data-cell')}']:not(.changed)")
        expect(written.or_(keep).first).to_be_visible()
        if keep.is_visible():
            keep.click()
            expect(written).to_be_visible()


def reload(person):
    """Shows the file as it is, as a person does who knows that others work on it."""
    person.book.menu("File", "Reload Notebook from Disk")
    if (dialog := person.page.locator(".jp-Dialog .jp-mod-accept")).is_visible():
        dialog.click()


def main():
    seconds = float(sys.argv[2])
    expect.set_options(timeout=1000 * SECONDS)
    write(PATH, "human = 0", kernelspec={"name": "python3", "display_name": PLAIN})
    shell("open", PATH, "--python", os.environ["NB_TEST_PYTHON"])
    shell("insert", "-n", PATH, "--id", "shared", "\n".join(f"line{line} = 0" for line in range(LINES)))
    for number in range(TABS):
        shell("insert", "-n", PATH, "--id", f"tab{number:05}", f"tab{number} = 0")
    agents = four.Agents()
    rng = random.Random(7)
    web = Web()
    with contextlib.ExitStack() as ends, Server() as server, chromium() as browser:
        ends.callback(web.end)
        context = browser.new_context(viewport={"width": 1000, "height": 700})
        first = context.new_page()
        first.goto(web.address)
        expect(first.get_by_role("link", name=PATH)).to_be_visible()
        address = f"{first.url.split('#')[0]}#{PATH}"
        pages = [first, *(context.new_page() for _ in range(TABS - 1))]
        tabs = [Tab(page, number, address) for number, page in enumerate(pages)]
        person = Person(browser.new_page(viewport={"width": 1100, "height": 900}), server)
        say("all are there")
        end = time.monotonic() + seconds
        count = 0
        with agents.at_work():
            while (time.monotonic() < end or count < FEWEST) and agents.are_alive():
                count += 1
                if count % 6 == 0:
                    reload(person)
                    person.step(count)
                else:
                    kind = rng.choices(["write", "run", "add"], [4, 3, 2])[0]
                    rng.choice(tabs).step(count, kind)
        four.check(agents.all, person)
        check(tabs, person, count)


def check(tabs, person, count):
    log = json.loads(shell("log", PATH, "--json", "--lines", "0"))["log"]
    saved = [change for entry in log if entry["event"] == "saved" for change in entry["changes"]]
    sources = {cell["id"]: "".join(cell["source"]) for cell in cells()}
    lost, over = [], []
    for tab in tabs:
        assert tab.problems == [], tab.problems
        lost += [added for added in tab.added if added not in sources.values()]
        if sources[tab.id] != tab.text:
            # The log says who has saved over it.
            is_known = any(change["cell"] == tab.id for change in saved)
            (over if is_known else lost).append((tab.id, tab.text, sources[tab.id]))
    say(count, "steps:", sum(len(tab.added) for tab in tabs), "added, saved over:", over)
    assert not lost, lost
    # All show what the file has.
    truth = [[cell["id"], "".join(cell["source"])] for cell in cells()]
    truth = json.dumps(truth, separators=(",", ":"), ensure_ascii=False)
    for tab in tabs:
        until(tab.page, f"JSON.stringify({SHOWN}) === argument", truth)
    reload(person)
    until(person.page, f"JSON.stringify({LAB_SHOWN}) === argument", truth)


if __name__ == "__main__":
    sys.exit(main())

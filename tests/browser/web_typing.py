"""Two tabs of `nb web` and an agent in one cell, each in a line of its own: each letter and each edit is there.

    web_typing.py SECONDS
"""

import contextlib
import json
import pathlib
import random
import sys
import threading
import time

from lab import SECONDS, chromium, expect, nb, say, until, write
from web_tab import Book, Web

BOOK = "book.ipynb"
LINES = ["# tab 0", "# between", "# tab 1", "# between", "agent = 0"]


class Agent(threading.Thread):
    """Changes its line without pause."""

    def __init__(self, cell):
        super().__init__(daemon=True)
        self.cell, self.count, self.failure = cell, 0, None
        self.goes_on = True
        self.start()

    def run(self):
        try:
            while self.goes_on:
                nb("edit", BOOK, self.cell, "--replace", f"agent = {self.count}", f"agent = {self.count + 1}")
                self.count += 1
        except BaseException as failure:
            self.failure = failure


def main():
    seconds = float(sys.argv[1])
    expect.set_options(timeout=1000 * SECONDS)
    write(BOOK, "\n".join(LINES))
    rng = random.Random(3)
    web = Web(BOOK, "--port", "0")
    with contextlib.ExitStack() as ends, chromium() as browser:
        ends.callback(web.end)
        context = browser.new_context(viewport={"width": 1000, "height": 700})
        tabs = [Book(context.new_page()) for _ in range(2)]
        tabs[0].page.goto(web.address)
        expect(tabs[0].source(0)).to_contain_text("agent = 0")
        tabs[1].page.goto(f"{tabs[0].page.url.split('#')[0]}#{BOOK}")
        for number, tab in enumerate(tabs):
            tab.source(0).locator(".cm-line").nth(2 * number).click()
            tab.page.keyboard.press("End")
        agent = Agent(json.loads(pathlib.Path(BOOK).read_text())["cells"][0]["id"])
        typed, saves = ["", ""], 0
        end = time.monotonic() + seconds
        while time.monotonic() < end and not agent.failure:
            number = rng.randrange(2)
            word = f" {rng.randrange(1000)}"
            tabs[number].page.keyboard.type(word, delay=rng.choice([0, 20]))
            typed[number] += word
            if rng.random() < 0.3:
                tabs[number].page.keyboard.press("Control+s")
                saves += 1
        agent.goes_on = False
        agent.join()
        assert agent.failure is None, agent.failure
        for tab in tabs:
            tab.page.keyboard.press("Control+s")
        say(agent.count, "edits,", saves, "saves,", sum(map(len, typed)), "letters")
        wanted = "\n".join([LINES[0] + typed[0], LINES[1], LINES[2] + typed[1], LINES[3], f"agent = {agent.count}"])
        until(lambda: "".join(json.loads(pathlib.Path(BOOK).read_text())["cells"][0]["source"]) == wanted)
        for tab in tabs:
            until(lambda tab=tab: tab.page.evaluate("document.querySelector('.cell').cellView.text") == wanted)
            expect(tab.cell(0)).not_to_have_class("changed")
            assert tab.problems == [], tab.problems


main()

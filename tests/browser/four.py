"""Two MCP clients, a command line and a person in JupyterLab change and run one notebook at random.

Nothing may be lost, each change has its author, and edits of different lines do not conflict. What the person saves
over (JupyterLab's save compares times of files with half a second of slack) is reported, and comes back.

    four.py SECONDS
"""

import collections
import contextlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import threading
import time

from playwright.sync_api import TimeoutError

from lab import SECONDS, SHARED, Server, chromium, expect, say, write
from tab import DIRTY, PLAIN, Notebook

PATH = "four.ipynb"
LINES = 30
SIZE = {"width": 1100, "height": 900}
NB = os.environ["NB_TEST_BINARY"]


class Refused(Exception):
    """A change was refused; its text says why."""


class Mcp:
    """A client of `nb mcp`."""

    def __init__(self, name):
        self.name = name
        self.server = subprocess.Popen(
            [NB, "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.id = self.warnings = 0
        client = {"name": name, "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        self.request("initialize", hello)
        self.send({"method": "notifications/initialized"})

    def send(self, message):
        self.server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.server.stdin.flush()

    def request(self, method, params):
        self.id += 1
        self.send({"id": self.id, "method": method, "params": params})
        while (answer := json.loads(self.server.stdout.readline())).get("id") != self.id:
            pass
        return answer["result"]

    def call(self, tool, **arguments):
        result = self.request("tools/call", {"name": tool, "arguments": {"notebook": PATH, **arguments}})
        text = "".join(block.get("text", "") for block in result["content"])
        self.warnings += "restore" in text
        if result.get("isError"):
            raise Refused(text)
        return text

    def read(self):
        self.call("read_cell", cell="shared")

    def look(self):
        self.call("get_notebook_state")

    def replace(self, old, new):
        return self.call("update_cell", cell="shared", old_string=old, new_string=new)

    def insert(self, source):
        return self.call("create_cell", source=source, run=True)

    def run(self, code):
        return self.call("run_cell", code=code)

    def end(self):
        self.server.stdin.close()
        self.server.wait(SECONDS)


class Shell:
    """An agent that uses the commands."""

    def __init__(self, name):
        self.name = name
        self.warnings = 0

    def call(self, *words):
        done = subprocess.run(
            [NB, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=SECONDS, env={**os.environ, "NB_AS": self.name},
        )  # fmt: skip
        if done.returncode != 0:
            raise Refused(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}")
        self.warnings += "restore" in done.stderr
        return done.stdout + done.stderr

    def look(self):
        self.call("cells", PATH)

    def read(self):
        self.call("cell", PATH, "shared")

    def replace(self, old, new):
        return self.call("edit", PATH, "shared", "--replace", old, new)

    def insert(self, source):
        return self.call("insert", "-n", PATH, "-x", source)

    def run(self, code):
        return self.call("run", "-n", PATH, code)

    def end(self):
        pass


class Agent(threading.Thread):
    """Changes lines of its own in a cell of all, adds cells, and runs code, until it is told to stop."""

    def __init__(self, number, hands, stop):
        super().__init__(name=hands.name)
        self.hands, self.stop = hands, stop
        self.random = random.Random(number)
        self.lines = {line: 0 for line in range(number, LINES, 3)}
        self.added = []
        self.counts = collections.Counter()
        self.overwritten = []
        self.problem = None

    def run(self):
        try:
            self.hands.read()
            number = 0
            while not self.stop.wait(self.random.uniform(0, 2)):
                number += 1
                self.step(number)
        except BaseException as problem:  # the main thread reports it
            self.problem = problem

    def step(self, number):
        kind = self.random.choices(["replace", "insert", "run"], [6, 2, 2])[0]
        mark = f"{self.name}_{number}"
        if kind == "run":
            output = self.hands.run(f"{mark} = {number}; {mark} * 2")
            assert str(number * 2) in output, output
        elif kind == "insert":
            output = self.hands.insert(f"{mark} = {number}; {mark} * 3")
            assert str(number * 3) in output, output
            self.added.append(f"{mark} = {number}; {mark} * 3")
        else:
            line = self.random.choice(list(self.lines))
            end = "\n" if line < LINES - 1 else ""
            try:
                self.hands.replace(f"line{line} = {self.lines[line]}{end}", f"line{line} = {number}{end}")
            except Refused as refused:
                # Its text is not there: the person has saved over this line.
                source = shared()
                found = re.search(rf"^line{line} = (\d+)$", source, re.M)
                assert found and int(found[1]) != self.lines[line], refused
                self.overwritten.append((line, self.lines[line], int(found[1])))
                self.lines[line] = int(found[1])
                return
            self.lines[line] = number
        self.counts[kind] += 1


class Agents:
    """Two MCP clients and a shell."""

    def __init__(self):
        self.stop = threading.Event()
        hands = [Mcp("one"), Mcp("two"), Shell("shell")]
        self.all = [Agent(number, hand, self.stop) for number, hand in enumerate(hands)]

    def are_alive(self):
        return all(agent.is_alive() for agent in self.all)

    @contextlib.contextmanager
    def at_work(self):
        for agent in self.all:
            agent.start()
        try:
            yield
        finally:
            self.stop.set()
            for agent in self.all:
                agent.join(2 * SECONDS)
        for agent in self.all:
            if agent.problem:
                raise agent.problem
            agent.hands.look()
            agent.hands.end()


def cells():
    return json.loads(pathlib.Path(PATH).read_text())["cells"]


def shared():
    return "".join(next(cell for cell in cells() if cell["id"] == "shared")["source"])


def shell(*words):
    return Shell("setup").call(*words)


class Person:
    """Types into a cell of their own, saves and runs it."""

    def __init__(self, page, server):
        self.page = page
        self.book = Notebook(page, server, PATH)
        self.book.choose(SHARED)
        self.saved, self.counts = 0, collections.Counter()

    def step(self, number):
        self.write(f"human = {number}")
        if self.save():
            self.saved = number
            self.counts["saved"] += 1
        else:
            self.book.answers("Revert")
            self.counts["reverted"] += 1
            return
        if number % 3 == 0:
            self.book.run(0)
            self.counts["run"] += 1
            self.book.is_idle()

    def write(self, text):
        """Types a text, and again if the page has meanwhile reloaded what others changed."""
        source = self.book.source(0)
        self.until(
            f"document.querySelector('{DIRTY}')",
            lambda: (source.click(), source.press("Control+a"), self.page.keyboard.type(text)),
        )

    def save(self):
        """Saves, and again if the keys went to a cell that was just replaced.

        Returns False if the page says that the file has changed.
        """
        self.until(
            f"document.querySelector('.jp-Dialog') || !document.querySelector('{DIRTY}')",
            self.book.save,
        )
        return not self.page.locator(".jp-Dialog").is_visible()

    def until(self, condition, act):
        """Acts, and again every five seconds, until the page fulfils a condition."""
        for _ in range(SECONDS // 5):
            act()
            try:
                return self.page.wait_for_function(condition, timeout=5000)
            except TimeoutError:
                say("again:", condition)
        raise AssertionError(f"never: {condition}")


def main():
    seconds = float(sys.argv[1])
    expect.set_options(timeout=1000 * SECONDS)
    write(PATH, "human = 0", kernelspec={"name": "python3", "display_name": PLAIN})
    shell("open", PATH, "--python", os.environ["NB_TEST_PYTHON"])
    lines = "\n".join(f"line{line} = 0" for line in range(LINES))
    shell("insert", "-n", PATH, "--id", "shared", lines)
    agents = Agents()
    with Server() as server, chromium() as browser:
        person = Person(browser.new_page(viewport=SIZE), server)
        end = time.monotonic() + seconds
        number = 0
        with agents.at_work():
            while time.monotonic() < end and agents.are_alive():
                number += 1
                person.step(number)
    check(agents.all, person)
    assert person.counts["saved"] > 0


def check(agents, person):
    source = shared().split("\n")
    # What a save of the person has removed comes back, and its writer got a warning.
    deleted = json.loads(shell("log", PATH, "--deleted", "--json", "--lines", "0"))["deleted"]
    for cell in deleted:
        shell("restore", PATH, cell["cell"])
    sources = {cell["id"]: "".join(cell["source"]) for cell in cells()}
    removed = {sources[cell["cell"]] for cell in deleted}
    lost = []
    for agent in agents:
        lines = [f"line{line} = {value}" for line, value in agent.lines.items()]
        over = [line for line in lines if line not in source] + agent.overwritten
        over += removed.intersection(agent.added)
        if over and not agent.hands.warnings:
            lost.append((agent.name, over, "no warning"))
        lost += [(agent.name, added) for added in agent.added if added not in sources.values()]
    overwritten = [(agent.name, cell) for agent in agents for cell in agent.overwritten]
    log = json.loads(shell("log", PATH, "--json", "--lines", "0"))["log"]
    for agent in agents:
        edits = [entry for entry in log if entry["event"] == "edited" and entry["by"] == agent.name]
        made = agent.counts["replace"] + agent.counts["insert"]
        assert len(edits) == made, (agent.name, len(edits), made)
        ran = [entry for entry in log if entry["event"] == "ran" and entry["by"] == agent.name]
        made = agent.counts["run"] + agent.counts["insert"]
        assert len(ran) == made, (agent.name, len(ran), made)
    say({agent.name: dict(agent.counts) for agent in agents}, "person", dict(person.counts))
    warnings = {agent.name: agent.hands.warnings for agent in agents}
    say("saved over by the person:", overwritten, len(deleted), "warnings:", warnings, "lost:", lost)
    assert not lost, lost


if __name__ == "__main__":
    sys.exit(main())

"""A person types and saves in JupyterLab while an agent edits, inserts and runs without pause: nothing is lost, nothing is asked.

The number of rounds is the first argument, the seconds of a round the second one.
"""

import contextlib
import json
import os
import pathlib
import sys
import threading
import time

from lab import SECONDS, SHARED, Server, begin, chromium, expect, nb, say, until, write
from live import is_connected, no_dialog
from tab import DIRTY, Notebook

SIZE = {"width": 1100, "height": 900}
SPEC = {"name": "nb-shared", "display_name": SHARED}
# The pause between two keys, in milliseconds, and between two saves, in seconds.
KEY = 60
SAVE = 2
PERSON, RUN = 0, 2
# The exit code of a refused edit.
REFUSED = 5

# Tells of a failure where the keys went, and who else changed the cell's text.
WATCH = """() => {
    const watched = window.watched = [];
    document.addEventListener('keydown', event => {
        if (!event.target.closest('.cm-content')) watched.push([Date.now(), 'stray', event.key, event.target.className]);
    }, true);
    document.addEventListener('focusout', event => watched.push([Date.now(), 'focusout', event.target.className, event.relatedTarget?.className]), true);
    const { context, sessionContext } = window.jupyterapp.shell.currentWidget;
    const { contents } = window.jupyterapp.serviceManager;
    const log = (...what) => watched.push([Date.now(), ...what]);
    const short = model => [model.hash?.slice(0, 6), model.last_modified];
    for (const [owner, name] of [[context, '_updateContentsModel'], [contents, 'get'], [contents, 'save']]) {
        const before = owner[name].bind(owner);
        owner[name] = (...words) => {
            const of = name.startsWith('_') ? short(words[0]) : [];
            log(name, ...of);
            const result = before(...words);
            result?.then?.(model => log(`${name} ended`, ...short(model)), error => log(`${name} failed`, String(error)));
            return result;
        };
    }
    sessionContext.session.kernel.anyMessage.connect((_, { msg, direction }) => {
        const { type, seq, stamp } = msg.content?.data ?? {};
        if (msg.header.msg_type === 'comm_msg' && type !== 'received' && type !== 'text') log(direction, type, seq ?? stamp?.slice(0, 6));
    });
    const [cell] = window.jupyterapp.shell.currentWidget.context.model.sharedModel.cells;
    cell.changed.connect((_, { sourceChange }) => {
        if (sourceChange?.some(each => each.delete)) watched.push([Date.now(), 'text', sourceChange]);
    });
}"""


def main(rounds, seconds):
    expect.set_options(timeout=1000 * SECONDS)
    nb("serve", "--jupyterlab")
    with Server() as server, chromium() as browser:
        for number in range(rounds):
            path = f"typing-{number}.ipynb"
            write(path, "head = 0\n", "agent = 0", "print('run', 0)", kernelspec=SPEC)
            nb("open", path, "--python", os.environ["NB_TEST_PYTHON"])
            page = browser.new_page(viewport=SIZE)
            page.on("console", lambda message: message.type == "error" and say("console:", message.text))
            book = Notebook(page, server, path)
            book.is_idle()
            until(is_connected)
            a_round(book, path, seconds)
            page.close()
            nb("shutdown", path)


def sources(path):
    while True:
        # Some servers write the file in place.
        with contextlib.suppress(json.JSONDecodeError):
            cells = json.loads(pathlib.Path(path).read_text())["cells"]
            return {cell["id"]: "".join(cell["source"]) for cell in cells}


class Agent(threading.Thread):
    """Edits without pause; what `nb` has acknowledged must be in the file at the end."""

    def __init__(self, path):
        super().__init__()
        self.path = path
        self.person, self.cell, self.run_cell = list(sources(path))
        self.ends = threading.Event()
        self.count = 0
        self.head = 0
        self.inserted = []
        self.error = None

    def run(self):
        try:
            while not self.ends.is_set():
                self.count += 1
                count = self.count
                nb("edit", self.path, self.cell, f"agent = {count}")
                if count % 3 == 0:
                    self.inserted.append(f"new = {count}")
                    nb("insert", self.path, "--at", "0", self.inserted[-1])
                if count % 4 == 0:
                    self.edits_the_persons_cell(count)
                if count % 5 == 0:
                    nb("edit", self.path, self.run_cell, f"print('run', {count})")
                    nb("exec", self.path, self.run_cell)
        except Exception as error:
            self.error = error

    def edits_the_persons_cell(self, count):
        """It is refused while the cell has unsaved text."""
        edit = begin("replace", self.path, f"head = {self.head}", f"head = {count}")
        edit.communicate(timeout=SECONDS)
        assert edit.returncode in (0, REFUSED), edit.returncode
        if edit.returncode == 0:
            self.head = count


def is_saved(book):
    """Saves, and says whether that was taken: JupyterLab drops it while the save before is under way."""
    no_dialog(book)
    book.save()
    try:
        expect(book.page.locator(DIRTY)).to_have_count(0, timeout=2000)
    except AssertionError:
        return False
    return True


def a_round(book, path, seconds):
    agent = Agent(path)
    keyboard = book.page.keyboard
    book.source(PERSON).click()
    keyboard.press("Control+End")
    book.page.evaluate(WATCH)
    agent.start()
    end, saved, typed, saves = time.monotonic() + seconds, time.monotonic(), [], 0
    while time.monotonic() < end:
        word = f"w{len(typed)} "
        keyboard.type(word, delay=KEY)
        typed.append(word)
        if time.monotonic() - saved > SAVE:
            keyboard.press("Control+s")
            saved, saves = time.monotonic(), saves + 1
    agent.ends.set()
    while agent.is_alive():
        agent.join(0.1)
        book.page.evaluate("1")
    if agent.error:
        raise agent.error
    if book.page.locator(".jp-Dialog").count():
        say(json.dumps(book.page.evaluate("window.watched.slice(-120)")))
    no_dialog(book)
    until(lambda: is_saved(book) and "".join(typed) in sources(path)[agent.person])
    text = "".join(typed)
    now = sources(path)
    mine = now[agent.person]
    say(f"{path}: {agent.count} edits, {len(agent.inserted)} inserts, {len(text)} keys, {saves} saves")
    if text not in mine:
        say(json.dumps(book.page.evaluate("window.watched.slice(-200)")))
    assert text in mine, f"letters are lost: {text!r} is not in {mine!r}"
    assert mine == f"head = {agent.head}\n{text}", mine
    assert now[agent.cell] == f"agent = {agent.count}", now
    added = [source for cell, source in now.items() if cell not in (agent.person, agent.cell, agent.run_cell)]
    assert added == agent.inserted[::-1], added
    shown = book.page.evaluate(
        "window.jupyterapp.shell.currentWidget.context.model.sharedModel.cells.map(cell => [cell.id, cell.getSource()])"
    )
    assert dict(shown) == now, shown
    if agent.count >= 5:
        expect(book.cell(len(agent.inserted) + RUN).locator(".jp-OutputArea")).to_contain_text(
            f"run {agent.count // 5 * 5}"
        )
    assert book.panel.locator(".nb-conflict").count() == 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))

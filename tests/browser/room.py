"""A person types in JupyterLab with jupyter-collaboration, while an agent edits and runs the notebook's other cell:
no letter is lost."""

import contextlib
import json
import os
import subprocess
import sys

from lab import SECONDS, Server, chromium, expect, say, until, write
from tab import PLAIN, Notebook

SIZE = {"width": 1100, "height": 900}
HUMANS, AGENTS = 0, 1
TEXT = "abcdefghijklmnopqrstuvwxyz0123456789"
PATH = "t.ipynb"


def main():
    expect.set_options(timeout=1000 * SECONDS)
    with Server() as server, chromium() as browser:
        page = browser.new_page(viewport=SIZE)
        write(PATH, "# ", "print(6 * 7)", kernelspec={"name": "python3", "display_name": PLAIN})
        cell = cells()[AGENTS]["id"]
        ended(agent("open", PATH, "--python", os.environ["NB_TEST_PYTHON"]))
        ended(agent("cells", PATH))
        book = Notebook(page, server, PATH)
        book.is_idle()
        refused = typed_beside(page, book, "edit", PATH, cell, "print(7 * 6)")
        done = typed_beside(page, book, "exec", PATH, "--cell", cell)
        say(f"{refused}\n{done}")
        assert refused.returncode == 5 and "--force" in refused.stderr, refused
        assert "http://127.0.0.1" in refused.stderr, refused
        assert done.returncode == 0 and done.stdout == "42\n", done
        assert "once its tab is closed" in done.stderr, done
        assert not cells()[AGENTS]["outputs"], "they were written while the tab is open"
        page.close()
        say("the tab is closed")
        until(lambda: cells()[AGENTS]["outputs"])
        say("the outputs are in the file")
        ended(agent("edit", PATH, cell, "print(7 * 6)"))
    ended(agent("shutdown", PATH))


def agent(*words):
    return subprocess.Popen(
        [os.environ["NB_TEST_BINARY"], *words], text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "NB_AS": "claude"},
    )  # fmt: skip


def ended(process, code=0):
    out, err = process.communicate(timeout=2 * SECONDS)
    done = subprocess.CompletedProcess(process.args[1:], process.returncode, out, err)
    assert code is None or done.returncode == code, done
    return done


def typed_beside(page, book, *words):
    """Types into the person's cell while an agent's command runs, and goes on until the room has looked at the file;
    returns the command."""
    book.write(HUMANS, "# ")
    # The room saves a second after the last letter.
    until(lambda: "".join(cells()[HUMANS]["source"]) == "# ")
    process = None
    for letter in TEXT:
        page.keyboard.type(letter)
        page.wait_for_timeout(60)
        if letter == "e":
            process = agent(*words)
    done = ended(process, None)
    # The room looks at the file each second, and saves its own text after that.
    page.wait_for_timeout(3000)
    shown = book.source(HUMANS).inner_text()
    left = sum(letter in shown for letter in TEXT)
    say(f"{words[0]}: {left} of {len(TEXT)} letters are there: {shown!r}")
    assert left == len(TEXT) or "NB_ROOM_LOST" in os.environ, shown
    return done


def cells():
    while True:
        # The room writes the file in place.
        with contextlib.suppress(json.JSONDecodeError), open(PATH) as file:
            return json.load(file)["cells"]


if __name__ == "__main__":
    sys.exit(main())

"""A person types in JupyterLab while an agent edits the same notebook: neither is lost unsaid."""

import json
import os
import sys
import time

from lab import SECONDS, Server, chromium, expect, nb, say, write
from tab import PLAIN, Notebook

SIZE = {"width": 1100, "height": 900}
HUMANS, AGENTS = 0, 1


def main():
    expect.set_options(timeout=1000 * SECONDS)
    with Server() as server, chromium() as browser:
        made("clean.ipynb")
        book = Notebook(browser.new_page(viewport=SIZE), server, "clean.ipynb")
        book.is_idle()
        clean(book, "clean.ipynb")
        overwritten(opened(book, "overwritten.ipynb"), "overwritten.ipynb")
        reverted(opened(book, "reverted.ipynb"), "reverted.ipynb")


def made(path):
    write(path, "human = 1", "agent = 1", kernelspec={"name": "python3", "display_name": PLAIN})
    # JupyterLab takes a file for changed that is half a second younger than the one it knows.
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago))


def opened(book, path):
    made(path)
    book.opens(path)
    book.is_idle()
    return book


def cells(path):
    with open(path) as file:
        return json.load(file)["cells"]


def sources(path):
    return ["".join(cell["source"]) for cell in cells(path)]


def agent_edits(path):
    """The agent reads, and edits its cell."""
    nb("cells", path)
    nb("edit", path, cells(path)[AGENTS]["id"], "agent = 'edited'")
    assert sources(path)[AGENTS] == "agent = 'edited'"


def clean(book, path):
    say("an editor without unsaved changes")
    agent_edits(path)
    book.menu("File", "Reload Notebook from Disk")
    if (dialog := book.page.locator(".jp-Dialog .jp-mod-accept")).is_visible():
        dialog.click()
    expect(book.source(AGENTS)).to_have_text("agent = 'edited'")
    book.write(HUMANS, "human = 'typed'")
    book.save()
    book.is_saved()
    assert sources(path) == ["human = 'typed'", "agent = 'edited'"], sources(path)


def overwritten(book, path):
    say("unsaved changes, then Overwrite")
    book.write(HUMANS, "human = 'typed'")
    agent_edits(path)
    book.save()
    book.answers("Overwrite")
    book.is_saved()
    assert sources(path) == ["human = 'typed'", "agent = 1"], sources(path)
    say("the agent gets a warning, and brings its edit back")
    mine = cells(path)[AGENTS]["id"]
    stderr = nb("cells", path, stream="stderr")
    assert "nb restore" in stderr and mine[:4] in stderr, stderr
    nb("restore", path, mine)
    assert sources(path) == ["human = 'typed'", "agent = 'edited'"], sources(path)
    assert "nb restore" not in nb("cells", path, stream="stderr")


def reverted(book, path):
    say("unsaved changes, then Revert")
    book.write(HUMANS, "human = 'typed'")
    agent_edits(path)
    book.save()
    book.answers("Revert")
    expect(book.source(AGENTS)).to_have_text("agent = 'edited'")
    assert sources(path) == ["human = 1", "agent = 'edited'"], sources(path)


if __name__ == "__main__":
    sys.exit(main())

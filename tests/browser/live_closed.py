"""A tab of JupyterLab is closed while its cell runs: nothing that the cell prints is lost, and a page that comes back is live.

The first argument is the number of rounds. If the second one is `without`, nb's extension is not installed: then `nb` asks
the Jupyter server for its pages, and the page that comes back shows what the file has. If it is `hub`, the server is one
that JupyterHub has started.
"""

import json
import os
import pathlib
import sys
from importlib.metadata import version

from hub import Hub
from lab import SECONDS, SHARED, Server, chromium, expect, nb, say, until, write
from live import is_connected, records
from tab import Notebook

SIZE = {"width": 1100, "height": 900}
SPEC = {"name": "nb-shared", "display_name": SHARED}
STOP = pathlib.Path("stop")
# It goes on until the test has seen what it wants to see.
CODE = """import os, time
n = 0
while not os.path.exists('stop'):
    print('line', n, flush=True)
    n += 1
    time.sleep(0.25)
print('end', n)"""


def main(rounds, kind=None):
    expect.set_options(timeout=1000 * SECONDS)
    without = kind == "without"
    if not without:
        nb("serve", "--jupyterlab")
    cases = [("stays-away", goes_for_good)] if without else [("comes-back", comes_back), ("stays-away", stays_away)]
    with Hub() if kind == "hub" else Server() as server, chromium() as browser:
        for number in range(rounds):
            for name, follows in cases:
                path = f"{name}-{number}.ipynb"
                write(path, CODE, "last = 1", kernelspec=SPEC)
                nb("open", path, "--python", os.environ["NB_TEST_PYTHON"])
                page = browser.new_page(viewport=SIZE)
                book = Notebook(page, server, path)
                book.is_idle()
                # JupyterLab adds the kernel's language to the notebook.
                book.saves()
                until(lambda: without or is_connected())
                cell = book.run(0)
                expect(cell.locator(".jp-OutputArea")).to_contain_text("line 0")
                page.close()
                say(f"{path}: closed")
                follows(browser, server, path)
                STOP.unlink()
                nb("shutdown", "--force", path)
                until(lambda: not records())


def output(path):
    cell = json.loads(pathlib.Path(path).read_text())["cells"][0]
    return "".join("".join(output.get("text", "")) for output in cell["outputs"]).splitlines()


def is_whole(lines):
    """Each line is there once, up to the last one."""
    count = len(lines) - 1
    return count > 0 and lines == [*(f"line {n}" for n in range(count)), f"end {count}"]


def shown(book):
    return book.cell(0).locator(".jp-OutputArea").inner_text().rstrip("\n").split("\n")


def is_same(book, path):
    try:
        until(lambda: shown(book) == output(path))
    except AssertionError:
        raise AssertionError(f"the page shows {shown(book)}, the file has {output(path)}") from None


def comes_back(browser, server, path):
    page = browser.new_page(viewport=SIZE)
    book = Notebook(page, server, path)
    until(lambda: shown(book)[0] == "line 0")
    before = len(shown(book))
    until(lambda: len(shown(book)) > before + 2)
    say(f"live again, {before} lines at first")
    # JupyterLab 4.0 cannot show a cell as running that it has not run itself.
    if not version("jupyterlab").startswith("4.0."):
        expect(book.cell(0).locator(".jp-InputPrompt")).to_have_text("[*]:")
    STOP.touch()
    until(lambda: is_whole(output(path)))
    expect(book.cell(0).locator(".jp-InputPrompt")).to_have_text("[1]:")
    is_same(book, path)
    book.is_saved()
    assert page.locator(".jp-Dialog").count() == 0
    page.close()


def stays_away(browser, server, path):
    STOP.touch()
    until(lambda: is_whole(output(path)))
    page = browser.new_page(viewport=SIZE)
    book = Notebook(page, server, path)
    is_same(book, path)
    page.close()


def is_of(ready, path):
    return json.loads(ready.with_name("job.json").read_text())["notebook"] == path


def goes_for_good(browser, server, path):
    """The recorder takes the cell while it runs; the file has all lines without a page."""
    until(lambda: any(is_of(job, path) for job in pathlib.Path(".nb/jobs").glob("*/ready")))
    say("a recorder has it")
    stays_away(browser, server, path)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))

"""JupyterLab on another machine, whose kernels are those of `nb web` by its URL (`--gateway-url`).

The other machine is another folder: it has a copy of the notebook, and no kernelspec of `nb`.
"""

import os
import pathlib
import sys

from journey import CELLS, LOOK, PLOT, SET, SIZE, WIDGET, asks_and_is_interrupted
from lab import SECONDS, SHARED, Server, chromium, expect, nb, say, write
from tab import PLAIN, Notebook
from web_tab import Web

BOOK = "analysis.ipynb"


def main():
    expect.set_options(timeout=1000 * SECONDS)
    laptop = pathlib.Path(os.environ["HOME"]) / "laptop"
    laptop.mkdir()
    for folder in (pathlib.Path(), laptop):
        write(folder / BOOK, *CELLS, kernelspec={"name": "python3", "display_name": PLAIN})
    nb("open", BOOK, "--python", os.environ["NB_TEST_PYTHON"])
    nb("run", "-n", BOOK, "agents = 1")
    web = Web()
    address, token = web.address.split("/?token=")
    arguments = [
        f"--gateway-url={address}",
        f"--GatewayClient.auth_token={token}",
        "--GatewayClient.allowed_envs=JPY_SESSION_NAME",
    ]
    try:
        with Server(*arguments, folder=laptop) as server, chromium() as browser:
            day(browser, server)
    finally:
        web.end()


def day(browser, server):
    page = browser.new_page(viewport=SIZE)
    say("choosing")
    book = Notebook(page, server, BOOK, asked=SHARED)
    book.is_idle()

    say("shared variables")
    book.run(SET)
    book.ends(SET, "x is 20")
    assert nb("run", "-n", BOOK, "x + agents").strip() == "21"

    say("a plot and a widget")
    book.run(PLOT)
    expect(book.cell(PLOT).locator(".jp-OutputArea img")).to_be_visible()
    book.run(WIDGET)
    book.cell(WIDGET).locator(".noUi-handle").focus()
    page.keyboard.press("ArrowRight")
    expect(book.cell(WIDGET).locator(".widget-label:has-text('dialled 4')")).to_be_visible()

    asks_and_is_interrupted(book)

    say("restart")
    book.button("restart")
    page.locator(".jp-Dialog .jp-mod-accept").click()
    book.is_idle()
    book.run(LOOK)
    book.ends(LOOK, "False False")
    stderr = nb("run", "-n", BOOK, "kept = 1", stream="stderr")
    assert "human (Jupyter)" in stderr and "restarted the kernel" in stderr, stderr

    say("the kernel outlives the window")
    page.close()
    assert nb("run", "-n", BOOK, "kept").strip() == "1"


if __name__ == "__main__":
    sys.exit(main())

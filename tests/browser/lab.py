"""JupyterLab as a person has it: a server, a headless Chromium, and a notebook on the screen.

What a person would do is done with clicks and keys; what a person would see is what is asserted.
Playwright waits by itself until a thing can be clicked or a text is there; nothing here sleeps.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid

import nbformat
from playwright.sync_api import expect, sync_playwright

# Generous: the machine may have two cores and other things to do.
SECONDS = 60
BEGAN = time.monotonic()
SHARED = "nb shared kernel"
# The program: JupyterLab, or Notebook 7, which is made of its parts.
APP = os.environ.get("NB_TEST_APP", "jupyterlab")
CLASSES = {"jupyterlab": "LabApp", "notebook": "JupyterNotebookApp"}
# Whether all is tried, of which `cargo test` tries a part.
IS_THOROUGH = "NB_TEST_ALL" in os.environ


def say(*words):
    """A line for the test's log, in order with a failure's traceback."""
    print(f"{time.monotonic() - BEGAN:5.1f} s", *words, file=sys.stderr, flush=True)


def nb(*words, stream="stdout"):
    """Runs the `nb` under test as an agent would; returns its stdout, or its stderr."""
    done = subprocess.run(
        [os.environ["NB_TEST_BINARY"], *map(str, words)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * SECONDS,
        env={**os.environ, "NB_AS": "claude"},
    )  # fmt: skip
    if done.returncode != 0:
        raise AssertionError(
            f"nb {' '.join(map(str, words))} exited {done.returncode}\n"
            f"stdout: {done.stdout}\nstderr: {done.stderr}"
        )
    return getattr(done, stream)


def begin(*words):
    """Begins an agent's `nb`; its end is the caller's to wait for."""
    return subprocess.Popen(
        [os.environ["NB_TEST_BINARY"], *map(str, words)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "NB_AS": "claude"},
    )  # fmt: skip


def until(happened):
    """Asks again and again, each time by a command, until something has happened."""
    end = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < end, "it has not happened"


def write(name, *sources, kernelspec=None):
    """Writes a notebook with these code cells."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    if kernelspec:
        notebook.metadata["kernelspec"] = kernelspec
    nbformat.write(notebook, name)


class Server:
    """`jupyter lab` in a folder, the working directory by default, without a browser of its own."""

    def __init__(self, *arguments, folder="."):
        self.arguments = arguments
        self.folder = pathlib.Path(folder).absolute()

    def __enter__(self):
        self.token = uuid.uuid4().hex
        # Nobody is there who could answer whether news are wanted, and the check of the build starts Node.
        settings = pathlib.Path(os.environ["JUPYTER_CONFIG_DIR"]) / "labconfig/page_config.json"
        settings.parent.mkdir(parents=True, exist_ok=True)
        news = {"@jupyterlab/apputils-extension:announcements": True}
        settings.write_text(json.dumps({"disabledExtensions": news, "buildCheck": False}))
        self.log = open(pathlib.Path(os.environ["TMPDIR"]) / "jupyterlab.log", "w+")
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", APP, "--allow-root", "--no-browser",
                "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0",
                f"--ServerApp.root_dir={self.folder}", f"--{CLASSES[APP]}.expose_app_in_browser=True",
                *self.arguments,
            ],
            cwd=self.folder,
            env={**os.environ, "JUPYTER_TOKEN": self.token},
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
        )  # fmt: skip
        try:
            self.address = self._address()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # The second asks for no confirmation.
        self.process.terminate()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.seek(0)
        say("--- JupyterLab's log\n" + "".join(self.log.readlines()[-40:]))
        self.log.close()

    def _address(self):
        end = time.monotonic() + SECONDS
        while True:
            assert self.process.poll() is None, "JupyterLab ended before it listened"
            assert time.monotonic() < end, "JupyterLab does not listen"
            text = pathlib.Path(self.log.name).read_text()
            if found := re.search(r"http://127\.0\.0\.1:\d+", text):
                with contextlib.suppress(urllib.error.URLError):
                    self.address = found.group()
                    self.rest("status")
                    return self.address
            time.sleep(0.05)

    def rest(self, path):
        """What the server says at /api/PATH."""
        request = urllib.request.Request(
            f"{self.address}/api/{path}", headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return json.loads(answer.read())


def picture(page, name):
    """Draws the page for the README, where NB_PICTURES names a folder for that."""
    if folder := os.environ.get("NB_PICTURES"):
        page.screenshot(path=pathlib.Path(folder) / f"{name}.png")


@contextlib.contextmanager
def chromium():
    """The browser that CHROMIUM names."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ["CHROMIUM"],
            # Chromium's sandbox refuses root, and many containers refuse it.
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        try:
            yield browser
        except BaseException:
            for number, page in enumerate(page for context in browser.contexts for page in context.pages):
                page.screenshot(path=pathlib.Path(os.environ["TMPDIR"]) / f"failed-{number}.png")
                say("\n".join([f"--- page {number}", *page.locator(".jp-Dialog, .jp-mod-focused").all_inner_texts()]))
            # Who has changed a file under a tab?
            written = [f"{path} was written at {time.ctime(path.stat().st_mtime)}" for path in pathlib.Path().glob("*.ipynb")]
            journal = pathlib.Path(".nb/journal.jsonl")
            say("\n".join(["--- the notebooks, and the journal", *written, journal.read_text() if journal.exists() else ""]))
            raise
        finally:
            browser.close()

"""What the page of `nb web` costs with 500 cells and 20 MB of outputs; prints a table, and fails on no figure.

    web_load.py
"""

import base64
import contextlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import time

from lab import SECONDS, chromium, expect, nb, say, write
from web_tab import Web, until

BOOK = "large.ipynb"
CELLS = 500
BYTES = 20 << 20
TABS = 10
EDITS = 20
RUNS = 5

# Notes when the first cell and the first output have been painted, and when each event has come.
NOTES = """
globalThis.notes = { events: [] };
const note = (name, selector) => new Promise((resolve) => {
    const look = () => {
        const node = document.querySelector(selector);
        if (node?.getClientRects().length) requestAnimationFrame(() => setTimeout(() => resolve(notes[name] = performance.now())));
        else requestAnimationFrame(look);
    };
    look();
});
note("cell", ".cell .source"); note("editor", ".cell .editor"); note("output", ".cell .output *");
const Socket = WebSocket;
globalThis.WebSocket = class extends Socket {
    constructor(...words) {
        super(...words);
        this.addEventListener("message", ({ data }) => {
            const { event } = JSON.parse(data);
            if (event?.event === "edited") notes.events.push(Date.now() - Date.parse(event.at));
        });
    }
};
"""

# Scrolls by so many pixels in each of so many frames, or to the end, and returns how long each frame took.
SCROLL = """async ([step, most]) => {
    const main = document.querySelector("main");
    const frames = [];
    main.scrollTop = 0;
    let before = await new Promise(requestAnimationFrame);
    while (frames.length < most && main.scrollTop + main.clientHeight < main.scrollHeight - 1) {
        main.scrollTop += step;
        const now = await new Promise(requestAnimationFrame);
        frames.push(now - before);
        before = now;
    }
    return frames;
}"""


def make():
    """Writes the notebook: half of its outputs are text, a quarter tables, a quarter images."""
    rng = random.Random(1)
    write(BOOK, *[f"# Cell {number}\nx_{number} = {number}\nprint(x_{number})" for number in range(CELLS)])
    book = json.loads(pathlib.Path(BOOK).read_text())
    each = BYTES // CELLS
    for number, cell in enumerate(book["cells"]):
        if number % 4 == 0:
            image = png(rng, each * 3 // 4)
            cell["outputs"] = [data(**{"image/png": base64.b64encode(image).decode()})]
        elif number % 4 == 1:
            rows = "".join(f"<tr><td>{row}</td><td>{rng.random()}</td></tr>" for row in range(each // 45))
            cell["outputs"] = [data(**{"text/html": f"<table>{rows}</table>"})]
        else:
            lines = "".join(f"line {line} {rng.random()}\n" for line in range(each // 30))
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": lines}]
        cell["execution_count"] = number + 1
    pathlib.Path(BOOK).write_text(json.dumps(book, indent=1))
    return pathlib.Path(BOOK).stat().st_size


def png(rng, size):
    """A grey image of noise with about so many bytes."""
    import struct
    import zlib

    side = int(size**0.5)
    rows = b"".join(b"\0" + rng.randbytes(side) for _ in range(side))
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b"")


def data(**forms):
    return {"output_type": "display_data", "data": {"text/plain": "a fallback", **forms}, "metadata": {}}


def private_mb(web):
    """The memory that only this process has."""
    text = pathlib.Path(f"/proc/{web.process.pid}/smaps_rollup").read_text()
    lines = (line.split() for line in text.splitlines())
    return sum(int(line[1]) for line in lines if line[0] in ("Private_Clean:", "Private_Dirty:")) / 1024


def row(label, text):
    print(f"{label:<52}{text}", flush=True)


def milliseconds(values):
    return f"{statistics.median(values):8.0f} ms   worst {max(values):.0f} ms"


def main():
    expect.set_options(timeout=1000 * SECONDS)
    row("notebook", f"{make() / (1 << 20):8.1f} MB, {CELLS} cells")
    web = Web()
    with contextlib.ExitStack() as ends, chromium() as browser:
        ends.callback(web.end)
        row("nb web at rest, before the first page", f"{private_mb(web):8.1f} MB private")
        context = browser.new_context(viewport={"width": 1200, "height": 800})
        context.add_init_script(NOTES)
        page = context.new_page()
        page.goto(web.address)
        expect(page.get_by_role("link", name=BOOK)).to_be_visible()
        own = page.url.split("#")[0]
        page.close()
        taken = {"cell": [], "editor": [], "output": []}
        for _ in range(RUNS):
            page = context.new_page()
            page.goto(f"{own}#{BOOK}")
            until(page, "notes.output && notes.editor")
            notes = page.evaluate("notes")
            for name, values in taken.items():
                values.append(notes[name])
            page.close()
        row(f"from the address to the first cell, of {RUNS}", milliseconds(taken["cell"]))
        row("  to the first editor", milliseconds(taken["editor"]))
        row("  to the first output", milliseconds(taken["output"]))
        page = context.new_page()
        page.goto(f"{own}#{BOOK}")
        until(page, "notes.output")
        for label, step in [("reading, 20 pixels a frame", 20), ("leafing, 200 pixels a frame", 200), ("  once more", 200)]:
            frames = page.evaluate(SCROLL, [step, 1000])
            long = sum(frame > 50 for frame in frames)
            row(f"{label}: a frame", f"{milliseconds(frames)}, {long} of {len(frames)} over 50 ms")
        page.close()
        tabs = [context.new_page() for _ in range(TABS)]
        for tab in tabs:
            tab.goto(f"{own}#{BOOK}")
        for tab in tabs:
            until(tab, "notes.output")
        cell = json.loads(pathlib.Path(BOOK).read_text())["cells"][3]["id"]
        nb("cell", BOOK, cell)
        for number in range(EDITS):
            nb("edit", BOOK, cell, f"y = {number}")
        for tab in tabs:
            until(tab, f"notes.events.length >= {EDITS}")
            expect(tab.locator(".cell .source").nth(3)).to_contain_text(f"y = {EDITS - 1}")
        taken = [each for tab in tabs for each in tab.evaluate("notes.events")]
        row(f"from an edit to its event in {TABS} tabs, {EDITS} edits", milliseconds(taken))
        row(f"nb web with {TABS} tabs", f"{private_mb(web):8.1f} MB private")
        for tab in tabs:
            tab.close()
        page = context.new_page()
        page.goto(own)
        expect(page.get_by_role("link", name=BOOK)).to_be_visible()
        row("  after they are closed", f"{private_mb(web):8.1f} MB private")


if __name__ == "__main__":
    main()

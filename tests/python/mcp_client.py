"""The official MCP client on `nb mcp`, by both ways of its protocol to begin.

The client checks each answer against the tool's output schema. Then two clients and the command line edit
one notebook at random: nothing may be lost, and edits of different lines may not conflict.

    mcp_client.py NB PYTHON [--rounds N] [--calls N] [--http URL]
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult, Implementation

NOTEBOOK = "m.ipynb"
# After so many calls a server has what it keeps: each cell was read that the others read.
FIRST = 100
LINES = 30


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("nb")
    parser.add_argument("python")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--http", metavar="URL")
    parser.add_argument("--edit", metavar="SOURCE", help="only write this into the cell of newest.ipynb")
    options = parser.parse_args()
    if options.edit:
        asyncio.run(edit(options))
        return
    asyncio.run(use_both(options))
    asyncio.run(newest(options))
    if options.http:
        return
    asyncio.run(edit_at_random(options))
    asyncio.run(measure(options))


def client(options, name, mode="auto", **more):
    info = Implementation(name=name, version="1")
    if options.http:
        headers = {"Authorization": f"Bearer {os.environ['NB_TEST_TOKEN']}"}
        server = streamable_http_client(options.http, http_client=httpx2.AsyncClient(headers=headers, timeout=60))
        return Client(server, client_info=info, mode=mode, read_timeout_seconds=60, **more)
    # glibc keeps a part of the memory for each thread that there ever was; what the server keeps is measured.
    environment = os.environ | {"MALLOC_ARENA_MAX": "2"}
    server = StdioServerParameters(command=options.nb, args=["mcp", "--answers", "both"], env=environment)
    return Client(server, client_info=info, mode=mode, read_timeout_seconds=60, **more)


def run(options, *words):
    return subprocess.run([options.nb, *words], capture_output=True, text=True, timeout=60)


async def call(session, tool, **arguments):
    """Returns the text and the fields of an answer that is not an error."""
    result = await session.call_tool(tool, arguments)
    assert not result.is_error, result
    text = "".join(block.text for block in result.content if block.type == "text")
    return text, result.structured_content


async def use_both(options):
    await asyncio.gather(*(use(options, mode) for mode in ("legacy", "auto")))


async def use(options, mode):
    notebook = f"{mode}.ipynb"
    async with client(options, "official", mode) as session:
        tools = (await session.list_tools()).tools
        assert len(tools) == 14, tools
        await call(session, "open_notebook", notebook=notebook, python=options.python)
        text, fields = await call(
            session, "create_cell", notebook=notebook, source="x = 6\nx * 7", run=True
        )
        assert text.endswith("42\n") and fields["status"] == "ok", text
        reports = []

        async def progress(*report):
            reports.append(report)

        result = await session.call_tool(
            "run_cell",
            {"notebook": notebook, "code": "import time; print('begun'); time.sleep(6)"},
            progress_callback=progress,
        )
        assert result.structured_content["status"] == "ok", result
        assert [report[2] for report in reports] == ["begun"], reports
        text, _ = await call(session, "get_notebook_state", notebook=notebook)
        assert "x = 6 (2 lines) → 42" in text, text
        refused = await session.call_tool("read_cell", {"notebook": "../a.ipynb", "cell": 0})
        assert refused.is_error and refused.structured_content["error"]["code"] == 403
        text, _ = await call(session, "history", notebook=notebook, action="log")
        assert "official ran" in text, text
        await call(session, "kernel", notebook=notebook, action="shutdown")
    print(f"{mode}: the protocol's own client is content")


NEWEST = "2026-07-28"


async def newest(options):
    """The version without sessions: questions end a call and are answered by its repetition, one request listens."""
    notebook = "newest.ipynb"
    answers = iter(["Ada", "Lovelace"])
    asked = []

    async def answer(_, question):
        asked.append(question.message)
        text = next(answers, None)
        return ElicitResult(action="accept", content={"answer": text}) if text else ElicitResult(action="decline")

    async with client(options, "official", elicitation_callback=answer) as session:
        assert session.protocol_version == NEWEST, session.protocol_version
        await call(session, "open_notebook", notebook=notebook, python=options.python)
        code = "print('begins')\nname = input('first? ')\nprint(name, input('second? '))"
        text, _ = await call(session, "create_cell", notebook=notebook, source=code, run=True)
        assert text.endswith("Ada Lovelace\n") and "begins" in text, text
        assert asked == [f"The notebook's code asks: {which}?" for which in ("first", "second")], asked
        # Declined: the call has the question, and the agent may answer.
        text, _ = await call(session, "run_cell", notebook=notebook, code="input('third? ')")
        assert "third?" in text and asked[2:] == ["The notebook's code asks: third?"], (text, asked)
        text, _ = await call(session, "answer_input", notebook=notebook, text="here")
        assert "here" in text, text

        await call(session, "read_cell", notebook=notebook, cell=0)
        async with session.listen(resource_subscriptions=[f"nb://notebook/{notebook}"]) as events:
            assert run(options, "insert", notebook, "other = 1", "--as", "other").returncode == 0
            event = await asyncio.wait_for(anext(aiter(events)), 30)
            assert event.uri == f"nb://notebook/{notebook}", event
        if options.http:
            # Another process with a client of this name is another actor: its edit does not count as seen.
            await call(session, "read_cell", notebook=notebook, cell=0)
            words = [options.nb, options.python, "--http", options.http, "--edit", "theirs = 1"]
            other = await asyncio.create_subprocess_exec(sys.executable, __file__, *words)
            assert await other.wait() == 0
            refused = await session.call_tool("update_cell", {"notebook": notebook, "cell": 0, "source": "mine = 1"})
            text = "".join(block.text for block in refused.content)
            assert refused.is_error and text.startswith("409 conflict"), text
            # It has seen it now. Its own edits are no conflict.
            for source in ("mine = 1", "mine = 2"):
                await call(session, "update_cell", notebook=notebook, cell=0, source=source)
        await call(session, "kernel", notebook=notebook, action="shutdown")
    print(f"{NEWEST}: the protocol's own client is content")


async def edit(options):
    async with client(options, "official") as session:
        assert session.protocol_version == NEWEST, session.protocol_version
        await call(session, "read_cell", notebook="newest.ipynb", cell=0)
        await call(session, "update_cell", notebook="newest.ipynb", cell=0, source=options.edit)


async def edit_at_random(options):
    """Each of three writers has lines of its own in one cell, and cells of its own."""
    path = pathlib.Path(NOTEBOOK)
    random.seed(1)
    run(options, "open", NOTEBOOK, "--no-kernel")
    lines = [f"line{n} = 0" for n in range(LINES)]
    made = run(options, "insert", NOTEBOOK, "--id", "shared", "\n".join(lines))
    assert made.returncode == 0, made
    expected = dict.fromkeys(range(LINES), 0)
    own = {}
    conflicts = []

    def next_edit(writer, number):
        if random.random() < 0.3:
            name = f"w{writer}n{number}"
            own[name] = writer
            return "create_cell", {"source": name}, ["insert", NOTEBOOK, name], None
        # A line between two lines of the others.
        line = random.randrange(writer, LINES, 3)
        end = "\n" if line < LINES - 1 else ""
        old, new = f"line{line} = {expected[line]}{end}", f"line{line} = {number}{end}"
        arguments = {"cell": "shared", "old_string": old, "new_string": new}
        words = ["edit", NOTEBOOK, "shared", "--replace", old, new]
        return "update_cell", arguments, words, (line, number)

    async with client(options, "one") as one, client(options, "two") as two:
        for session in (one, two):
            await call(session, "read_cell", notebook=NOTEBOOK, cell="shared")
        run(options, "cell", NOTEBOOK, "shared")

        async def writer(number_of, session):
            for number in range(1, options.rounds + 1):
                tool, arguments, words, change = next_edit(number_of, number)
                if session is None:
                    done = await asyncio.to_thread(run, options, *words)
                    refused, why = done.returncode != 0, done
                else:
                    result = await session.call_tool(tool, {"notebook": NOTEBOOK, **arguments})
                    refused, why = result.is_error, result
                if refused:
                    conflicts.append((words, why))
                elif change:
                    expected[change[0]] = change[1]

        await asyncio.gather(writer(0, one), writer(1, two), writer(2, None))
    assert not conflicts, conflicts[:2]
    cells = json.loads(path.read_text())["cells"]
    text = "".join(next(cell for cell in cells if cell["id"] == "shared")["source"])
    assert text.split("\n") == [f"line{n} = {expected[n]}" for n in range(LINES)], text
    sources = sorted("".join(cell["source"]) for cell in cells if cell["id"] != "shared")
    assert sources == sorted(own), (sources, own)
    log = json.loads(run(options, "log", NOTEBOOK, "--json").stdout)["log"]
    by = {entry["by"] for entry in log if entry["event"] == "edited"}
    assert {"one", "two"} <= by and len(by) == 3, by
    print(f"3 writers, {3 * options.rounds} edits: all there, none refused")


def memory(pid):
    """Returns the private memory of a process in kB, and how many descriptors it has."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    private = next(line for line in lines if line.startswith("Private_Dirty:"))
    return int(private.split()[1]), len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def server_of(options):
    """Returns the process id of the server of this process."""
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            command = (status.parent / "cmdline").read_bytes().split(b"\0")
            parent = [line for line in status.read_text().splitlines() if line.startswith("PPid")]
        except OSError:
            continue
        if command[0] == options.nb.encode() and parent[0].split()[1] == str(os.getpid()):
            return int(status.parent.name)
    raise AssertionError("there is no server")


async def measure(options):
    """Prints what many calls cost; checks that memory and descriptors stay as they are."""
    cells = [
        {"cell_type": "code", "id": f"c{n:07d}", "metadata": {}, "source": f"x{n} = {n}",
         "outputs": [], "execution_count": None}
        for n in range(1000)
    ]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    pathlib.Path("long.ipynb").write_text(json.dumps(notebook, indent=1))
    async with client(options, "many") as session:
        took = []
        before = None
        for number in range(options.calls):
            began = time.monotonic()
            if number % 10:
                await call(session, "read_cell", notebook="long.ipynb", cell=number % FIRST)
            else:
                await call(session, "get_notebook_state", notebook="long.ipynb")
                took.append(time.monotonic() - began)
            if number == FIRST:
                before = memory(server_of(options))
        after = memory(server_of(options))
    print(
        f"{options.calls} calls: {before[0]} kB and {before[1]} descriptors after {FIRST} of them, "
        f"{after[0]} kB and {after[1]} at the end; the state of 1,000 cells in "
        f"{statistics.median(took) * 1000:.1f} ms at the median, as the client sees it"
    )
    assert after[1] <= before[1] + 2, "descriptors are left open"
    assert after[0] < before[0] + 2048, "memory grows"


if __name__ == "__main__":
    main()

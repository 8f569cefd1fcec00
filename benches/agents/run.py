"""Runs the tasks of tasks.txt as an agent would, and counts calls and what the agent has to read.

Arguments: a folder to work in, the programs nb and nb-cli ("-" if there is none), and words that select tasks.
Prints the results as JSON. With AGENTS_SHOW, a folder, each call and its answer is written there.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

WAYS = ["nb", "nb-cli", "mcp"]
# Of nb: done, the code raised, it still runs, it asks. nb-cli ends with 1 where the code raised.
EXPECTED = {0, 1, 3, 4, 7}


def parse(text):
    """Returns the tasks: the title, and the lines of each part."""
    tasks = []
    for block in re.split(r"^=== ", text, flags=re.M)[1:]:
        title, _, body = block.partition("\n")
        parts = re.split(r"^--- (.*)\n", body, flags=re.M)
        tasks.append((title, dict(zip(parts[1::2], parts[2::2]))))
    return tasks


def calls(part):
    """Returns the calls of a part: a line each, with its here-document."""
    lines = iter(part.splitlines())
    for line in lines:
        if not line:
            continue
        call = [line]
        if found := re.search(r"<<'(\w+)'$", line):
            for line in lines:
                call.append(line)
                if line == found[1]:
                    break
        yield "\n".join(call)


def setup(code):
    def stream(text):
        return {"output_type": "stream", "name": "stdout", "text": text}

    def display(data):
        return {"output_type": "display_data", "data": data, "metadata": {}}

    def write(name, sources, outputs=None):
        cells = [
            {"cell_type": "code", "id": f"c{at:03}", "metadata": {}, "source": source,
             "execution_count": at + 1 if outputs else None, "outputs": outputs[at] if outputs else []}
            for at, source in enumerate(sources)
        ]
        spec = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
        notebook = {"cells": cells, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}
        pathlib.Path(name).write_text(json.dumps(notebook, indent=1))

    exec(code, {"write": write, "stream": stream, "display": display})


class Shell:
    """Runs calls as commands of a shell."""

    def __init__(self, environment):
        self.environment = environment

    def call(self, line):
        done = subprocess.run(["bash", "-c", line], env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode not in EXPECTED:
            raise SystemExit(f"{line}\nended with {done.returncode}:\n{done.stdout.decode()}")
        return done.stdout.decode()

    def end(self):
        pass


class Mcp:
    """Runs calls as calls of tools; what counts is the text of their results."""

    def __init__(self, environment):
        self.server = subprocess.Popen(["nb", "mcp"], env=environment, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.id = 0
        client = {"name": "bench", "version": "1"}
        self.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self.send({"method": "notifications/initialized"})

    def send(self, message):
        self.server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.server.stdin.flush()

    def request(self, method, params):
        self.id += 1
        self.send({"id": self.id, "method": method, "params": params})
        while True:
            answer = json.loads(self.server.stdout.readline())
            if answer.get("id") == self.id:
                return answer["result"]

    def call(self, line):
        tool, _, arguments = line.partition(" ")
        result = self.request("tools/call", {"name": tool, "arguments": json.loads(arguments)})
        texts = [part["text"] for part in result["content"] if part["type"] == "text"]
        if result.get("isError"):
            raise SystemExit(f"{line}\nis refused:\n{texts}")
        return "\n".join(texts)

    def end(self):
        self.server.stdin.close()
        self.server.wait()


def expanded(part, way):
    """Returns a part's calls, with those of a rename where it says so."""
    for call in calls(part):
        if call.startswith("each: ") or "{replacements}" in call:
            cells = json.loads(pathlib.Path("orders.ipynb").read_text())["cells"]
            named = [(at, cell["source"]) for at, cell in enumerate(cells) if re.search(r"\bdf\b", cell["source"])]
            renamed = [(at, re.sub(r"\bdf\b", "orders", source)) for at, source in named]
            if way == "mcp":
                edits = [{"op": "replace", "cell": f"c{at:03}", "old": "df", "new": "orders", "all": True}
                         for at, _ in renamed]
                edits += [{"op": "move", "cell": "c016", "after": "c001"}, {"op": "split", "cell": "c017", "line": 1}]
                yield call.replace("{replacements}", json.dumps(edits))
            else:
                for at, source in renamed:
                    line = call.removeprefix("each: ").replace("{index}", str(at))
                    yield line.replace("{source}", f"<<'CELL'\n{source}\nCELL")
        else:
            yield call


def perform(way, task, folder, environment, show):
    title, parts = task
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chdir(folder)
    setup(parts.get("setup", ""))
    person = Shell({key: value for key, value in environment.items() if key != "CLAUDECODE"} | {"NB_AS": "ada"})
    begun = time.monotonic()
    runner = Mcp(environment) if way == "mcp" else Shell(environment)
    count = size = 0
    try:
        for call in expanded(parts[way], way):
            if call.startswith("person: "):
                person.call(call.removeprefix("person: "))
                continue
            answer = runner.call(call)
            count += 1
            size += len(answer.encode())
            if show:
                with open(show / f"{title.replace(' ', '-')}.{way}.txt", "a") as file:
                    file.write(f"$ {call[:200]}\n{answer}\n")
    finally:
        runner.end()
        for notebook in folder.glob("*.ipynb"):
            subprocess.run(["nb", "shutdown", "--force", notebook.name], env=environment,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {"calls": count, "bytes": size, "seconds": round(time.monotonic() - begun, 1)}


def main():
    folder, nb, nb_cli, *words = sys.argv[1:]
    folder = pathlib.Path(folder)
    tasks = parse((pathlib.Path(__file__).parent / "tasks.txt").read_text())
    show = os.environ.get("AGENTS_SHOW")
    show = show and pathlib.Path(show)
    programs = folder / "bin"
    programs.mkdir(parents=True)
    (programs / "nb").symlink_to(nb)
    if nb_cli != "-":
        (programs / "nb-cli").symlink_to(nb_cli)
    python = pathlib.Path(sys.executable).parent
    environment = {"HOME": str(folder / "home"), "PATH": f"{programs}:{python}:/usr/bin:/bin", "CLAUDECODE": "1",
                   "JUPYTER_PATH": str(python.parent / "share/jupyter"), "LANG": "C.UTF-8"}
    os.environ["PATH"] = environment["PATH"]
    (folder / "home").mkdir()
    results = []
    for task in tasks:
        title, parts = task
        if words and not any(word in title for word in words):
            continue
        row = {"task": title}
        for way in WAYS:
            if way in parts and not (way == "nb-cli" and nb_cli == "-"):
                row[way] = perform(way, task, folder / "project", environment, show)
        results.append(row)
        print(json.dumps(row), file=sys.stderr)
    print(json.dumps(results))


main()

"""An editor that writes a notebook in place, as many do.

--notebook PATH --count N --seed S --alone FILE. It saves at a random moment after others have saved, so
that it writes as long as they do; once FILE exists, there is nobody else to wait for.

It keeps its own cell's text in memory, and takes the others' text as it reads it. Sometimes the file
stays open between reading and writing; sometimes it is read, closed and written later, and then
overwrites what others wrote in between. Every file that it reads must be a notebook, since nobody else
writes in place. It prints its tokens at the end.
"""

import argparse
import json
import os
import random
import time

arguments = argparse.ArgumentParser()
arguments.add_argument("--notebook")
arguments.add_argument("--count", type=int)
arguments.add_argument("--seed", type=int)
arguments.add_argument("--alone")
arguments = arguments.parse_args()
chance = random.Random(arguments.seed)
tokens = []


def changed(text, number):
    notebook = json.loads(text)
    own = [cell for cell in notebook["cells"] if cell.get("id") == "python"]
    if not own:
        own = [{"cell_type": "raw", "id": "python", "metadata": {}, "source": []}]
        notebook["cells"] += own
    own[0]["source"] = "\n".join(tokens)
    if number % 10 == 3:
        # A line of the cell that the others edit, too.
        for cell in notebook["cells"]:
            if cell.get("id") == "shared":
                lines = "".join(cell["source"]).split("\n")
                lines[-1] = f"# end {number}"
                cell["source"] = "\n".join(lines)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def save(file, text):
    # In parts, as a large text is written to the disk.
    for start in range(0, len(text), 1 << 14):
        file.write(text[start : start + (1 << 14)])
        file.flush()


def think():
    if chance.random() < 0.5:
        time.sleep(chance.random() * 0.05)


def state():
    found = os.stat(arguments.notebook)
    return found.st_ino, found.st_mtime_ns


last = None
for number in range(arguments.count):
    # There are four other writers.
    for _ in range(chance.randint(1, 4)):
        while state() == last and not os.path.exists(arguments.alone):
            time.sleep(0.001)
        last = state()
    time.sleep(chance.random() * 0.05)
    tokens.append(f"tok_python_{number}_")
    if chance.random() < 0.5:
        with open(arguments.notebook, "r+", encoding="utf-8") as file:
            text = changed(file.read(), number)
            think()
            file.seek(0)
            file.truncate()
            save(file, text)
    else:
        with open(arguments.notebook, encoding="utf-8") as file:
            text = changed(file.read(), number)
        think()
        with open(arguments.notebook, "w", encoding="utf-8") as file:
            save(file, text)
    last = state()
print("\n".join(tokens))

"""Notebooks in every style that Python reads, and what edits of them mean to Python.

`make FOLDER` writes notebooks, and texts with Python's verdict on whether each is JSON; `fetch FOLDER`
gets the notebooks that Jupyter's own projects have in their source archives, `real FOLDER` those in
other packages: tutorials, galleries and examples of people's daily work. The test edits the notebooks
and writes each result with a note of what it did; `check FOLDER` does the same to the data and compares.
"""

import json
import random
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import nbformat

ARCHIVES = [
    "nbformat==5.11.1",
    "nbclient==0.11.0",
    "nbconvert==7.17.2",
    "papermill==2.7.0",
    "nbdime==4.0.4",
    "jupytext==1.19.6",
]

# Wheels that contain their projects' tutorials, in formats 4.0 to 4.5.
WHEELS = [
    "holoviews==1.14.9",
    "panel==0.12.7",
    "hvplot==0.8.0",
    "geoviews==1.9.5",
    "datashader==0.13.0",
    "colorcet==3.0.0",
]

# The same on npm, if npm is installed.
PACKAGES = ["@nteract/examples@3.2.0"]

# What pip asks for a source archive's name and version; nothing is built.
BACKENDS = ["flit_core", "hatch-jupyter-builder", "hatch-nodejs-version", "hatchling", "setuptools", "wheel"]

SOURCES = [
    "",
    "x = 1",
    "import os\nprint('é 😀 \u2028')\n",
    'print("\\n")\r\n\ttabs\x0b\x0c\x00\x7f\n\n',
    "lone \ud83d half",
]

METADATA = [
    {},
    {"tags": ["a", "b"], "collapsed": False},
    {"n": [1e-05, 1.0, 12345678901234567890123, -0.0, float("inf"), float("-inf"), 1e300]},
    {"most digits": [10**4299 + 7, -(10**4299)], "\u2028 \\ \" /": [True, False, None]},
    {"nan": float("nan"), "deep": {"er": {"est": [[[{}]]]}}},
    {"execution": {"iopub.execute_input": "2026-01-01T00:00:00Z"}, "": "", "\ud800": "\udfff"},
]

OUTPUTS = [
    [],
    [{"output_type": "stream", "name": "stdout", "text": ["a\n", "b"]}],
    [
        {"output_type": "execute_result", "execution_count": 3, "metadata": {}, "data": {"text/plain": "3"}},
        {"output_type": "error", "ename": "E", "evalue": "é", "traceback": ["\x1b[31mE\x1b[0m"]},
    ],
    [{"output_type": "display_data", "metadata": {}, "data": {"image/png": "iVBORw0KGgo=" * 500}}],
]


def cells(rng, ids, as_list):
    """Returns cells of all types; `ids` is the kind of their ids."""
    for number in range(rng.randrange(7)):
        source = rng.choice(SOURCES)
        cell = {
            "cell_type": rng.choice(["code", "code", "markdown", "raw"]),
            "metadata": rng.choice(METADATA),
            "source": source.splitlines(True) if as_list else source,
        }
        if cell["cell_type"] == "code":
            cell["outputs"] = rng.choice(OUTPUTS)
            cell["execution_count"] = rng.choice([None, 1, 12])
        elif rng.random() < 0.3:
            cell["attachments"] = {"a.png": {"image/png": "iVBORw0KGgo="}}
        if ids == "all" or (ids == "some" and rng.random() < 0.5):
            cell["id"] = f"cell-{number}"
        elif ids == "same":
            cell["id"] = "same"
        elif ids == "odd":
            cell["id"] = rng.choice([None, 5, "", "spaces and é", ["x"]])
        keys = list(cell)
        rng.shuffle(keys)
        yield {key: cell[key] for key in keys}


def notebook(rng):
    """Returns one notebook's text, as bytes."""
    ids = rng.choice(["all", "all", "none", "some", "same", "odd"])
    minor = 5 if ids == "all" else rng.randrange(6)
    data = {
        "cells": list(cells(rng, ids, rng.random() < 0.7)),
        "metadata": rng.choice(METADATA),
        "nbformat": 4,
        "nbformat_minor": minor,
    }
    keys = list(data)
    if rng.random() < 0.5:
        rng.shuffle(keys)
    data = {key: data[key] for key in keys}
    text = json.dumps(
        data,
        ensure_ascii=rng.random() < 0.4,
        indent=rng.choice([None, 0, 1, 1, 1, 2, 4, "\t"]),
        separators=rng.choice([None, (",", ":"), (" , ", " : ")]),
        sort_keys=rng.random() < 0.5,
    )
    if rng.random() < 0.2:
        text = text.replace('"cells"', '"\\u0063ells"', 1)
    if rng.random() < 0.2:
        # Of duplicate keys the last counts.
        text = '{"cells": [{"cell_type": "code"}], "metadata": 3, ' + text[1:]
    if rng.random() < 0.3:
        text = text.replace("\n", "\r\n")
    text += rng.choice(["\n", "", "\r\n \t"])
    # JSON can contain half of a surrogate pair only as an escape.
    data = text.encode("utf-8", "surrogatepass")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return notebook(rng)
    return (b"\xef\xbb\xbf" if rng.random() < 0.15 else b"") + data


def jupyters_own(rng):
    """Returns a notebook as nbformat writes it."""
    make = [nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell, nbformat.v4.new_raw_cell]
    sources = [source for source in SOURCES if source.isprintable() or source.startswith("import")]
    made = nbformat.v4.new_notebook(
        cells=[rng.choice(make)(source=rng.choice(sources)) for _ in range(5)],
        metadata={"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
    )
    return (nbformat.writes(made) + "\n").encode()


def deep(levels):
    """Returns a notebook with metadata of that depth."""
    value = '{"a": [' * (levels // 2) + "1" + "]}" * (levels // 2)
    return ('{"cells": [], "metadata": ' + value + ', "nbformat": 4, "nbformat_minor": 5}').encode()


def is_json(text):
    try:
        json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def texts(rng):
    """Yields texts that are JSON, or nearly."""
    seeds = [
        '{"a": [1, -2.5e-07, true, false, null, NaN, Infinity, -Infinity, "x\\u00e9\\n\\"\\/"], "b": {}}',
        '[[], {}, "", 0, -0, 0.0, 1E5, 1e+5, "\\ud83d\\ude00\\ud800"]',
        ' {"k" : "v" , "k" : { "k" : [ ] } } \r\n',
        "12345678901234567890",
        '"a\tb\nc\x00"',
    ]
    yield from seeds
    yield from ["", " ", "[1,]", "{,}", '{"a":1,}', "01", "1.", ".5", "-", "+1", "1e", "--1", "nan", "Nan"]
    yield from ["-NaN", "'a'", '"\\x"', '"\\u12"', '"\\u+123"', "[1 2]", '{"a" 1}', "{1:2}", "tru", "[", "]"]
    yield from ["\ufeff1", "1 1", "\x0c1", "\xa01", "/**/1", '"\\ud800"', '"\\', "١", "1_0", "0x1", "Infinit"]
    yield "[" * 900 + "]" * 900
    yield '{"a":' * 900 + "0" + "}" * 900
    # Python reads no integers longer than this, but floats of any length.
    yield from ["9" * 4300, "-" + "9" * 4300, "1" * 5000 + ".5", "0." + "1" * 5000, "1e" + "9" * 5000]
    alphabet = '{}[]",:0123456789.eE+-\\untrfalsbNIiy \n\t/'
    for _ in range(4000):
        text = list(rng.choice(seeds))
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text) + 1)
            match rng.randrange(3):
                case 0:
                    text.insert(at, rng.choice(alphabet))
                case 1:
                    del text[at : at + 1]
                case 2:
                    text[at : at + 1] = rng.choice(alphabet)
        yield "".join(text)


def make(folder):
    rng = random.Random(4)
    for number in range(300):
        (folder / f"{number:03}.ipynb").write_bytes(notebook(rng))
    for number in range(300, 320):
        (folder / f"{number:03}.ipynb").write_bytes(jupyters_own(rng))
    for number, levels in enumerate([200, 900], 320):
        (folder / f"{number:03}.ipynb").write_bytes(deep(levels))
    verdicts = [[text, is_json(text)] for text in texts(rng)]
    (folder / "texts.json").write_text(json.dumps(verdicts))


def fetch(folder):
    venv.create(folder / "venv", with_pip=True)
    pip = [folder / "venv/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *BACKENDS], check=True)
    options = ["--no-deps", "--no-build-isolation", "--no-binary=:all:"]
    subprocess.run([*pip, "download", *options, "-d", folder / "archives", *ARCHIVES], check=True)
    for archive in sorted((folder / "archives").glob("*.tar.gz")):
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile() and member.name.endswith(".ipynb"):
                    name = member.name.replace("/", "__")
                    (folder / name).write_bytes(tar.extractfile(member).read())


def real(folder):
    venv.create(folder / "venv", with_pip=True)
    pip = [folder / "venv/bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--only-binary=:all:"]
    archives = folder / "archives"
    subprocess.run([*pip, "download", *options, "-d", archives, *WHEELS], check=True)
    for archive in sorted(archives.glob("*.whl")):
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if name.endswith(".ipynb"):
                    (folder / name.replace("/", "__")).write_bytes(wheel.read(name))
    npm = shutil.which("npm")
    if npm is None:
        print("no npm here: what it ships is left out", file=sys.stderr)
        return
    subprocess.run([npm, "pack", "--silent", *PACKAGES], cwd=archives, check=True, stdout=subprocess.DEVNULL)
    for archive in sorted(archives.glob("*.tgz")):
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile() and member.name.endswith(".ipynb"):
                    name = "npm__" + member.name.replace("/", "__")
                    (folder / name).write_bytes(tar.extractfile(member).read())


def source_of(cell):
    source = cell.get("source", "")
    return "".join(source) if isinstance(source, list) else source


def plain(data):
    """Returns a notebook's meaning as text: sources joined, keys sorted."""
    for cell in data["cells"]:
        cell["source"] = source_of(cell)
    return json.dumps(data, sort_keys=True)


def edit(data, note):
    """Changes the data in the way in which the test changed the file, according to its note."""
    cells = data["cells"]
    at = note.get("at")
    match note["what"]:
        case "source":
            cells[at]["source"] = note["text"]
        case "metadata":
            cells[at].setdefault("metadata", {}).setdefault("new", {})["key"] = [1e-05]
        case "insert":
            new = {"cell_type": "code", "metadata": {}, "source": note["text"]}
            if data.get("nbformat_minor", 0) >= 5:
                new["id"] = "inserted"
            cells.insert(at, new | {"outputs": [], "execution_count": None})
        case "remove":
            del cells[at]
        case "move":
            cells.insert(note["to"], cells.pop(at))
        case "clear":
            cells[at]["outputs"] = []
            cells[at]["execution_count"] = None
            cells[at].get("metadata", {}).pop("execution", None)
        case other:
            raise AssertionError(other)


def check(folder):
    count = 0
    for noted in sorted(folder.glob("*.note")):
        note = json.loads(noted.read_text())
        before = json.loads(Path(note["file"]).read_bytes())
        after = json.loads(noted.with_suffix(".edited").read_bytes())
        ids = [json.dumps(cell.get("id")) for cell in before["cells"] if "id" in cell]
        edit(before, note)
        if note["what"] in ("remove", "move"):
            # Cells that have one id get ids of their own.
            for expected, cell in zip(before["cells"], after["cells"]):
                if ids.count(json.dumps(expected.get("id"))) > 1:
                    expected["id"] = cell["id"]
        assert plain(after) == plain(before), f"{note}\n{plain(after)}\n{plain(before)}"
        count += 1
    print(count)


command, folder = sys.argv[1:]
{"make": make, "check": check, "fetch": fetch, "real": real}[command](Path(folder))

"""Outputs beside nbclient's: what it writes into notebooks is what `nb exec --all` has to write.

`make FOLDER` writes notebooks, `make_by_lot FOLDER` some of what is hard to fold in any order, and
`make_with_libraries FOLDER` some that need these; `choose FROM TO` copies those that can run here from others, and
prints why the rest cannot; `run FOLDER` runs all notebooks of a folder with nbclient, in place;
`compare OURS THEIRS` compares two folders cell by cell.

Both sides are normalised alike, and nothing else may differ:
- streams that follow each other are one of each name, stdout first: a kernel flushes the two of them
  by a clock;
- `\\r`, backspaces and escapes are resolved as a terminal does, which nbclient leaves to the reader;
- times, durations, addresses, uuids, process ids, temporary files and the folders are replaced;
- of a cell's metadata, the times of its execution are left out.
"""

import json
import os
import random
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

MADE = {
    "text": [
        "print('one'); print('two')",
        "import sys\nprint('a', flush=True)\nprint('b', file=sys.stderr, flush=True)\nprint('c', flush=True)",
        "for i in range(300): print(i, flush=True)",
        "import time\nfor i in range(4): print(f'\\r{i:>3} of 3', end=''); time.sleep(0.05)\nprint()",
        "print('abc\\b\\bX', end='\\r'); print('Y')\nprint('long line\\rshort')",
        "print('win\\r\\nlines\\r\\n')",
        "print('\\x1b[31mred\\x1b[0m plain \\x1b[1;32mbold\\x1b[0m')",
        "print('é 😀 日本 \\u2028 \\x00 end')",
        "print('no newline', end='')",
        # ipykernel reads a child's output in a separate thread, perhaps after the cell's end.
        "import subprocess\n_ = subprocess.run(['echo', 'a child']); time.sleep(0.2)",
        "import os\n_ = os.write(1, b'bytes of a program\\n'); time.sleep(0.2)",
        "%%capture held\nprint('kept back')",
        "held.show()",
        "%time sum(range(10))",
        "!echo from a shell; echo and its errors >&2",
        "print('x' * 100_000)",
        "import threading\nt = threading.Thread(target=print, args=('from a thread',)); t.start(); t.join()",
        "import asyncio\nawait asyncio.sleep(0.01)\nprint('awaited')",
        "import warnings\nwarnings.warn('careful')",
        "import logging\nlogging.warning('a log line')",
    ],
    "shown": [
        "from IPython.display import *\n6 * 7",
        "'text'",
        "None",
        "1;",
        "x = 1\nx",
        "display('one', 'two')\nprint('between')\ndisplay(3)\n4",
        "HTML('<b>bold</b>')",
        "display(Markdown('*m*'), Latex('$x$'), JSON({'a': [1, 1e-05, None]}), SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))",
        "Image(data=b'\\x89PNG\\r\\n\\x1a\\n' + bytes(2000), width=30, height=40)",
        "display({'text/plain': 'p', 'application/x-own+json': {'b': 1, 'a': 12345678901234567890123}}, raw=True, metadata={'m': {'k': [1]}})",
        "class Rich:\n    def _repr_mimebundle_(self, **_): return {'text/plain': 'rich', 'text/html': '<i>a</i>\\n<i>b</i>\\n'}\nRich()",
        "handle = display('first', display_id='here')\nprint('after')",
        "handle.update('second')",
        "display('here again', display_id='here')\nupdate_display('third', display_id='here')",
        "update_display('nobody has it', display_id='nowhere')",
        "a = display('a', display_id='a'); b = display('b', display_id='b')\na.update('A'); b.update(HTML('B'))",
        "display('a once more', display_id='a')\nclear_output()\nprint('cleared')",
        "a.update('not here any more')",
        "print('gone'); clear_output(); print('stays')",
        "print('gone'); clear_output(wait=True); print('stays')",
        "print('stays'); clear_output(wait=True)",
        "for i in range(5): clear_output(wait=True); print(i); display(i)",
        "clear_output(wait=True); clear_output(); print('a'); print('b')",
        "display('gone', display_id='c'); clear_output(wait=True); display('kept', display_id='c')\nupdate_display('updated', display_id='c')",
        "import sys\nsys.stdout.write('out'); sys.stderr.write('err'); sys.stdout.flush()\ndisplay('x')",
    ],
    "errors": [
        "1 / 0",
        "print('before')\nraise ValueError('a\\nb')",
        "def f(n):\n    if n: f(n - 1)\n    raise KeyError('deep')\nf(3)",
        "this is no python",
        "if True:\nno_indent",
        "undefined_name",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise RuntimeError('again') from e",
        "raise KeyboardInterrupt('by itself')",
        "import sys\nsys.exit(3)",
        "assert 1 == 2, 'not so'",
        "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])",
        "%no_such_magic",
        "%%no_such_cell_magic\nx",
        "!exit 3",
        "import subprocess\nsubprocess.run('exit 3', shell=True, check=True)",
        "class Odd(Exception):\n    def _render_traceback_(self): return ['its own', 'traceback']\nraise Odd('odd')",
        "class Broken:\n    def __repr__(self): raise OSError('no repr')\nBroken()",
        "from IPython.display import display, clear_output\ndisplay('shown')\nclear_output(wait=True)\nraise ValueError('clears')",
        "print('it goes on')",
        "",
        "  \n",
        "# only a comment",
    ],
}
WITH_LIBRARIES = {
    "matplotlib": [
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.rcParams['svg.hashsalt'] = 'same'",
        "plt.plot([1, 3, 2]);",
        "plt.plot([1, 3, 2])",
        "fig, axes = plt.subplots(2, 2)\nprint('drawn')\nfig",
        "for i in range(3): plt.figure(); plt.bar([1, 2], [i, i])",
        "%config InlineBackend.figure_formats = ['svg']\nplt.text(0, 0, 'é')",
        "fig, ax = plt.subplots()\nax.plot([1])\nraise ValueError('and the figure')",
    ],
    "pandas": [
        "import pandas as pd\nframe = pd.DataFrame({'a': range(100), 'b': list('é') * 100})\nframe",
        "frame.head().style.highlight_max(subset=['a']).set_uuid('same')",
        "frame.a",
        "frame.info()",
        "frame.missing",
        "frame.describe()",
    ],
    "tqdm": [
        "import time\nfrom tqdm import tqdm\nfor _ in tqdm(range(20), ncols=60, bar_format='{l_bar}{bar}|{n_fmt}'): time.sleep(0.02)",
        "for _ in tqdm(range(3), desc='é', colour='green', bar_format='{desc} {n_fmt}'): print('in between')",
        "for _ in tqdm(range(2), desc='outer', bar_format='{desc} {n_fmt}'):\n    for _ in tqdm(range(3), desc='inner', leave=False, bar_format='{desc} {n_fmt}'): pass",
        "from tqdm.notebook import tqdm as bars\nfor _ in bars(range(5), bar_format='{n_fmt}'): time.sleep(0.02)",
    ],
    "ipywidgets": [
        "import ipywidgets as w\nslider = w.IntSlider(description='é')\nslider",
        "slider.value = 7\nslider.value",
        "w.VBox([slider, w.Text('text'), w.Image(value=b'\\x89PNG\\r\\n' + bytes(100))])",
        "out = w.Output()\nout",
        "with out:\n    print('in the widget')\n    display('shown there')\nprint('in the cell')",
        "with out: print('more')",
        "out.clear_output()\nwith out: print('again'); print('and again')",
        "with out: 1 / 0",
        "@out.capture(clear_output=True, wait=True)\ndef capture(): print('captured')\ncapture()",
        "w.interactive(lambda x: print('x is', x), x=3)",
        "slider.close()",
        "print('the end')",
    ],
}
TAGS = {"errors": {0: ["raises-exception"], 18: ["skip-execution"]}}

# The parts of randomly drawn cells: outputs that are hard to accumulate, in any order. Pager output is not
# among them: nbclient drops it, nb stores it as an output, as JupyterLab does.
DISPLAYS = ["'d'", "HTML('<b>h</b>')", "{'text/plain': 'p', 'image/png': 'iVBORw0KGgo='}, raw=True, metadata={'image/png': {'width': 9}}"]
STATEMENTS = [
    "print('line')",
    "print('part', end='')",
    "print('over\\rwritten')",
    "print('\\rback', end='')",
    "print('\\b\\b\\bxyz\\b')",
    "print('\\x1b[1;31mred\\x1b[0m\\x1b[K')",
    "print('\\x1b[2K\\rcleared line')",
    "print('to stderr', file=sys.stderr)",
    "sys.stdout.write('é\\u2028\\x0c\\x00')",
    "sys.stdout.flush()",
    "clear_output()",
    "clear_output(wait=True)",
    "display({display})",
    "display('new {id}', display_id='{id}')",
    "update_display('updated {id}', display_id='{id}')",
    "update_display(HTML('<i>{id}</i>'), display_id='{id}')",
    "get_ipython().set_next_input('x = 7')",
    "get_ipython().set_next_input('instead', replace=True)",
    "display(*[n for n in range(3)])",
    "_ = [print(n, flush=True) for n in range(30)]",
    "raise ValueError('{id}')",
]
LAST = ["", "'{id}'", "HTML('last')", "display('last', display_id='{id}')", "None", "7;"]


def lots(seed, cells=25):
    """Returns the sources of a randomly drawn notebook, the same ones for the same seed."""
    lot = random.Random(seed)

    def draw(templates):
        return lot.choice(templates).format(display=lot.choice(DISPLAYS), id=lot.choice("abcd"))

    sources = ["import sys\nfrom IPython.display import *"]
    for _ in range(cells):
        lines = [draw(STATEMENTS) for _ in range(lot.randint(1, 7))]
        sources.append("\n".join([*lines, draw(LAST)]))
    return sources


# Why a notebook cannot run here, by patterns in its code.
CANNOT = {
    "asks": r"(?<![\w.])(raw_)?input\(|getpass\(",
    "kills its kernel": r"os\.kill|killpg",
    "never ends, or takes long": r"while True|sleep\(\d\d+\)",
    "needs the network": r"urlopen|requests\.|http[s]?://[^\s'\"]*['\"]\)",
    "waits for another notebook": r"NBEXECUTE_TEST_PARALLEL",
    "draws lots": r"\brandn?\(|\brandom\.",
    "looks how its kernel was started": r"hist_file",
}


def make(folder, made=MADE):
    for name, sources in made.items():
        cells = [new_markdown_cell(f"# {name}"), *map(new_code_cell, sources)]
        for at, tags in TAGS.get(name, {}).items():
            cells[at + 1].metadata["tags"] = tags
        for number, cell in enumerate(cells):
            cell.id = f"{name}-{number}"
        nbformat.write(new_notebook(cells=cells), folder / f"{name}.ipynb")


def make_by_lot(folder):
    make(folder, {f"lot-{seed}": lots(seed) for seed in range(3)})


def make_with_libraries(folder):
    make(folder, WITH_LIBRARIES)


def choose(source, target):
    for path in sorted(source.glob("*.ipynb")):
        if not path.name.startswith(("nbclient", "nbconvert", "papermill")):
            continue
        if why := cannot(path):
            print(f"{path.name}: {why}")
        else:
            notebook = nbformat.read(path, as_version=4)
            for cell in notebook.cells:
                if cell.cell_type == "code":
                    cell.outputs, cell.execution_count = [], None
            # The same id for each cell on both sides.
            notebook.nbformat_minor = 5
            for number, cell in enumerate(notebook.cells):
                cell.id = f"cell-{number}"
            notebook.metadata.pop("widgets", None)
            notebook.metadata.pop("kernelspec", None)
            nbformat.write(notebook, target / path.name)


def cannot(path):
    """Returns why a notebook cannot be run here; nothing if it can."""
    try:
        notebook = nbformat.read(path, as_version=4)
        code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    except Exception as error:
        return f"cannot be read: {type(error).__name__}"
    kernel = notebook.metadata.get("kernelspec", {})
    language = kernel.get("language") or ("python" if "python" in kernel.get("name", "python").lower() else "another")
    if language != "python":
        return f"needs another kernel: {kernel.get('name')}"
    if not any(source.strip() for source in code):
        return "has no code"
    reasons = (why for why, words in CANNOT.items() if re.search(words, "\n".join(code)))
    return next(reasons, None)


def run(folder):
    # nb starts an environment's kernel with the environment activated, so its programs come first on PATH.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for path in sorted(folder.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        resources = {"metadata": {"path": str(folder)}}
        client = NotebookClient(notebook, kernel_name="python3", timeout=120, allow_errors=True, resources=resources)
        client.execute()
        nbformat.write(notebook, path)


WIDGETS = "application/vnd.jupyter.widget-state+json"
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|\x1b\][^\x07]*\x07")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
REPLACED = [
    (r"/[\w/.-]*/(with_nb|with_nbclient)(?=[/\"' :]|$)", "FOLDER"),
    (r"(/tmp|/[\w./-]*/tmp)/ipykernel_\d+/\d+\.py", "CELL"),
    (r"(?<![0-9A-Za-z-])[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}(?![\w-])", "UUID"),
    (r"0x[0-9a-f]{6,}", "ADDRESS"),
    # matplotlib's names in an SVG.
    (r"\b[pm][0-9a-f]{10}\b", "NAME"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?", "TIME"),
    (r"datetime\.datetime\([\d, ]+\)", "TIME"),
    (r"\d+(\.\d+)?(e[+-]?\d+)? ?(ns|µs|μs|us|ms|s|it/s|s/it)\b", "DURATION"),
    (r"\d\d:\d\d<\d\d:\d\d", "DURATION"),
    (r"(?<=pid[= ])\d+", "PID"),
]


def terminal(text):
    """Returns what a terminal finally shows of a text."""
    lines = []
    for line in ESCAPE.sub("", text).replace("\r\n", "\n").split("\n"):
        if "\r" not in line and "\b" not in line:
            lines.append(line)
            continue
        # Implementations differ in the last colours of an overwritten line.
        places, at = [], 0
        for c in COLOUR.sub("", line):
            if c == "\r":
                at = 0
            elif c == "\b":
                at = max(0, at - 1)
            else:
                places[at : at + 1] = [c]
                at += 1
        lines.append("".join(places))
    return "\n".join(lines)


def replaced(value):
    if isinstance(value, str):
        for pattern, word in REPLACED:
            value = re.sub(pattern, word, value)
        return value
    if isinstance(value, list):
        return [replaced(item) for item in value]
    if isinstance(value, dict):
        return {replaced(key): replaced(item) for key, item in value.items()}
    return value


def normal(outputs):
    found, streams = [], {}
    for output in [*outputs, None]:
        if output is not None and output["output_type"] == "stream":
            streams[output["name"]] = streams.get(output["name"], "") + output["text"]
            continue
        for name in sorted(streams, reverse=True):
            found.append({"output_type": "stream", "name": name, "text": terminal(streams[name])})
        streams = {}
        if output is not None:
            found.append(output)
    return replaced(found)


def of(path):
    """Returns the parts of a notebook that are compared: a dictionary for each cell, and the state of
    its widgets."""
    notebook = json.loads(nbformat.writes(nbformat.read(path, as_version=4), split_lines=False))
    cells = []
    for cell in notebook["cells"]:
        metadata = {key: value for key, value in cell["metadata"].items() if key != "execution"}
        got = {"id": cell["id"], "source": cell["source"], "metadata": metadata}
        if cell["cell_type"] == "code":
            got["count"], got["outputs"] = cell["execution_count"], normal(cell["outputs"])
        cells.append(got)
    # The models' ids are random.
    models = notebook["metadata"].get("widgets", {}).get(WIDGETS, {}).get("state", {})
    models = sorted(json.dumps(replaced(model), sort_keys=True) for model in models.values())
    return [*cells, {"id": "widgets", "source": "", "state": models}]


def compare(with_nb, with_nbclient):
    notebooks = cells = outputs = 0
    wrong = []
    for path in sorted(with_nbclient.glob("*.ipynb")):
        one, other = of(with_nb / path.name), of(path)
        notebooks += 1
        assert len(one) == len(other), path.name
        for a, b in zip(one, other, strict=True):
            cells += "outputs" in b
            outputs += len(b.get("outputs", []))
            for field in b:
                # The colours of an overwritten line are lost on only one of the two sides.
                if a[field] != b[field] and plain(a[field]) != plain(b[field]):
                    if field == "state":
                        a, b = a | {field: [m for m in a[field] if m not in b[field]]}, b | {field: [m for m in b[field] if m not in a[field]]}
                    wrong.append(f"{path.name} {b['id']} {field}\n{b['source']}\n  with_nb       {shown(a[field])}\n  with_nbclient {shown(b[field])}")
    print(f"{notebooks} notebooks, {cells} cells of code, {outputs} outputs: {len(wrong)} differ")
    assert not wrong, "\n\n".join(wrong)


def plain(value):
    """Returns a value without colours in its streams, for lines that were overwritten."""
    if not isinstance(value, list):
        return value
    streams = [isinstance(v, dict) and v.get("output_type") == "stream" for v in value]
    return [v | {"text": COLOUR.sub("", v["text"])} if is_stream else v for v, is_stream in zip(value, streams, strict=True)]


def shown(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 1500 else f"{text[:900]} ... {text[-500:]}"


if __name__ == "__main__":
    command, *folders = sys.argv[1:]
    commands = [make, make_by_lot, make_with_libraries, choose, run, compare]
    {function.__name__: function for function in commands}[command](*map(Path, folders))

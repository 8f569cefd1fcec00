"""nbclient executes a notebook with the given kernelspec, and its outputs are right."""

import nbformat
from launch import SECONDS, OwnPortsManager, arguments, say
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

OUTPUTS = [
    "import sys\nx = 20\nprint('to stdout')\nprint('to stderr', file=sys.stderr)",
    "x + 1",
    "from IPython.display import display, HTML\nh = display(HTML('<b>old</b>'), display_id='h')",
    "h.update(HTML('<b>new</b>'))",
    "from IPython.display import clear_output\nprint('gone')\nclear_output(wait=True)\nprint('kept')",
    "1 / 0",
]


def shown(cell):
    """Returns a cell's outputs without what differs from run to run."""
    parts = []
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            parts.append((output["name"], output["text"]))
        elif output["output_type"] == "error":
            parts.append(("error", output["ename"]))
        else:
            data = output["data"]
            parts.append((output["output_type"], data.get("text/html", data["text/plain"])))
    return sorted(parts)


def main():
    options = arguments()
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code) for code in OUTPUTS]
    )
    client = NotebookClient(
        notebook, kernel_name=options.kernel, kernel_manager_class=OwnPortsManager, timeout=SECONDS,
        startup_timeout=SECONDS,
    )  # fmt: skip
    try:
        client.execute()
    except CellExecutionError as error:
        assert "ZeroDivisionError" in str(error), error
    else:
        raise AssertionError("the last cell raised nothing")
    nbformat.validate(notebook)
    expected = [
        [("stderr", "to stderr\n"), ("stdout", "to stdout\n")],
        [("execute_result", "21")],
        [("display_data", "<b>new</b>")],
        [],
        [("stdout", "kept\n")],
        [("error", "ZeroDivisionError")],
    ]
    for code, cell, wanted in zip(OUTPUTS, notebook.cells, expected):
        assert shown(cell) == wanted, f"{code!r} gave {shown(cell)}, expected {wanted}"
    counts = [cell["execution_count"] for cell in notebook.cells]
    first = counts[0]
    assert counts == list(range(first, first + len(counts))), counts
    say(f"{len(counts)} cells executed, In[{first}] to In[{counts[-1]}]")


main()

"""What `nb verify` says of notebooks beside a plain Restart & Run All, run twice with nbclient.

`verify.py choose FROM TO MOST` copies notebooks that can run here. `verify.py FOLDER ANSWER` runs each notebook of the folder twice, compares the two with what the notebook shows, and
the result with the verdicts in the answer, a file with what `nb verify FOLDER --json` printed. It prints how many cells
agree, and fails with those that do not.

The rules are made by hand, and coarser: streams between two other outputs are one of each name, as a terminal shows
them; counts, tracebacks and the models of widgets do not count; an output that differs between the two runs is not
compared.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import nbformat
from like_nbclient import cannot, terminal
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

WIDGET = "application/vnd.jupyter.widget-view+json"


def normal(outputs):
    found, streams = [], {}
    for output in [*outputs, None]:
        if output is not None and output["output_type"] == "stream":
            streams[output["name"]] = streams.get(output["name"], "") + output["text"]
            continue
        found += [(name, terminal(streams[name])) for name in sorted(streams, reverse=True) if streams[name]]
        streams = {}
        if output is None:
            continue
        if output["output_type"] == "error":
            found.append(("error", f"{output['ename']}: {output['evalue']}"))
            continue
        forms = {
            form: ("" if form == WIDGET else value.strip() if form.startswith("image/png") else value)
            for form, value in output["data"].items()
        }
        found.append((output["output_type"], json.dumps([forms, output.get("metadata", {})], sort_keys=True)))
    return found


def run(path, work):
    """Returns for each cell that ran its normal outputs and whether it raised."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(notebook, kernel_name="python3", timeout=120, resources={"metadata": {"path": str(work)}})
    failed = None
    try:
        client.execute()
    except (CellExecutionError, DeadKernelError):
        failed = next(
            (
                at
                for at, cell in reversed(list(enumerate(notebook.cells)))
                if cell.cell_type == "code" and (cell.execution_count or cell.outputs)
            ),
            None,
        )
    return [normal(cell.get("outputs", [])) for cell in notebook.cells], failed


def expected(path, work):
    stored = nbformat.read(path, as_version=4).cells
    (one, failed), (other, failed_again) = run(path, work), run(path, work)
    verdicts = {}
    for at, cell in enumerate(stored):
        tags = cell.metadata.get("tags", [])
        if cell.cell_type != "code" or not cell.source.strip():
            continue
        before = normal(cell.outputs)
        if "skip-execution" in tags:
            verdicts[at] = "skipped"
        elif failed is not None and at > failed:
            verdicts[at] = "not_run"
        elif at == failed:
            verdicts[at] = "fails"
        elif before == one[at]:
            verdicts[at] = "same"
        elif not before and cell.execution_count is None:
            verdicts[at] = "not_comparable"
        elif one[at] != other[at] or failed_again != failed:
            first, second, shown = one[at], other[at], before
            kinds = [[kind for kind, _ in side] for side in (first, second, shown)]
            agreed = [a == b for a, b in zip(first, second, strict=False)]
            differs = kinds[0] == kinds[1] and (
                kinds[2] != kinds[0] or any(ok and a != b for ok, a, b in zip(agreed, first, shown, strict=False))
            )
            verdicts[at] = "differs" if differs else "not_comparable"
        else:
            verdicts[at] = "differs" if one[at] else "nothing_now"
    return verdicts


def main(folder, answer):
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    told = {}
    for notebook in json.loads(answer.read_text())["notebooks"]:
        name = Path(notebook.get("path", notebook["notebook"])).name
        told[name] = {cell["index"]: cell["verdict"] for cell in notebook.get("cells", [])} or notebook["error"]["message"]
    counts, wrong = Counter(), []
    for path in sorted(folder.glob("*.ipynb")):
        try:
            wanted = expected(path, folder)
        except Exception as error:
            # What neither of them can run.
            if isinstance(told[path.name], str):
                counts["neither can run"] += 1
            else:
                wrong.append(f"{path.name}: nbclient cannot run it: {type(error).__name__}: {error}")
            continue
        if isinstance(told[path.name], str):
            wrong.append(f"{path.name}: {told[path.name]}")
            continue
        for at, verdict in wanted.items():
            if told[path.name].get(at) == verdict:
                counts[verdict] += 1
            else:
                wrong.append(f"{path.name} cell {at}: nb says {told[path.name].get(at)}, nbclient {verdict}")
    print(f"{sum(counts.values())} agree: {dict(counts)}; {len(wrong)} do not")
    sys.exit("\n".join(wrong) if wrong else 0)


def choose(source, target, most):
    """Copies notebooks that can run here, with the outputs that they have."""
    chosen = 0
    for path in sorted(source.glob("*.ipynb")):
        try:
            if chosen == most or cannot(path):
                continue
            # Both read the newest format, and the kernel of this environment.
            notebook = nbformat.read(path, as_version=4)
            notebook.metadata.pop("kernelspec", None)
            nbformat.write(notebook, target / path.name)
            chosen += 1
        except Exception as error:
            print(f"{path.name}: {type(error).__name__}")
    print(f"{chosen} notebooks")


if __name__ == "__main__":
    if sys.argv[1] == "choose":
        choose(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]))

"""Runs a cell of t.ipynb in the working directory through the kernelspec "nb shared kernel", as a front end does.

The cell prints the variable `shared`, which `nb run` has set. Prints the kernelspec's folder.

    python try_kernelspec.py FOLDER     FOLDER: where Jupyter has to find the kernelspec
"""

import os
import sys

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from nbclient import NotebookClient


def main():
    wanted = os.path.realpath(sys.argv[1])
    spec = KernelSpecManager().get_kernel_spec("nb-shared")
    folder = os.path.realpath(spec.resource_dir)
    assert folder == wanted, f"Jupyter uses {folder}, not {wanted}"
    for logo in ["logo-32x32.png", "logo-64x64.png", "logo-svg.svg"]:
        assert os.path.getsize(os.path.join(folder, logo)), logo
    os.environ["NB_NOTEBOOK"] = os.path.abspath("t.ipynb")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print(shared + 1)")])
    NotebookClient(notebook, kernel_name="nb-shared", timeout=60).execute()
    outputs = notebook.cells[0].outputs
    assert len(outputs) == 1 and outputs[0].get("text") == "42\n", outputs
    print(folder)


if __name__ == "__main__":
    main()

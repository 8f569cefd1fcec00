"""Starts the nb-proxy of the environment in which this kernelspec is installed.

Jupyter and VS Code search a program's bare name on their own PATH, which need not have this environment's
programs. They replace `python` by an interpreter of theirs, and `{resource_dir}` by this folder: any Python
from 3.6 on can run this file.
"""

import os
import sys


def main():
    # <prefix>/share/jupyter/kernels/nb-shared
    folder = os.path.dirname(os.path.abspath(__file__))
    prefix = os.path.normpath(os.path.join(folder, *[os.pardir] * 4))
    program = os.path.join(prefix, "bin", "nb-proxy")
    try:
        os.execv(program, [program] + sys.argv[1:])
    except OSError as error:
        sys.exit(
            "cannot run {}: {}; to mend it, install the package nb-proxy again, or remove {}".format(
                program, error.strerror, folder
            )
        )


if __name__ == "__main__":
    main()

"""Prints the folders in which Jupyter looks for kernelspecs, and what it finds in them."""

import json
import os

from jupyter_client.kernelspec import KernelSpecManager

manager = KernelSpecManager()
folders = list(dict.fromkeys(manager.kernel_dirs))
found = manager.find_kernel_specs()
# Jupyter lists a folder in the order in which the system returns its entries.
specs = sorted(found.items(), key=lambda spec: (folders.index(os.path.dirname(spec[1])), spec[0]))
print(json.dumps({"folders": folders, "specs": specs}))

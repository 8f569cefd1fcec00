"""Says of each text, a list of strings on stdin, whether Python's own parser takes it as IPython gives it to it."""

import ast
import json
import sys
import warnings

from IPython.core.inputtransformer2 import TransformerManager

warnings.simplefilter("ignore")


def takes(text):
    try:
        ast.parse(TransformerManager().transform_cell(text))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True


json.dump([takes(text) for text in json.load(sys.stdin)], sys.stdout)

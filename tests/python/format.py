"""Formats notebooks with nbformat, to compare them with the output of `nb fmt`.

For each pair `NAME.before`, `NAME.after` in a folder: reads the first, gives its cells without ids the
ids of the second, writes it, and compares the bytes. Prints how many pairs there were.
"""

import json
import sys
import warnings
from pathlib import Path

import nbformat

warnings.simplefilter("ignore")
# Notebooks may be deeper than json reads, and nbformat copies them recursively, several calls for each
# level.
sys.setrecursionlimit(20_000)


def own_ids(cells):
    """Yields the ids that stay: of duplicate ids the first one."""
    used = set()
    for cell in cells:
        own = cell.get("id")
        if isinstance(own, str) and own and own not in used:
            used.add(own)
            yield own
        else:
            yield None


def written(before, after):
    data = json.loads(before.decode("utf-8-sig"), strict=False)
    ids = [cell["id"] for cell in after["cells"]]
    assert len(set(ids)) == len(ids), ids
    for own, new in zip(own_ids(data["cells"]), ids, strict=True):
        assert own in (None, new), (own, new)
    # As `nbformat.read` does, but with ids, which need format 4.5.
    read = nbformat.v4.to_notebook(data)
    read["nbformat"], read["nbformat_minor"] = 4, max(5, read.get("nbformat_minor", 0))
    for cell, new in zip(read["cells"], ids, strict=True):
        cell["id"] = new
    return nbformat.writes(read) + "\n"


count = 0
for path in sorted(Path(sys.argv[1]).glob("*.before")):
    formatted = path.with_suffix(".after").read_bytes()
    expected = written(path.read_bytes(), json.loads(formatted))
    # nbformat can read half of a surrogate pair but not write it; in the file it is an escape.
    expected = "".join(f"\\u{ord(c):04x}" if 0xD800 <= ord(c) < 0xE000 else c for c in expected)
    if expected.encode() != formatted:
        formatted_lines, expected_lines = formatted.decode().splitlines(), expected.splitlines()
        for number, (one, other) in enumerate(zip(formatted_lines, expected_lines)):
            if one != other:
                sys.exit(f"{path.name}, line {number + 1}:\n{one[:300]}\n{other[:300]}")
        sys.exit(f"{path.name}: {len(formatted_lines)} lines, nbformat writes {len(expected_lines)}")
    count += 1
print(count)

"""Two shells alternate `nb run` on two notebooks of one project: neither reaches the other's kernel."""

import os
import subprocess
import time

from launch import SECONDS, arguments, nb, say

# One shell names its notebook in the environment, the other on every command.
SHELL = """
mine=$1 count=$2 name=$3
while read -r turn && [ "$turn" -lt "$count" ]; do
  "$NB_TEST_BINARY" run $name "count = globals().get('count', 0) + 1; owner = globals().setdefault('owner', '$mine'); print(f'[{owner} {count} $mine]')" 2>&1 < /dev/null
  echo "exit=$?"
  echo "turn over"
done
"""


def main():
    options = arguments(count=200)
    for notebook in ("a.ipynb", "b.ipynb"):
        nb("open", notebook, "--python", os.environ["NB_TEST_PYTHON"])
    began = time.monotonic()
    shells = {
        "a": start("a", options.count, "", {"NB_NOTEBOOK": "a.ipynb"}),
        "b": start("b", options.count, "-n b.ipynb", {}),
    }
    try:
        # They alternate in pairs: both get their command at once, so that the commands overlap too.
        for turn in range(options.count // 2):
            for shell in shells.values():
                shell.stdin.write(f"{turn}\n")
                shell.stdin.flush()
            for name, shell in shells.items():
                lines = []
                while not (lines and lines[-1] == "turn over\n"):
                    line = shell.stdout.readline()
                    assert line, f"shell {name} ended: {lines}"
                    lines.append(line)
                text = "".join(lines)
                assert "exit=0\n" in lines, text
                assert f"[{name} {turn + 1} {name}]" in text, f"shell {name}, turn {turn}: {text}"
    finally:
        for shell in shells.values():
            shell.kill()
            shell.wait(SECONDS)
    took = time.monotonic() - began
    say(f"{options.count} commands, {took / options.count * 1000:.0f} ms each, none astray")


def start(name, count, words, environment):
    return subprocess.Popen(
        ["bash", "-c", SHELL, "shell", name, str(count), words],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


main()

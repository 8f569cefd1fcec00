"""A person at a terminal is asked by code whose first question another client answers meanwhile."""

import os
import pty
import subprocess
import sys

NB = sys.argv[1]
CODE = 'a = input("name? "); b = input("delete everything? "); print("name", a, "delete", b)'

child, terminal = pty.fork()
if child == 0:
    os.execv(NB, [NB, "run", "a.ipynb", CODE])
shown = ""


def until(text):
    global shown
    while text not in shown:
        try:
            part = os.read(terminal, 4096)
        except OSError:
            part = b""
        assert part, f"it ended without {text!r}: {shown}"
        shown += part.decode()


until("name? ")
# Half an answer to the first question is none to the second.
os.write(terminal, b"ye")
until("name? ye")
subprocess.run([NB, "reply", "--as", "bot", "-d", "ann"], check=True)
until("(answered elsewhere)")
until("delete everything? ")
os.write(terminal, b"no\n")
until("name ann delete no")

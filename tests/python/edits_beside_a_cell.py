"""An agent's edits beside a person's running cell: they wait for its end, but not for anybody who has
left."""

import json
import os
import pathlib
import subprocess

from launch import SECONDS, arguments, joined, launched, outputs, reply_to, say

NOTEBOOK = pathlib.Path("t.ipynb")
UNTIL_GO = """
import os, time
print('on', flush=True)
while not os.path.exists('go'): time.sleep(0.02)
"""


def begin(*words):
    """Starts an agent's `nb`."""
    return subprocess.Popen(
        [os.environ["NB_TEST_BINARY"], *words, "--as", "claude"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def begins(client, code):
    """Sends a cell and waits until it has printed."""
    request = client.execute(code)
    while True:
        message = client.get_iopub_msg(timeout=SECONDS)
        if message["msg_type"] == "stream" and message["parent_header"]["msg_id"] == request:
            return request


def ends(process, expect=0):
    """Waits for the process to end; returns what it printed on stderr since."""
    _, stderr = process.communicate(timeout=2 * SECONDS)
    assert process.returncode == expect, stderr
    return stderr


def sources():
    return ["".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"]]


def main():
    options = arguments()
    given = len(sources())
    assert "waiting" not in ends(begin("insert", "t.ipynb", "1"))
    with launched(options.kernel) as manager, joined(manager.connection_file) as person:
        say("waits for the person's cell")
        before = NOTEBOOK.read_bytes()
        request = begins(person, UNTIL_GO)
        edit = begin("insert", "t.ipynb", "2")
        stderr = edit.stderr.readline()
        assert stderr.startswith("‣ waiting for human (") and "--now" in stderr, stderr
        assert edit.poll() is None and NOTEBOOK.read_bytes() == before, "it did not wait"
        say("an impossible edit fails at once")
        stderr = ends(begin("edit", "t.ipynb", "99", "x"), expect=1)
        assert "there is no cell 99" in stderr and "waiting" not in stderr, stderr
        say("--now does not")
        assert "waiting" not in ends(begin("insert", "t.ipynb", "3", "--now"))
        assert sources()[-1] == "3" and edit.poll() is None
        pathlib.Path("go").touch()
        assert "waiting" not in ends(edit), "it is reported once"
        assert sources()[-1] == "2", sources()
        outputs(person, request)
        reply_to(person, request)
        assert "waiting" not in ends(begin("insert", "t.ipynb", "4"))

        say("not for an agent's own code")
        pathlib.Path("go").unlink()
        code = begin("run", "-n", "t.ipynb", UNTIL_GO, "--stream")
        assert code.stdout.readline() == "on\n"
        assert "waiting" not in ends(begin("insert", "t.ipynb", "5"))
        pathlib.Path("go").touch()
        ends(code)

        say("nor for the dead")
        pathlib.Path("go").unlink()
        begins(person, UNTIL_GO)
        manager.provisioner.process.kill()
        manager.provisioner.process.wait(SECONDS)
        assert "waiting" not in ends(begin("insert", "t.ipynb", "6"))
        with launched(options.kernel) as again, joined(again.connection_file, ready=False):
            assert "waiting" not in ends(begin("insert", "t.ipynb", "7"))
    assert sources()[given:] == ["1", "3", "2", "4", "5", "6", "7"], sources()
    pathlib.Path("go").touch()


main()

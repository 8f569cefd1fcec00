"""A person's cell asks for input while an agent has code behind it: the agent gets a message, and waits no longer."""

import os
import re
import subprocess

from launch import SECONDS, arguments, joined, launched, reply_to

options = arguments()
NB = os.environ["NB_TEST_BINARY"]
AGENT = {**os.environ, "NB_AS": "claude"}


def begin(*words):
    """Starts a command of the agent; returns what waits for its end, its code and what it says."""
    command = [NB, *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=AGENT
    )
    return lambda: (process.communicate(timeout=SECONDS)[0], process.returncode)


def asks(client):
    """Waits for the question of the person's cell."""
    message = client.get_stdin_msg(timeout=SECONDS)
    assert message["header"]["msg_type"] == "input_request", message
    return message["content"]["prompt"]


with launched(options.kernel) as manager, joined(manager.connection_file) as client:
    # The question is there before the agent comes.
    code = "first = input('Name? ')\nwhile True:\n    if input('More? ') == 'no': break"
    request = client.execute(code, allow_stdin=True)
    assert asks(client) == "Name? "
    output, exit_code = begin("run", "-n", "t.ipynb", "--timeout", str(SECONDS), "1 + 1")()
    assert exit_code == 4, (exit_code, output)
    assert "that cell asks: Name? (it is answered where it was run)" in output, output
    job = re.search(r"job (\w{8}),", output)[1]

    assert ", asks \"Name?\"" in begin("status", "t.ipynb")()[0]

    # It comes while the agent waits.
    client.input("Ada")
    assert asks(client) == "More? "
    output, exit_code = begin("wait", job, "--timeout", str(SECONDS))()
    assert exit_code == 4 and "that cell asks: More? " in output, (exit_code, output)
    client.input("no")
    assert reply_to(client, request)["content"]["status"] == "ok"
    output, exit_code = begin("wait", job, "--timeout", str(SECONDS))()
    assert exit_code == 0 and "2" in output, (exit_code, output)

"""jupyter_client's wait_for_ready on the shared kernel while a long cell of an agent runs there.

nbclient, papermill and qtconsole wait in the same way.
"""

import os
import subprocess
import time

from launch import SECONDS, arguments, joined, launched, nb, say

LONG = "import time\nprint('the agent is on', flush=True)\ntime.sleep(120)"


def main():
    options = arguments()
    command = [os.environ["NB_TEST_BINARY"], "run", "--stream", "-n", "t.ipynb", LONG]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout.readline() == "the agent is on\n"
        began = time.monotonic()
        with launched(options.kernel) as manager, joined(manager.connection_file):
            took = time.monotonic() - began
            say(f"ready after {took * 1000:.0f} ms")
            assert took < SECONDS, f"ready after {took:.1f} s behind a long cell"
            assert agent.poll() is None, "the agent was disturbed"
        nb("interrupt", "-n", "t.ipynb")


main()

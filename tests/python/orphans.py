"""An editor killed with -9 leaves its kernels behind: a proxy without a client ends by itself."""

import os
import signal
import subprocess
import time

import psutil
from launch import SECONDS, arguments, nb, say, state
from raw import Client, argv, connection_file
from window import VSCODE


def main():
    options = arguments()
    nb("open", "t.ipynb", "--python", os.environ["NB_TEST_PYTHON"])
    pid = state()["kernel_pid"]
    # VS Code's proxy is orphaned before any request has named its notebook.
    left, left_path = orphan(options.kernel, VSCODE)
    subscribed, subscribed_path = orphan(options.kernel, {})
    with Client(subscribed_path) as listener:
        listener.get_ready()
        began = time.monotonic()
        left.wait(2 * SECONDS)
        took = time.monotonic() - began
        # A client that was killed a while ago does not count as joined.
        assert took < 15, took
        assert subscribed.is_running(), "a proxy with a subscriber went too"
        assert listener.run("print(6 * 7)") == "42\n"
        subscribed.send_signal(signal.SIGTERM)
        subscribed.wait(SECONDS)
    assert not left_path.exists(), "an orphan's connection file is nobody's"
    assert subscribed_path.exists(), "SIGTERM leaves the front end's connection file"
    assert state()["kernel_pid"] == pid and "42" in nb("run", "print(6 * 7)")
    say(f"the orphan ended {took:.0f} s after its editor")


def orphan(kernel, front_end):
    """Launches a kernel under an editor that is then killed; returns the proxy's process and its
    connection file."""
    path = connection_file()
    command, environment = argv(kernel, path)
    editor = subprocess.Popen(
        ["bash", "-c", '"$@" & echo $!; wait', "editor", *command],
        env={**environment, **front_end}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    proxy = psutil.Process(int(editor.stdout.readline()))
    with Client(path) as client:
        client.get_ready()
    editor.kill()
    editor.wait(SECONDS)
    editor.stdout.close()
    return proxy, path


main()

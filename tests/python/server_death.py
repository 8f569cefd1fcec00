"""What a Jupyter server's notebook sees of a kernel or a proxy that is killed or shut down."""

import json
import os
import signal

import psutil
from launch import arguments, nb, say
from server import Socket, rest, server
from window import session_of

NOTEBOOK = "t.ipynb"


def main():
    options = arguments()
    with server() as port:
        session = rest(port, "POST", "sessions", {
            "path": NOTEBOOK, "name": NOTEBOOK, "type": "notebook",
            "kernel": {"name": options.kernel},
        })  # fmt: skip
        kernel = session["kernel"]["id"]
        channels = Socket(port, kernel)
        ok(channels, "x = 1")
        kernel_killed(channels)
        proxy_killed(port, kernel, channels)
        shut_down(channels)
        channels.socket.close()
        rest(port, "DELETE", f"sessions/{session['id']}")
    assert session_of(NOTEBOOK)["status"] == "live"


def kernel_killed(channels):
    pid = session_of(NOTEBOOK)["pid"]
    request = channels.execute("import time; print('on', flush=True); time.sleep(600)")
    error = None
    for message in channels.messages(request):
        if message["msg_type"] == "stream" and error is None:
            os.kill(pid, signal.SIGKILL)
        elif message["msg_type"] == "error":
            error = message["content"]["evalue"]
    assert error and "died" in error and "variables are gone" in error, error
    text = ok(channels, "print('x' in globals())\nx = 2")
    assert "variables are gone" in text and "died at" in text and text.endswith("False\n"), text
    assert ok(channels, "print(x)") == "2\n", "the notice came twice"
    say(text)


def proxy_killed(port, kernel, channels):
    """The server launches its kernelspec again, which does not restart the shared kernel."""
    before = session_of(NOTEBOOK)
    (proxy,) = [p for p in psutil.process_iter(["name", "environ"]) if p.info["name"] == "nb-proxy"
                and (p.info["environ"] or {}).get("HOME") == os.environ["HOME"]]  # fmt: skip
    proxy.kill()
    # The websocket receives a message about the launch; requests sent before that reach no kernel.
    while True:
        message = json.loads(channels.socket.recv())
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "restarting":
            break
    again = Socket(port, kernel)
    assert ok(again, "print(x)") == "2\n"
    after = session_of(NOTEBOOK)
    assert (after["pid"], after["generation"]) == (before["pid"], before["generation"]), after
    again.socket.close()


def shut_down(channels):
    nb("shutdown", NOTEBOOK, "--force")
    for _ in range(2):
        reply = next(m for m in channels.messages(channels.execute("1")) if m["channel"] == "shell")
        assert reply["content"]["status"] == "error", reply
        assert "nb open" in reply["content"]["evalue"], reply
    assert session_of(NOTEBOOK)["status"] == "stopped"
    nb("open", NOTEBOOK, "--python", os.environ["NB_TEST_PYTHON"])
    assert "shut down" in ok(channels, "1")


def ok(channels, code):
    reply, text = channels.run(code)
    assert reply["status"] == "ok", reply
    return text


main()

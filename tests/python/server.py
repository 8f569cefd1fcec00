"""A jupyter_server with a session on the given kernelspec, used over REST and websocket.

Cells run, a prompt is answered, a running cell is interrupted, the kernel is really restarted, the
session is deleted. With the shared kernel, the agent's variables exist before the restart, and its
kernel is alive after the end.
"""

import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

import websocket
from launch import PLAIN, SECONDS, arguments, evaluate, joined, nb, say, state

TOKEN = uuid.uuid4().hex


@contextlib.contextmanager
def server():
    """Starts a server on a free port; yields its address once it reports that it listens."""
    process = subprocess.Popen(
        [
            sys.executable, "-m", "jupyter_server", "--allow-root",
            "--ServerApp.ip=127.0.0.1", "--ServerApp.port=0", "--ServerApp.open_browser=False",
            "--ServerApp.root_dir=" + os.getcwd(),
        ],
        env={**os.environ, "JUPYTER_TOKEN": TOKEN},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    lines = []
    listening = queue.Queue()

    def read():
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                listening.put(found.group(1))
        listening.put(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        port = listening.get(timeout=SECONDS)
        assert port, "the server ended before it listened"
        dial(port, process)
        yield port
        process.terminate()
        process.wait(SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(SECONDS)
        say("--- the server's log\n" + "".join(lines[-40:]))


def dial(port, process):
    """Connects until the server listens: it reports its port a little too early."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            return rest(port, "GET", "status")
        except urllib.error.URLError:
            assert time.monotonic() < end and process.poll() is None, "nobody listens"
            time.sleep(0.05)


def rest(port, method, path, body=None):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/{path}",
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"token {TOKEN}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        text = answer.read()
    return json.loads(text) if text else None


class Socket:
    """The kernel's channels over one websocket, in the plain JSON protocol."""

    def __init__(self, port, kernel):
        self.session = uuid.uuid4().hex
        self.socket = websocket.create_connection(
            f"ws://127.0.0.1:{port}/api/kernels/{kernel}/channels?session_id={self.session}",
            header=[f"Authorization: token {TOKEN}"],
            timeout=SECONDS,
        )

    def send(self, channel, kind, content, parent=None):
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": kind,
            "session": self.session,
            "username": "test",
            "date": "2026-01-01T00:00:00Z",
            "version": "5.3",
        }
        message = {
            "channel": channel, "header": header, "parent_header": parent or {},
            "metadata": {}, "content": content, "buffers": [],
        }  # fmt: skip
        self.socket.send(json.dumps(message))
        return header["msg_id"]

    def execute(self, code):
        content = {
            "code": code, "silent": False, "store_history": True, "user_expressions": {},
            "allow_stdin": True, "stop_on_error": True,
        }  # fmt: skip
        return self.send("shell", "execute_request", content)

    def messages(self, request):
        """Yields the messages of one request until its reply and its idle have come."""
        reply = idle = False
        while not (reply and idle):
            frame = self.socket.recv()
            assert isinstance(frame, str), f"a binary frame: {frame[:100]}"
            message = json.loads(frame)
            if message["parent_header"].get("msg_id") != request:
                continue
            reply |= message["channel"] == "shell"
            idle |= message["content"].get("execution_state") == "idle"
            yield message

    def run(self, code):
        """Runs one cell; returns its reply's content and its stdout."""
        messages = list(self.messages(self.execute(code)))
        reply = next(m["content"] for m in messages if m["channel"] == "shell")
        text = "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")
        return reply, text


def main():
    options = arguments()
    shared = options.kernel != PLAIN
    if shared:
        nb("run", "-n", "t.ipynb", "agents = 'the agent was here'")
    with server() as port:
        session = rest(port, "POST", "sessions", {
            "path": "t.ipynb", "name": "t.ipynb", "type": "notebook",
            "kernel": {"name": options.kernel},
        })  # fmt: skip
        kernel = session["kernel"]["id"]
        use(port, kernel, shared)
        rest(port, "DELETE", f"sessions/{session['id']}")
        assert rest(port, "GET", "sessions") == []
    if shared:
        output = nb("run", "-n", "t.ipynb", "print('agents' in globals(), '-', fronts)")
        assert "False - the front end too" in output, output
        with joined(state()["connection_file"]) as client:
            assert evaluate(client, "fronts") == "the front end too"
    say("session created, used, interrupted and deleted")


def use(port, kernel, shared):
    channels = Socket(port, kernel)
    if shared:
        reply, text = channels.run("print(agents)")
        assert (reply["status"], text) == ("ok", "the agent was here\n"), (reply, text)
    reply, text = channels.run("fronts = 'the front end too'\nprint(6 * 7)")
    assert (reply["status"], text) == ("ok", "42\n"), (reply, text)

    request = channels.execute("print('hello ' + input('who? '))")
    text = ""
    for message in channels.messages(request):
        if message["msg_type"] == "input_request":
            assert message["content"]["prompt"] == "who? ", message
            channels.send("stdin", "input_reply", {"value": "world", "status": "ok"}, message["header"])
        elif message["msg_type"] == "stream":
            text += message["content"]["text"]
    assert text.endswith("hello world\n"), text

    for code in ("import time; print('running'); time.sleep(600)",
                 "print('running')\nwhile True: pass"):  # fmt: skip
        interrupt(port, kernel, channels, code)
    # A restart keeps the connection file: the next process binds the last one's ports.
    before = shared and state()["sessions"]["t.ipynb"]
    rest(port, "POST", f"kernels/{kernel}/restart")
    # As after a reload of a browser page, two sockets of one session are open at the same time.
    again = Socket(port, kernel)
    reply, text = again.run("print('after the restart')")
    assert (reply["status"], text) == ("ok", "after the restart\n"), (reply, text)
    reply, text = again.run("print('fronts' in globals())\nfronts = 'the front end too'")
    assert (reply["status"], text) == ("ok", "False\n"), "the variables are still there"
    if shared:
        after = state()["sessions"]["t.ipynb"]
        assert after["generation"] == before["generation"] + 1, (before, after)
        assert after["ended"]["by"] == "human (JupyterLab)", after["ended"]
    again.socket.close()
    channels.socket.close()


def interrupt(port, kernel, channels, code):
    request = channels.execute(code)
    ended = asked = None
    for message in channels.messages(request):
        if message["msg_type"] == "stream" and asked is None:
            asked = time.monotonic()
            rest(port, "POST", f"kernels/{kernel}/interrupt")
        elif message["msg_type"] == "error":
            ended = message["content"]["ename"]
        elif message["msg_type"] == "execute_reply":
            assert message["content"]["ename"] == "KeyboardInterrupt", message["content"]
    assert ended == "KeyboardInterrupt", ended
    took = time.monotonic() - asked
    assert took < SECONDS, f"the interrupt took {took:.1f} s"
    say(f"interrupted in {took * 1000:.0f} ms")


if __name__ == "__main__":
    main()

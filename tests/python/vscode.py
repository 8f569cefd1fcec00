"""A launch as VS Code's Jupyter extension does it, a restart's kill and the launch after it."""

import os
import signal
import time
import uuid

import psutil
from launch import PLAIN, SECONDS, arguments, nb, say, state
from raw import Client, connection_file, process

# In the form of the extension's own start-up code; the texts are written for this test.
STARTUP = [
    "try:\n    import ipywidgets as _VSCODE_ipywidgets\n    print('e976ee50', _VSCODE_ipywidgets._version.__version__)\n"
    "    del _VSCODE_ipywidgets\nexcept Exception:\n    pass",
    "def __VSCODE_inject_module():\n    import sys, types\n    sys.modules['vscode'] = types.ModuleType('vscode')\n"
    "__VSCODE_inject_module()\ndel __VSCODE_inject_module\n__vsc_ipynb_file__ = '{path}'\n"
    "%config Completer.use_jedi = False",
]


def main():
    options = arguments()
    shared = options.kernel != PLAIN
    session = str(uuid.uuid4())
    if shared:
        nb("run", "-n", "t.ipynb", "agents = 'the agent was here'")
        pid = state()["kernel_pid"]
    for launch in ("first", "second"):
        path = connection_file()
        before = path.stat().st_mtime_ns, path.read_bytes()
        began = time.monotonic()
        with process(options.kernel, path) as child, Client(path, session) as client:
            client.get_ready()
            ready = time.monotonic() - began
            use(client, launch, shared)
            assert len(client.sessions) == 1, f"several sessions: {client.sessions}"
            took = kill_as_vscode_does(child)
            after = path.stat().st_mtime_ns, path.read_bytes()
            assert after == before or not shared, "the front end's connection file was changed"
        say(f"{launch}: ready after {ready * 1000:.0f} ms, gone {took * 1000:.0f} ms after SIGTERM")
        if shared:
            assert took < 20, f"the exit took {took:.2f} s"
            assert psutil.pid_exists(pid) and state()["kernel_pid"] == pid, "the kernel went too"
            output = nb("run", "-n", "t.ipynb", "print(agents, mine)")
            assert f"the agent was here {launch}" in output, output


def use(client, launch, shared):
    for code in STARTUP:
        request = client.execute(
            code.replace("{path}", os.path.realpath("t.ipynb")), store_history=False
        )
        client.finish(request)
    reply, _ = client.finish(
        client.send("shell", "complete_request", {"code": "__file__.", "cursor_pos": 9})
    )
    assert reply.type == "complete_reply", reply

    cell = {"cellId": f"vscode-notebook-cell:{os.path.realpath('t.ipynb')}#W0sZmlsZQ%3D%3D"}
    assert client.run("print(6 * 7)", metadata=cell) == "42\n"
    if shared:
        assert client.run("print(agents)", metadata=cell) == "the agent was here\n"

    # Messages that no kernel answers must not delay those that are answered.
    client.send("shell", "an_unknown_request", {"a": 1}, vendor_field={"kept": True})
    client.send("control", "an_unknown_request")
    client.send("stdin", "input_reply", {"value": "nobody asked"})
    client.send("shell", "comm_msg", {"comm_id": "no such comm", "data": {}})
    opened = client.send(
        "shell", "comm_open", {"comm_id": uuid.uuid4().hex, "target_name": "no.such", "data": {}}
    )
    client.wait(
        "comm_close of an unknown target",
        lambda channel, m: m.type == "comm_close" and m.parent.get("msg_id") == opened,
    )
    reply, _ = client.finish(client.send("shell", "comm_info_request", {}))
    assert reply.content["status"] == "ok", reply

    request = client.execute("name = input('name? ')\nprint('hello', name)", metadata=cell)
    prompt = client.wait("a prompt", lambda channel, m: channel == "stdin")
    assert prompt.type == "input_request" and prompt.parent["msg_id"] == request, prompt
    client.send("stdin", "input_reply", {"value": "VS Code"}, parent=prompt.header)
    _, iopub = client.finish(request)
    assert any(m.content.get("text") == "hello VS Code\n" for m in iopub), iopub

    interrupt(client, cell)
    assert client.run(f"mine = '{launch}'\nprint(mine)", metadata=cell) == f"{launch}\n"


def interrupt(client, cell):
    request = client.execute("print('on')\nwhile True: pass", metadata=cell)
    client.wait(
        "the cell runs", lambda _, m: m.type == "stream" and m.parent.get("msg_id") == request
    )
    asked = time.monotonic()
    answered = client.send("control", "interrupt_request")
    reply, iopub = client.finish(request)
    assert reply.content["ename"] == "KeyboardInterrupt", reply
    assert any(m.type == "error" for m in iopub), iopub
    took = time.monotonic() - asked
    reply, _ = client.finish(answered)
    assert (reply.type, reply.content["status"]) == ("interrupt_reply", "ok"), reply
    say(f"interrupted in {took * 1000:.0f} ms")


def kill_as_vscode_does(child):
    """SIGTERM to every descendant, then to the process; returns the seconds until it had ended."""
    for descendant in psutil.Process(child.pid).children(recursive=True):
        descendant.send_signal(signal.SIGTERM)
    began = time.monotonic()
    child.send_signal(signal.SIGTERM)
    child.wait(SECONDS)
    return time.monotonic() - began


main()

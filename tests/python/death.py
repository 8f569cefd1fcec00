"""A kernel that ends under a connected front end: the cell ends with a readable error, and the next one
runs.

`--how kill` is a kill -9 while a cell runs, `restart` is `nb restart`, `reopen` is `nb shutdown` and
`nb open`. The front end is launched only once.
"""

import os
import signal
import time

from launch import SECONDS, arguments, nb, say, state
from raw import Client, connection_file, process, stdout

SLEEPER = "import time\nprint('on', flush=True)\ntime.sleep(600)"


def main():
    options = arguments(how="kill")
    path = connection_file()
    with (
        process(options.kernel, path) as child,
        Client(path) as client,
        Client(path) as bystander,
    ):
        client.get_ready()
        bystander.get_ready()
        for number in (1, 2):
            once(options.how, number, client, bystander)
            assert child.poll() is None, f"the front end's process ended with {child.returncode}"
        for each in (client, bystander):
            assert len(each.sessions) == 1, f"header.session changed: {each.sessions}"
            states = {m.content["execution_state"] for m in each.received["iopub"] if m.type == "status"}
            assert states <= {"busy", "idle", "starting"}, f"forwarded states: {states}"
            for channel in ("shell", "control", "iopub"):
                kinds = {m.type for m in each.received[channel]}
                assert not any("shutdown" in k for k in kinds), f"{channel}: {kinds}"


def once(how, number, client, bystander):
    pid = state()["kernel_pid"]
    client.run(f"x = {number}")
    running = client.execute(SLEEPER)
    client.wait("the cell runs", lambda _, m: m.type == "stream" and m.parent.get("msg_id") == running)
    waiting = {
        bystander.execute("1"): "execute_reply",
        bystander.send("shell", "complete_request", {"code": "pri", "cursor_pos": 3}): "complete_reply",
        client.execute("2"): "execute_reply",
    }
    began = time.monotonic()
    if how == "kill":
        os.kill(pid, signal.SIGKILL)
    elif how == "restart":
        nb("restart", "t.ipynb", "--force")
    elif how == "reopen":
        nb("shutdown", "t.ipynb", "--force")
    reply, iopub = client.finish(running)
    took = time.monotonic() - began
    readable(reply, iopub)
    for request, kind in waiting.items():
        asker = client if request.startswith(client.session) else bystander
        reply, iopub = asker.finish(request)
        assert reply.type == kind, reply
        # Either the reply reports a failure of the old kernel, or the cell ran on the new one.
        if reply.content["status"] != "ok" and kind == "execute_reply":
            readable(reply, iopub)

    if how == "kill":
        # There is no kernel now: a cell says so or has one started for it; it never hangs.
        reply, iopub = client.finish(client.execute("'while it was away'"))
        if reply.content["status"] != "ok":
            readable(reply, iopub)
    if how != "restart":
        nb("open", "t.ipynb", "--python", os.environ["NB_TEST_PYTHON"])
    new = state()["kernel_pid"]
    assert new != pid, f"the kernel is still {pid}"
    back = first_to_succeed(client, f"print({number} * 21, 'x' in globals())")
    assert back == f"{number * 21} False\n", f"not a fresh kernel: {back!r}"
    assert bystander.run("import os\nprint(os.getpid())") == f"{new}\n"
    # The way back for prompts works again, too.
    request = client.execute("print('hello', input('who? '))")
    prompt = client.wait(
        "a prompt", lambda channel, m: channel == "stdin" and m.parent.get("msg_id") == request
    )
    client.send("stdin", "input_reply", {"value": "again"}, parent=prompt.header)
    _, iopub = client.finish(request)
    assert any(m.content.get("text") == "hello again\n" for m in iopub), iopub
    say(f"{how} {number}: the cell ended {took * 1000:.0f} ms after, kernel {pid} -> {new}")


def readable(reply, iopub):
    """Checks what a person sees of a failed cell: a named error with a sentence."""
    assert reply.content["status"] == "error", reply
    errors = [m for m in iopub if m.type == "error"]
    assert len(errors) == 1, f"errors on iopub: {errors}"
    for content in (reply.content, errors[0].content):
        assert content["ename"] and "kernel" in content["evalue"].lower(), content
        assert isinstance(content["traceback"], list), content
    assert iopub[-1].content.get("execution_state") == "idle", iopub


def first_to_succeed(client, code):
    """Runs a cell again until a kernel runs it; each failure must be a readable one."""
    end = time.monotonic() + SECONDS
    while True:
        reply, iopub = client.finish(client.execute(code))
        if reply.content["status"] == "ok":
            return stdout(iopub)
        readable(reply, iopub)
        assert time.monotonic() < end, f"no kernel ran it within {SECONDS} s: {reply}"


main()

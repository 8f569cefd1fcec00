"""A running cell is interrupted by every allowed way: a message, SIGINT to the process, `nb interrupt`."""

import signal
import time

from launch import PLAIN, arguments, nb, say
from raw import Client, connection_file, process

# Each with the message type that shows that it runs. The prints are not flushed, so another thread of
# ipykernel sends them: an interrupt in the middle of a flush would be ipykernel's own problem.
LOOPS = {
    "a sleep": ("import time\nprint('on')\ntime.sleep(600)", "stream"),
    "a loop": ("print('on')\nwhile True: pass", "stream"),
    "a prompt": ("input('never answered')", "input_request"),
}


def main():
    options = arguments()
    path = connection_file()
    with (
        process(options.kernel, path) as child,
        Client(path) as client,
        Client(path) as bystander,
    ):
        client.get_ready()
        bystander.get_ready()
        ways = {
            "interrupt_request": lambda: client.send("control", "interrupt_request"),
            "another client's interrupt_request": lambda: bystander.send("control", "interrupt_request"),
            "SIGINT": lambda: child.send_signal(signal.SIGINT),
        }
        if options.kernel != PLAIN:
            ways["nb interrupt"] = lambda: nb("interrupt", "t.ipynb", "--as", "human")
        for way, interrupt in ways.items():
            for name, (code, sign) in LOOPS.items():
                took = once(client, code, sign, interrupt)
                say(f"{way}, {name}: {took * 1000:.0f} ms")
                assert child.poll() is None, f"{way} ended the process: {child.returncode}"
        # When nothing runs, an interrupt has no effect.
        child.send_signal(signal.SIGINT)
        reply, _ = client.finish(client.send("control", "interrupt_request"))
        assert reply.content["status"] == "ok", reply
        assert client.run("print(6 * 7)") == "42\n"
        assert bystander.run("print('not interrupted')") == "not interrupted\n"


def once(client, code, sign, interrupt):
    request = client.execute(code)
    client.wait("the cell runs", lambda _, m: m.type == sign and m.parent.get("msg_id") == request)
    began = time.monotonic()
    interrupt()
    reply, iopub = client.finish(request)
    assert reply.content["status"] == "error", reply
    assert reply.content["ename"] == "KeyboardInterrupt", reply
    assert [m.content["ename"] for m in iopub if m.type == "error"] == ["KeyboardInterrupt"], iopub
    return time.monotonic() - began


main()

"""A process that may have 64 open files: new clients are refused, the old ones are still served.

When some have left, there is room for others again.
"""

import contextlib
import pathlib
import resource
import time

from launch import SECONDS, arguments, say
from raw import Client, connection_file, process

LIMIT = 64


def limited():
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))


def gets_ready(client, seconds):
    try:
        client.get_ready(seconds)
    except AssertionError:
        return False
    return True


def many_identities(options):
    """Clients that connect, send a request and leave are remembered; their sockets are closed when
    others need them."""
    path = connection_file()
    with process(options.kernel, path, preexec_fn=limited) as child, Client(path) as old:
        old.get_ready()
        assert old.run("x = 1") == ""
        began = time.monotonic()
        for number in range(60):
            with Client(path) as other:
                # Clients that have left are forgotten after 30 s, and there is room for less than twenty.
                other.get_ready(20)
                assert other.run("print(x)") == "1\n"
            if number % 10 == 0:
                assert old.run(f"print({number})") == f"{number}\n"
        assert child.poll() is None, f"it ended: {child.returncode}"
        log = pathlib.Path(".nb/proxy.log").read_text()
        say(f"60 clients in {time.monotonic() - began:.1f} s, {log.count('is gone')} forgotten")
        assert "cannot write" not in log, log


def main():
    options = arguments()
    many_identities(options)
    path = connection_file()
    with process(options.kernel, path, preexec_fn=limited) as child, Client(path) as old:
        old.get_ready()
        assert old.run("print(1)") == "1\n"
        others = []
        log = pathlib.Path(".nb/proxy.log")
        before = len(log.read_text())
        end = time.monotonic() + SECONDS
        while "refused" not in log.read_text()[before:]:
            assert time.monotonic() < end, "nobody is refused"
            others.append(Client(path))
            others[-1].send("control", "kernel_info_request")
            old.pump(0.05)
        for number in range(20):
            assert child.poll() is None, f"it ended: {child.returncode}"
            assert old.run(f"print({number})") == f"{number}\n"
        text = log.read_text()[before:]
        refused = [line for line in text.splitlines() if "refused" in line]
        say(f"{len(others)} more, then:\n" + "\n".join(refused[:3]))
        assert len(refused) < 200, f"{len(refused)} lines"
        assert "cannot write" not in text, text
        for other in others:
            with other:
                pass
        with Client(path) as new:
            new.get_ready()
            assert new.run("print('again')") == "again\n"
        assert old.run("print('still')") == "still\n"


main()

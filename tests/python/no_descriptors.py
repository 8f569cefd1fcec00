"""A process that may have 64 open files: new clients are refused, the old ones are served on.

When some have gone, there is room for others again.
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


def main():
    options = arguments()
    path = connection_file()
    with process(options.kernel, path, preexec_fn=limited) as child, Client(path) as old:
        old.get_ready()
        assert old.run("print(1)") == "1\n"
        others = []
        log = pathlib.Path(".nb/proxy.log")
        end = time.monotonic() + SECONDS
        while "refused" not in log.read_text():
            assert time.monotonic() < end, "nobody is refused"
            others.append(Client(path))
            others[-1].send("control", "kernel_info_request")
            old.pump(0.05)
        for number in range(20):
            assert child.poll() is None, f"it ended: {child.returncode}"
            assert old.run(f"print({number})") == f"{number}\n"
        refused = [line for line in log.read_text().splitlines() if "refused" in line]
        say(f"{len(others)} more, then:\n" + "\n".join(refused[:3]))
        assert len(refused) < 200, f"{len(refused)} lines"
        for other in others:
            with other:
                pass
        with Client(path) as new:
            new.get_ready()
            assert new.run("print('again')") == "again\n"
        assert old.run("print('still')") == "still\n"


main()

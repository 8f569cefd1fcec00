"""A kernel that sends nonsense, recorded in a `state.json` with only three keys: its clients see none of
it."""

import json
import os
import pathlib
import signal

from fake_kernel import FakeKernel, nonsense
from launch import PLAIN, arguments, say
from raw import Client, connection_file, process


def main():
    options = arguments()
    own = connection_file()
    kernel = FakeKernel(own)
    pathlib.Path(".nb").mkdir(exist_ok=True)
    # This process is recorded as the kernel, so a signal to the kernel would end the test.
    bare = {"notebook": "t.ipynb", "connection_file": str(own), "kernel_pid": os.getpid()}
    pathlib.Path(".nb/state.json").write_text(json.dumps(bare))
    try:
        if options.kernel == PLAIN:
            with Client(own) as client:
                # A direct client of the kernel receives the nonsense; only the good messages are checked
                # here.
                client.get_ready()
                assert client.run("nothing") == "ran 1"
        else:
            through(options.kernel, kernel)
    finally:
        kernel.close()


def through(name, kernel):
    path = connection_file()
    with process(name, path) as child, Client(path) as client, Client(path) as other:
        client.get_ready()
        other.get_ready()
        names = list(nonsense(b"", {"header": {}}))
        for number, code in enumerate(names, start=1):
            result = client.run(code)
            assert result == f"ran {number}", f"{code}: {result!r}"
        assert other.run("and others") == f"ran {len(names) + 1}"
        for each in (client, other):
            for channel, messages in each.received.items():
                odd = [m for m in messages if "NONSENSE" in str(m.content)]
                assert not odd, f"{channel}: {odd}"
        child.send_signal(signal.SIGTERM)
        child.wait(60)
        say(f"{len(names)} kinds of nonsense, none of it reached a client")


main()

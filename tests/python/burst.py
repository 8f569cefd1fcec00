"""Large prints in a row on a kernel over TCP: neither a print nor the cell's end may be lost.

The kernel's own queue holds 1,000 messages, and it drops further ones, so its reader has to be fast
enough. The full number, beside two processes that keep both cores busy:

    cargo test --release --test it -- --ignored burst
"""

import contextlib
import multiprocessing
import pathlib
import time

import zmq
from launch import arguments, endpoint, joined, launched, prove_subscription, say, subscriber, until

CODE = """
text = "x" * {size}
for i in range({prints}):
    print(f"{mark}{{i:06d}}", text, flush=True)
"""


def main():
    options = arguments(prints=1000, size=100_000, rounds=50, busy=2, standing=0)
    bad = []
    with contextlib.ExitStack() as stack:
        manager = stack.enter_context(launched(options.kernel))
        client = stack.enter_context(joined(manager.connection_file))
        reads = subscriber(manager.connection_file)
        prove_subscription(client, reads)
        client.iopub_channel.socket.unsubscribe(b"")
        if options.standing:
            stack.enter_context(standing(manager.connection_file))
        for _ in range(options.busy):
            stack.enter_context(busy())
        for number in range(options.rounds):
            began = time.monotonic()
            missing = one_round(client, reads, options, f"round {number}:")
            took = time.monotonic() - began
            say(f"round {number}: {missing or 'nothing'} missing, {took:.1f} s")
            if missing:
                bad.append(number)
        until("nothing is kept", lambda: not list(pathlib.Path(".nb/front_end_outputs").glob("*")))
    assert not bad, f"{len(bad)} of {options.rounds} rounds were not whole: {bad}"


def one_round(client, socket, options, mark):
    """Returns what is missing of a round, as text; nothing if it is whole."""
    code = CODE.format(size=options.size, prints=options.prints, mark=mark)
    request = client.execute(code).encode()
    wanted = {f"{mark}{i:06d}".encode() for i in range(options.prints)}
    idle = b'"idle"'
    mark = mark.encode()
    while True:
        if not socket.poll(60_000):
            return f"{len(wanted)} prints and the idle"
        frames = socket.recv_multipart()
        # The parent's header and the content.
        parent, content = frames[-3], frames[-1]
        if request not in parent:
            continue
        if idle in content[:200]:
            break
        at = content.find(mark)
        while at >= 0:
            wanted.discard(content[at : at + len(mark) + 6])
            at = content.find(mark, at + 1)
    client.get_shell_msg(timeout=60)
    return f"{len(wanted)} prints" if wanted else ""


@contextlib.contextmanager
def standing(connection_file):
    """A subscriber that never reads."""
    address, _ = endpoint(connection_file, "iopub")
    with zmq.Context.instance().socket(zmq.SUB) as socket:
        socket.linger = 0
        socket.rcvhwm = 1
        socket.subscribe(b"")
        socket.connect(address)
        yield


def spin():
    while True:
        pass


@contextlib.contextmanager
def busy():
    """A process that keeps a core busy."""
    process = multiprocessing.get_context("spawn").Process(target=spin, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


if __name__ == "__main__":
    main()

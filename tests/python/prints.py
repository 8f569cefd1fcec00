"""Flushed prints through the launched kernelspec: none may be lost.

The full number, on an idle machine: `cargo test --release --test it prints -- --ignored`. A kernel drops
messages that its subscriber does not take fast enough, so a debug build of the proxy, or a slow machine,
loses lines that nobody could have kept.
"""

import time

from launch import Message, arguments, joined, launched, prove_subscription, say, subscriber

CODE = "for i in range({lines}):\n    print({mark!r}, i, flush=True)"


def main():
    options = arguments(lines=20_000, rounds=20)
    lost = []
    with launched(options.kernel) as manager, joined(manager.connection_file) as client:
        socket = subscriber(manager.connection_file)
        prove_subscription(client, socket)
        client.iopub_channel.socket.unsubscribe(b"")
        for number in range(options.rounds):
            began = time.monotonic()
            missing = one_round(client, socket, options.lines, f"round {number}:")
            lost.append(missing)
            say(f"round {number}: {missing} of {options.lines} lost, {time.monotonic() - began:.1f} s")
    bad = [n for n in lost if n]
    assert not bad, f"{len(bad)} of {options.rounds} rounds lost lines: {bad}"


def one_round(client, socket, lines, mark):
    request = client.execute(CODE.format(lines=lines, mark=mark))
    # Read first, check later: this subscriber must not be the slow one.
    frames = []
    idle = b'"idle"'
    while True:
        assert socket.poll(60_000), f"no idle; {len(frames)} messages"
        got = socket.recv_multipart()
        frames.append(got)
        if idle in got[-1] and Message(got).is_idle_of(request):
            break
    client.get_shell_msg(timeout=60)
    text = "".join(m.content["text"] for m in map(Message, frames) if m.type == "stream")
    arrived = text.splitlines()
    expected = [f"{mark} {i}" for i in range(lines)]
    places = {line: i for i, line in enumerate(arrived)}
    order = [places[line] for line in expected if line in places]
    assert order == sorted(order), "lines came in another order"
    assert len(arrived) == len(places), "a line came twice"
    return lines - len(order)


main()

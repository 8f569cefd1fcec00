"""What a stranger gets from a proxy: nothing, before it has shown that it has the key.

And what everybody can see of a proxy: only the address of the connection file, and no key in its log,
its arguments or its environment.
"""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

import psutil
import zmq
from bad_input import GREETING, command, ready
from launch import SECONDS, arguments, endpoint, say, until
from raw import CHANNELS, Client, connection_file, message, process

NB = pathlib.Path(".nb")
MEGABYTE = 1 << 20


def main():
    options = arguments()
    path = connection_file()
    os.environ["NB_LOG"] = "trace"
    with contextlib.ExitStack() as stack:
        child = stack.enter_context(process(options.kernel, path))
        client = stack.enter_context(Client(path))
        client.get_ready()
        addresses(child, path)
        strangers(child, path, client)
        heartbeats(child, path, client)
        long_messages(path, client)
        across_channels(path, client)
        another_user(path, client)
        assert client.run("print('still here')") == "still here\n"
        secrets(child, path)


def addresses(child, path):
    info = json.loads(path.read_text())
    wanted = {("127.0.0.1", info[f"{channel}_port"]) for channel in CHANNELS}
    listening = {
        tuple(connection.laddr)
        for connection in psutil.Process(child.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == wanted, f"{listening} instead of {wanted}"


def to_kernel(child):
    return len(psutil.Process(child.pid).net_connections("unix"))


def joined(child):
    return json.loads((NB / f"proxies/{child.pid}.json").read_text())


def address(path, channel):
    info = json.loads(path.read_text())
    return "127.0.0.1", info[f"{channel}_port"]


def greeted(path, channel, kind, identity=b""):
    """Returns a bare connection whose handshake is complete."""
    stranger = socket.create_connection(address(path, channel), timeout=SECONDS)
    stranger.sendall(GREETING + ready(kind, Identity=identity))
    received = b""
    while b"READY" not in received:
        received += (got := stranger.recv(4096))
        assert got, f"refused: {received}"
    return stranger


def strangers(child, path, client):
    # The record is written once a second while something happens, so later changes are recognised.
    record = NB / f"proxies/{child.pid}.json"
    until("all events before are recorded", lambda: time.time() - record.stat().st_mtime > 1.5)
    before, clients = to_kernel(child), joined(child)["clients"]
    with contextlib.ExitStack() as stack:
        forged, _ = message(b"not the key", "stranger", "kernel_info_request", {})
        frames = b"".join(
            bytes([0 if frame is forged[-1] else 1, len(frame)]) + frame
            for frame in forged
        )
        for number in range(60):
            channel = ("shell", "control", "stdin")[number % 3]
            stranger = stack.enter_context(greeted(path, channel, b"DEALER", b"stranger%d" % number))
            stranger.sendall(frames)
        # All messages were received, with no further effect.
        until("the forged messages are counted", lambda: refused(child) >= 60)
        assert client.run("print(1)") == "1\n"
        assert to_kernel(child) == before, "strangers opened sockets to the kernel"
        assert joined(child)["clients"] == clients, "strangers are listed as clients"
    say("60 strangers got nothing")


def heartbeats(child, path, client):
    """Peers of the heartbeat prove nothing: all share one socket to the kernel, and their pings are short."""
    before = to_kernel(child)
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(greeted(path, "hb", b"DEALER")) for _ in range(60)]
        for stranger in strangers:
            stranger.sendall(b"\1\0\0\4ping")
        for stranger in strangers:
            received = b""
            while not received.endswith(b"\1\0\0\4ping"):
                received += (got := stranger.recv(4096))
                assert got, f"no answer: {received}"
        opened = to_kernel(child) - before
        assert opened <= 1, f"60 peers of the heartbeat opened {opened} sockets to the kernel"
    with greeted(path, "hb", b"DEALER") as stranger:
        with contextlib.suppress(ConnectionError):
            stranger.sendall(b"\1\0\2" + (5000).to_bytes(8, "big") + b"x" * 5000)
            assert not stranger.recv(4096), "a ping of 5 kB is answered"
    memory = psutil.Process(child.pid).memory_info().rss
    with greeted(path, "hb", b"DEALER") as stranger:
        # It reads nothing.
        for _ in range(8000):
            stranger.sendall(b"\1\0\2" + (4000).to_bytes(8, "big") + b"x" * 4000)
        grown = psutil.Process(child.pid).memory_info().rss - memory
        assert grown < 16 * MEGABYTE, f"grown by {grown / MEGABYTE:.0f} MB"
    assert client.run("print(2)") == "2\n"
    say("60 peers of the heartbeat share a socket to the kernel")


def refused(child):
    return joined(child)["counters"]["refused"]["bad_signature"]


def long_messages(path, client):
    """A stranger's message is received up to a limit; a client's is passed to its kernel."""
    with greeted(path, "shell", b"DEALER", b"long") as stranger:
        stranger.sendall(b"\2" + (32 * MEGABYTE).to_bytes(8, "big"))
        assert closes(stranger), "a stranger may send 32 MB"
    with greeted(path, "shell", b"DEALER", b"slow") as stranger:
        stranger.sendall(b"\2" + (8 * MEGABYTE).to_bytes(8, "big") + b"x")
        # The padding is not in the code: on a busy machine IPython takes a minute to read 32 MB of code.
        padding = {"padding": "x" * (32 * MEGABYTE)}
        code = "print(len(get_ipython().kernel.get_parent()['metadata']['padding']))"
        assert client.run(code, metadata=padding) == f"{32 * MEGABYTE}\n"


def closes(stranger):
    with contextlib.suppress(ConnectionError):
        while stranger.recv(4096):
            pass
    return True


def across_channels(path, client):
    """A message that was sent on shell cannot be replayed on control, by its sender or by anybody else."""
    client.run("replayed = 0")
    content = {"code": "replayed += 1", "silent": False, "store_history": False,
               "user_expressions": {}, "allow_stdin": False, "stop_on_error": False}  # fmt: skip
    frames, request = message(client.key, client.session, "execute_request", content)
    client.sockets["shell"].send_multipart(frames)
    client.finish(request)
    client.sockets["control"].send_multipart(frames)
    # This is sent after it, so when this is answered the replay has been handled.
    client.finish(client.send("control", "kernel_info_request"))
    with zmq.Context.instance().socket(zmq.DEALER) as thief:
        thief.linger = SECONDS * 1000
        thief.connect(endpoint(path, "control")[0])
        thief.send_multipart(frames)
        last, _ = message(client.key, "thief", "kernel_info_request", {})
        thief.send_multipart(last)
        assert thief.poll(SECONDS * 1000), "no answer to the thief's own message"
    assert client.run("print(replayed)") == "1\n"


def another_user(path, client):
    if os.geteuid() != 0 or sys.platform != "linux":
        return say("not root: no other user to be")
    script = (
        "import socket, sys\n"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=60)\n"
        f"data = {GREETING + ready(b'SUB') + command(b'SUBSCRIBE')!r}\n"
        "try:\n"
        "    s.sendall(data)\n"
        "    got = s.recv(4096)\n"
        "except ConnectionError:\n"
        "    got = b''\n"
        "print(len(got))\n"
    )
    interpreter = pathlib.Path("/usr/bin/python3")
    for channel in CHANNELS:
        port = str(address(path, channel)[1])
        done = subprocess.run(
            [interpreter, "-I", "-c", script, port], user=65534, group=65534, extra_groups=[],
            cwd="/", capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        assert done.stdout == "0\n", f"another user on {channel}: {done}"
    assert "another user of this machine (65534)" in (NB / "proxy.log").read_text()
    say("another user was refused on five ports")


def secrets(child, path):
    keys = [json.loads(path.read_text())["key"]]
    keys += [json.loads(file.read_text())["key"] for file in (NB / "connections").glob("*.json")]
    assert len(keys) > 1 and all(len(key) > 16 for key in keys)
    places = {"proxy.log": (NB / "proxy.log").read_bytes()}
    assert b"TRACE" in places["proxy.log"] or b"DEBUG" in places["proxy.log"]
    for name in ("cmdline", "environ"):
        file = pathlib.Path(f"/proc/{child.pid}/{name}")
        places[name] = file.read_bytes() if file.exists() else b""
    places["record"] = (NB / f"proxies/{child.pid}.json").read_bytes()
    for name, text in places.items():
        for key in keys:
            assert key.encode() not in text, f"a key is in {name}"


if __name__ == "__main__":
    main()

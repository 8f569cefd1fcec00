"""Bad input on each of the five ports: other clients are still served, and nothing forbidden is
executed.

A good client works all the time. Whatever a stranger sends, and however it leaves, the process stays
alive, its memory does not grow with announced lengths, and the good client's next cell runs.
"""

import contextlib
import json
import os
import socket
import struct
import uuid

import psutil
import zmq
from launch import DELIMITER, PLAIN, SECONDS, arguments, endpoint, say
from raw import CHANNELS, Client, connection_file, message, process, sign

GREETING = b"\xff\0\0\0\0\0\0\0\1\x7f\3\0" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
MEGABYTE = 1 << 20


def greeting(mechanism=b"NULL", version=b"\3\0"):
    return GREETING[:10] + version + mechanism.ljust(20, b"\0") + b"\0" + bytes(31)


def command(name, body=b""):
    payload = bytes([len(name)]) + name + body
    if len(payload) > 255:
        return struct.pack(">BQ", 6, len(payload)) + payload
    return bytes([4, len(payload)]) + payload


def ready(kind, **properties):
    body = b""
    for name, value in {"Socket-Type": kind, **properties}.items():
        name = name.replace("_", "-").encode()
        body += bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
    return command(b"READY", body)


def handshakes(channel):
    """Returns what a stranger may send on a fresh connection: pairs of a name and the bytes."""
    peer = {"iopub": b"SUB", "hb": b"REQ"}.get(channel, b"DEALER")
    good = GREETING + ready(peer, Identity=b"stranger")
    huge = struct.pack(">BQ", 2, 1 << 46)
    return {
        "nothing": b"",
        "garbage": os.urandom(300),
        "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "half a greeting": GREETING[:17],
        "a greeting of ZMTP 1": b"\x01\x00",
        "a greeting of another mechanism": greeting(b"CURVE") + ready(peer),
        "a greeting of a later version": greeting(version=b"\x09\x00") + ready(peer),
        "half a READY": GREETING + ready(peer)[:9],
        "a READY with a lying length": GREETING + b"\4\xff" + b"\5READY" + b"\xff" * 200,
        "a READY whose property lies": GREETING + command(b"READY", b"\x0bSocket-Type\xff\xff\xff\xff"),
        "a socket type that does not fit": GREETING + ready(b"PUSH"),
        "a message before READY": GREETING + b"\0\5hello",
        "an identity of 255 bytes": GREETING + ready(peer, Identity=b"i" * 255),
        "an identity that is too long": GREETING + ready(peer, Identity=b"i" * 256),
        "an identity like the delimiter": GREETING + ready(peer, Identity=DELIMITER),
        "an identity that begins with zero": GREETING + ready(peer, Identity=b"\0zero"),
        "an unknown command": good + command(b"NONSENSE", os.urandom(40)),
        "an ERROR command": good + command(b"ERROR", b"\3bad"),
        "a PING": good + command(b"PING", b"\0\x0acontext"),
        "a frame announced with 2^46 bytes": good + huge + b"short",
        "a frame announced with 2^63 bytes": good + struct.pack(">BQ", 2, 1 << 63) + b"short",
        "a command announced with 2^46 bytes": good + struct.pack(">BQ", 6, 1 << 46) + b"short",
        "half a frame": good + b"\0\xc8" + b"x" * 50,
        "half a message": good + b"\1\x09<IDS|MSG>" + b"\1\x04",
        "reserved flags": good + b"\xf8\5hello",
        "many empty frames": good + b"\1\0" * 5000 + b"\0\0",
        "many empty messages": good + b"\0\0" * 5000,
    }


def envelopes(key, session):
    """Returns what a legitimate client may send that is not a Jupyter message: pairs of a name and the
    frames."""
    header = {"msg_id": "m", "msg_type": "kernel_info_request", "session": session,
              "username": "u", "date": "", "version": "5.3"}  # fmt: skip

    def parts(*four):
        four = [p if isinstance(p, bytes) else json.dumps(p).encode() for p in four]
        return [DELIMITER, sign(key, four), *four]

    good = parts(header, {}, {}, {})
    return {
        "no delimiter": good[1:],
        "nothing after the delimiter": good[:1],
        "too few parts": good[:4],
        "one empty frame": [b""],
        "two delimiters": [DELIMITER, *good],
        "no signature": [DELIMITER, b"", *good[2:]],
        "a wrong signature": [DELIMITER, b"0" * 64, *good[2:]],
        "a short signature": [DELIMITER, good[1][:10], *good[2:]],
        "a signature that is not hex": [DELIMITER, b"\xff" * 64, *good[2:]],
        "a changed content": [*good[:5], b'{"code":"forged = 1"}'],
        "a header that is not JSON": parts(b"\xff\xfe{", {}, {}, {}),
        "a header that is a list": parts([1, 2], {}, {}, {}),
        "a header without a type": parts({"msg_id": "m"}, {}, {}, {}),
        "a header without an id": parts({"msg_type": "execute_request"}, {}, {}, {"code": "1"}),
        "a header with numbers": parts({"msg_id": 1, "msg_type": 2, "session": 3}, {}, {}, {}),
        "a deep header": parts(b"[" * 50_000 + b"]" * 50_000, {}, {}, {}),
        "a parent that is not JSON": parts(header, b"nul", {}, {}),
        "content that is not JSON": parts(header, {}, {}, b"{"),
        "an empty header": parts(b"", b"", b"", b""),
    }


class Place:
    """The process under test with its good client."""

    def __init__(self, child, path):
        self.child, self.path = child, path
        self.client = Client(path)
        self.client.get_ready()
        self.cells = 0

    def address(self, channel):
        return ("127.0.0.1", json.loads(self.path.read_text())[f"{channel}_port"])

    def still_served(self, after):
        self.cells += 1
        assert self.child.poll() is None, f"{after}: the process ended: {self.child.returncode}"
        printed = self.client.run(f"print({self.cells})")
        assert printed == f"{self.cells}\n", f"{after}: {printed!r}"

    def memory(self):
        return psutil.Process(self.child.pid).memory_info().rss


def main():
    options = arguments()
    plain = options.kernel == PLAIN
    path = connection_file()
    with contextlib.ExitStack() as stack:
        child = stack.enter_context(process(options.kernel, path))
        place = Place(child, path)
        stack.enter_context(place.client)
        strangers(place, plain)
        forgeries(place)
        replay(place)
        if not plain:  # libzmq's own ends of these connections are not tested
            vanishing(place)
            never_reading(place)
        heartbeat(place)
    say(f"{place.cells} good cells ran between")


def strangers(place, plain):
    before = place.memory()
    kept = []
    for channel in CHANNELS:
        for name, sent in handshakes(channel).items():
            if plain and "2^" in name:
                continue  # libzmq allocates the announced size
            for end in ("close", "reset", "stay"):
                stranger = socket.create_connection(place.address(channel), timeout=SECONDS)
                with contextlib.suppress(ConnectionError):
                    stranger.sendall(sent)
                if end == "stay":
                    kept.append(stranger)
                    continue
                if end == "reset":
                    linger = struct.pack("ii", 1, 0)
                    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                stranger.close()
            if channel == "shell" or name == "garbage":
                place.still_served(f"{name} on {channel}")
        place.still_served(f"strangers on {channel}")
    grown = place.memory() - before
    assert grown < 64 * MEGABYTE, f"strangers made it grow by {grown / MEGABYTE:.0f} MB"
    for stranger in kept:
        stranger.close()
    place.still_served("all strangers left")
    say(f"strangers on five ports: grown by {grown / MEGABYTE:.1f} MB")


def forgeries(place):
    for channel in ("shell", "control", "stdin"):
        address, key = endpoint(place.path, channel)
        for identity in (b"forger", b"\xff" * 255, DELIMITER):
            with zmq.Context.instance().socket(zmq.DEALER) as forger:
                forger.linger = SECONDS * 1000
                forger.routing_id = identity
                forger.connect(address)
                for frames in envelopes(key, "forger").values():
                    forger.send_multipart(frames)
                # After all that, a good message of the same client is answered. (A kernel itself cannot
                # tell an identity like the delimiter from the delimiter.)
                if channel != "stdin" and identity != DELIMITER:
                    frames, request = message(key, "forger", "kernel_info_request", {})
                    forger.send_multipart(frames)
                    answered(forger, request, f"forgeries on {channel} as {identity[:9]}")
        place.still_served(f"forgeries on {channel}")
    with zmq.Context.instance().socket(zmq.SUB) as forger:
        forger.linger = SECONDS * 1000
        forger.connect(endpoint(place.path, "iopub")[0])
        forger.subscribe(b"x" * 300)
        forger.unsubscribe(b"x" * 300)
        forger.subscribe(b"")
        request = place.client.execute("print('seen by all')")
        place.client.finish(request)
        place.still_served("odd subscriptions")
    assert place.client.run("print('forged' in globals())") == "False\n"


def answered(dealer, request, after):
    while True:
        assert dealer.poll(SECONDS * 1000), f"{after}: no answer to a good message"
        frames = dealer.recv_multipart()
        at = frames.index(DELIMITER)
        if json.loads(frames[at + 3]).get("msg_id") == request:
            return


def replay(place):
    """The same signed request sent twice is executed once: kernels drop requests that they have seen."""
    place.client.run("replayed = 0")
    content = {"code": "replayed += 1", "silent": False, "store_history": False,
               "user_expressions": {}, "allow_stdin": False, "stop_on_error": False}  # fmt: skip
    frames, request = message(place.client.key, place.client.session, "execute_request", content)
    place.client.sockets["shell"].send_multipart(frames)
    place.client.finish(request)
    for _ in range(3):
        place.client.sockets["shell"].send_multipart(frames)
    with zmq.Context.instance().socket(zmq.DEALER) as thief:
        thief.linger = SECONDS * 1000
        thief.connect(endpoint(place.path, "shell")[0])
        thief.send_multipart(frames)
        last, request = message(place.client.key, "thief", "kernel_info_request", {})
        thief.send_multipart(last)
        answered(thief, request, "a replayed request")
    assert place.client.run("print(replayed)") == "1\n"


def vanishing(place):
    """Clients that leave while their cell runs, and while their prompt is open."""
    for code in ("print('x' * 1000)", "import time; time.sleep(0.3); print('late')"):
        with Client(place.path) as client:
            client.get_ready()
            for _ in range(5):
                client.execute(code)
        place.still_served("a client left with its cells running")
    # A client that reads none of its replies reaches its own limit, not that of others.
    with Client(place.path) as client:
        client.get_ready()
        shell = client.sockets["shell"]
        # Two status messages each: a kernel's own iopub queue may drop messages above 500 at once when its
        # I/O thread has to wait for the processor.
        for _ in range(8):
            for _ in range(50):
                client.send("shell", "kernel_info_request")
            place.still_served("requests of one client")
        assert shell.poll(SECONDS * 1000), "and not one reply"


def never_reading(place):
    """A subscriber that never reads, while the kernel prints more than any buffer holds."""
    stranger = socket.socket()
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stranger.connect(place.address("iopub"))
    stranger.sendall(GREETING + ready(b"SUB") + b"\0\1\1")
    # Its handshake is complete once the other side's READY is here; then it stops reading.
    received = b""
    while b"READY" not in received:
        got = stranger.recv(4096)
        assert got, f"refused: {received}"
        received += got
    before = place.memory()
    chunk, chunks = MEGABYTE, 200
    request = place.client.execute(
        f"for i in range({chunks}):\n    print(f'{{i:09}}' + 'y' * ({chunk} - 10), flush=True)"
    )
    count = 0
    ended = False
    while not ended:
        arrived = place.client.pump(SECONDS)
        assert arrived, f"nothing for {SECONDS} s after {count} bytes"
        for channel, got in arrived:
            if channel == "iopub":
                if got.type == "stream" and got.parent.get("msg_id") == request:
                    count += len(got.content["text"])
                ended |= got.is_idle_of(request)
        place.client.received["iopub"].clear()
    assert count == chunk * chunks, f"{count} bytes of {chunk * chunks} reached the good client"
    grown = place.memory() - before
    place.client.received = {c: [] for c in place.client.received}
    place.still_served("a subscriber that does not read")
    # When it reads again nothing is missing: the unread messages were on disk.
    missing = chunk * chunks - chunks * 10
    stranger.settimeout(SECONDS)
    while missing > 0:
        got = stranger.recv(MEGABYTE)
        assert got, f"it was cut, {missing} bytes before the end"
        missing -= got.count(b"y")
    stranger.close()
    place.still_served("it left")
    say(f"{chunks} MB past a subscriber that does not read: grown by {grown / MEGABYTE:.0f} MB")
    # The good client itself may be slow, and what waits for it is in memory. All of it would be more.
    assert grown < 160 * MEGABYTE


def heartbeat(place):
    with zmq.Context.instance().socket(zmq.REQ) as beat:
        beat.linger = 0
        beat.connect(endpoint(place.path, "hb")[0])
        for number in range(3):
            sent = f"{uuid.uuid4()} {number}".encode()
            beat.send(sent)
            assert beat.poll(SECONDS * 1000), "no heartbeat"
            assert beat.recv() == sent


if __name__ == "__main__":
    main()

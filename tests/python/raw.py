"""A client on bare sockets, which can do what jupyter_client would not, and sign with any key."""

import contextlib
import hashlib
import hmac
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import uuid

import zmq
from jupyter_client.kernelspec import KernelSpecManager
from launch import CHANNELS, DELIMITER, SECONDS, Message, endpoint, free_ports


def sign(key, parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).hexdigest().encode() if key else b""


def message(key, session, kind, content, parent=None, metadata=None, buffers=(), **header):
    """Returns the frames of one signed message, and its id."""
    header = {
        "msg_id": f"{session}_{uuid.uuid4().hex}",
        "msg_type": kind,
        "session": session,
        "username": "raw",
        "date": "2026-01-01T00:00:00.000Z",
        "version": "5.2",
        **header,
    }
    parts = [json.dumps(p).encode() for p in (header, parent or {}, metadata or {}, content)]
    return [DELIMITER, sign(key, parts), *parts, *buffers], header["msg_id"]


def connection_file(**fields):
    """Returns a fresh TCP connection file in its own folder."""
    path = pathlib.Path(tempfile.mkdtemp()) / "kernel-v3.json"
    info = {
        "key": str(uuid.uuid4()),
        "signature_scheme": "hmac-sha256",
        "transport": "tcp",
        "ip": "127.0.0.1",
        "kernel_name": "raw",
        **dict(zip((f"{c}_port" for c in CHANNELS), free_ports(5))),
        **fields,
    }
    path.write_text(json.dumps(info))
    path.chmod(0o600)
    return path


def argv(kernel, path):
    """Returns the installed kernelspec's command line for that connection file, and its environment."""
    spec = KernelSpecManager().get_kernel_spec(kernel)
    words = [word.replace("{connection_file}", str(path)) for word in spec.argv]
    if words[0].startswith("python"):
        words[0] = sys.executable
    return words, {**os.environ, **spec.env}


@contextlib.contextmanager
def process(kernel, path, **options):
    """The kernelspec's process; killed at the end if it still runs."""
    command, environment = argv(kernel, path)
    child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, **options)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.wait(SECONDS)


def stdout(iopub):
    """Returns what was printed; on stderr ipykernel also reports its own problems."""
    streams = [m.content for m in iopub if m.type == "stream"]
    return "".join(s["text"] for s in streams if s["name"] == "stdout")


class Client:
    """Shell, control and stdin of one routing id, and a subscription to everything."""

    def __init__(self, path, session=None):
        self.session = session or str(uuid.uuid4())
        self.sockets = {}
        self.sessions = set()
        self.received = {"shell": [], "control": [], "stdin": [], "iopub": []}
        identity = uuid.uuid4().hex.encode()
        for channel in self.received:
            address, self.key = endpoint(path, channel)
            kind = zmq.SUB if channel == "iopub" else zmq.DEALER
            self.sockets[channel] = s = zmq.Context.instance().socket(kind)
            s.linger = 0
            s.rcvhwm = s.sndhwm = 0
            # By default libzmq waits longer and longer between its connection attempts.
            s.reconnect_ivl, s.reconnect_ivl_max = 10, 50
            if channel == "iopub":
                s.subscribe(b"")
            else:
                s.routing_id = identity
            s.connect(address)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for s in self.sockets.values():
            s.close()

    def send(self, channel, kind, content=None, **more):
        frames, request = message(self.key, self.session, kind, content or {}, **more)
        self.sockets[channel].send_multipart(frames)
        return request

    def execute(self, code, metadata=None, **content):
        content = {
            "code": code, "silent": False, "store_history": True, "user_expressions": {},
            "allow_stdin": True, "stop_on_error": False, **content,
        }  # fmt: skip
        return self.send("shell", "execute_request", content, metadata=metadata)

    def pump(self, seconds):
        """Receives the messages that are there, waiting at most so long for the first; checks
        signatures."""
        poller = zmq.Poller()
        names = {}
        for name, s in self.sockets.items():
            poller.register(s, zmq.POLLIN)
            names[s] = name
        arrived = []
        for s, _ in poller.poll(seconds * 1000):
            while s.poll(0):
                got = Message(s.recv_multipart())
                at = got.frames.index(DELIMITER)
                good = sign(self.key, got.frames[at + 2 : at + 6])
                assert got.signature == good, f"badly signed on {names[s]}: {got}"
                self.sessions.add(got.header["session"])
                self.received[names[s]].append(got)
                arrived.append((names[s], got))
        return arrived

    def wait(self, event, condition, seconds=SECONDS):
        """Receives messages until one fulfils the condition, which gets its channel and the message."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for channel, got in self.pump(max(0, end - time.monotonic())):
                if condition(channel, got):
                    return got
        raise AssertionError(f"{event}: not within {seconds} s; last: " + str(
            {c: m[-3:] for c, m in self.received.items()}
        ))  # fmt: skip

    def finish(self, request, seconds=SECONDS):
        """Waits for the reply and the idle of a request; returns the reply and the iopub messages
        received meanwhile."""
        def here(channel):
            return [m for m in self.received[channel] if m.parent.get("msg_id") == request]

        def complete(*_):
            replied = [m for c in ("shell", "control") for m in here(c)]
            return replied and any(m.is_idle_of(request) for m in here("iopub"))

        if not complete():
            self.wait(f"reply and idle of {request}", complete, seconds)
        return (here("shell") + here("control"))[0], here("iopub")

    def get_ready(self, seconds=SECONDS):
        """Sends requests on control and shell every half second until any reply and any iopub message
        has come."""
        end = time.monotonic() + seconds
        while not (
            (self.received["shell"] or self.received["control"]) and self.received["iopub"]
        ):
            assert time.monotonic() < end, f"not ready after {seconds} s: {self.received}"
            self.send("control", "kernel_info_request")
            self.send("shell", "kernel_info_request")
            self.pump(0.5)

    def run(self, code, seconds=SECONDS, **more):
        """Runs one cell, which must succeed; returns its stdout."""
        reply, iopub = self.finish(self.execute(code, **more), seconds)
        assert reply.content["status"] == "ok", f"{code!r}: {reply}"
        return stdout(iopub)

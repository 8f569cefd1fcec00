"""libzmq sockets under remote control: one JSON command per line on stdin, one JSON answer per line on
stdout.

A frame is hex text; a long frame is [length, SHA-256] in an answer, and [length, byte] in a command.
"""

import hashlib
import json
import sys

import zmq

TIMEOUT_MS = 30_000
context = zmq.Context()
sockets = {}


def to_frame(value):
    if isinstance(value, str):
        return bytes.fromhex(value)
    length, byte = value
    return bytes([byte]) * length


def from_frame(frame):
    if len(frame) <= 1000:
        return frame.hex()
    return [len(frame), hashlib.sha256(frame).hexdigest()]


def open_socket(name, type, options={}, bind=None, connect=None):
    socket = context.socket(getattr(zmq, type))
    socket.linger = 0
    socket.sndhwm = 0
    socket.rcvhwm = 0
    socket.rcvtimeo = TIMEOUT_MS
    socket.sndtimeo = TIMEOUT_MS
    for option, value in options.items():
        if isinstance(value, str):
            value = bytes.fromhex(value)
        socket.setsockopt(getattr(zmq, option), value)
    sockets[name] = socket
    if bind:
        socket.bind(bind)
    if connect:
        socket.connect(connect)
    return socket.getsockopt_string(zmq.LAST_ENDPOINT)


def option(name, option, value=None):
    sockets[name].setsockopt(getattr(zmq, option), bytes.fromhex(value))


def send(name, frames, times=1):
    frames = [to_frame(frame) for frame in frames]
    for _ in range(times):
        sockets[name].send_multipart(frames, copy=False)


def recv(name):
    return [from_frame(frame) for frame in sockets[name].recv_multipart()]


def first_number(name):
    return int(sockets[name].recv_multipart()[-1].split(b" ")[0])


def count(name, until, first=0):
    """Receives until a message's last frame is `until`; checks that the others are numbered in order."""
    until = bytes.fromhex(until)
    received = first
    while True:
        frames = sockets[name].recv_multipart()
        if frames[-1] == until:
            return received
        assert frames[-1].startswith(b"%d " % received), (received, frames[-1][:20])
        received += 1


def echo(name, times):
    for _ in range(times):
        sockets[name].send_multipart(sockets[name].recv_multipart())


def close(name):
    sockets.pop(name).close()


COMMANDS = {
    f.__name__: f for f in (open_socket, option, send, recv, first_number, count, echo, close)
}

print(json.dumps({"ok": zmq.zmq_version()}), flush=True)
for line in sys.stdin:
    command = json.loads(line)
    try:
        answer = {"ok": COMMANDS[command.pop("do")](**command)}
    except Exception as error:
        answer = {"error": repr(error)}
    print(json.dumps(answer), flush=True)
context.destroy(linger=0)

"""A kernel that does nothing, and its client, with libzmq at both ends, as in real front ends and
kernels.

libzmq.py kernel FILE       answers every request, busy to idle, until it is killed
libzmq.py client FILE N     prints the times of N round trips in microseconds, as JSON
"""

import hashlib
import hmac
import json
import sys
import time
import uuid

import zmq

HEADER = b'{"msg_id":"%s","msg_type":"%s","session":"libzmq","username":"bench","date":"2026-01-01T00:00:00Z","version":"5.3"}'


class Connection:
    def __init__(self, path):
        with open(path) as file:
            self.info = json.load(file)
        self.keyed = hmac.new(self.info["key"].encode(), digestmod=hashlib.sha256)

    def socket(self, kind, channel, join):
        socket = zmq.Context.instance().socket(kind)
        socket.linger = 0
        at, port = self.info["ip"], self.info[channel + "_port"]
        address = f"ipc://{at}-{port}" if self.info["transport"] == "ipc" else f"tcp://{at}:{port}"
        getattr(socket, join)(address)
        return socket

    def signed(self, kind, parent, content):
        parts = [HEADER % (uuid.uuid4().hex.encode(), kind), parent, b"{}", content]
        return [b"<IDS|MSG>", self.signature(parts), *parts]

    def signature(self, parts):
        state = self.keyed.copy()
        for part in parts:
            state.update(part)
        return state.hexdigest().encode()


def kernel(path):
    connection = Connection(path)
    heartbeat = connection.socket(zmq.REP, "hb", "bind")
    stdin = connection.socket(zmq.ROUTER, "stdin", "bind")  # dialled, never used
    iopub = connection.socket(zmq.PUB, "iopub", "bind")
    requests = [connection.socket(zmq.ROUTER, c, "bind") for c in ("control", "shell")]
    poller = zmq.Poller()
    for socket in (heartbeat, stdin, *requests):
        poller.register(socket, zmq.POLLIN)
    while True:
        for socket, _ in poller.poll():
            frames = socket.recv_multipart()
            if socket is heartbeat:
                socket.send_multipart(frames)
                continue
            at = frames.index(b"<IDS|MSG>")  # a proxy may have added an identity to the client's
            identities, signature, parts = frames[:at], frames[at + 1], frames[at + 2 :]
            if signature != connection.signature(parts):
                continue
            parent = parts[0]
            iopub.send_multipart([b"status", *connection.signed(b"status", parent, b'{"execution_state":"busy"}')])
            content = b'{"status":"ok","protocol_version":"5.3","language_info":{"name":"none"}}'
            socket.send_multipart([*identities, *connection.signed(b"kernel_info_reply", parent, content)])
            iopub.send_multipart([b"status", *connection.signed(b"status", parent, b'{"execution_state":"idle"}')])


class Client:
    def __init__(self, path):
        self.connection = Connection(path)
        self.iopub = self.connection.socket(zmq.SUB, "iopub", "connect")
        self.iopub.subscribe(b"")
        self.shell = self.connection.socket(zmq.DEALER, "shell", "connect")
        # The subscription is in effect only once a message has come.
        while not self.iopub.poll(100):
            self.ask()
            self.shell.recv_multipart()
        while self.iopub.poll(200):
            self.iopub.recv_multipart()

    def ask(self):
        content = b'{"padding":"%s"}' % (b"1" * 800)
        frames = self.connection.signed(b"kernel_info_request", b"{}", content)
        self.shell.send_multipart(frames)
        return frames[2]

    def trip(self):
        began = time.perf_counter_ns()
        header = self.ask()
        reply = self.shell.recv_multipart()
        took = time.perf_counter_ns() - began
        assert reply[3] == header and reply[1] == self.connection.signature(reply[2:])
        while b'"idle"' not in self.iopub.recv_multipart()[-1]:
            pass
        return took / 1000


def client(path, trips):
    one, trips = Client(path), int(trips)
    for _ in range(trips // 10):  # warms up
        one.trip()
    print(json.dumps([one.trip() for _ in range(trips)]))


{"kernel": kernel, "client": client}[sys.argv[1]](*sys.argv[2:])

"""A scripted kernel: it answers as a kernel does, and before that sends any nonsense on request.

A cell's code names the nonsense. The cell's proper reply, output and idle follow, so that a client can
tell that all of the nonsense has passed.
"""

import json
import threading
import uuid

import zmq
from launch import DELIMITER, endpoint
from raw import message, sign


def nonsense(key, request):
    """Returns what a kernel may send, by name: the channel and the frames after the identity."""
    header = json.dumps({"msg_id": "n", "msg_type": "stream", "session": "s", "username": "u",
                         "date": "", "version": "5.3"}).encode()  # fmt: skip
    parent = json.dumps(request["header"]).encode()
    text = b'{"name": "stdout", "text": "NONSENSE"}'
    parts = [header, parent, b"{}", text]
    replies = [header.replace(b"stream", b"execute_reply"), parent, b"{}", b'{"status": "NONSENSE"}']

    def signed(*parts):
        return [DELIMITER, sign(key, parts), *parts]

    table = {}
    for channel, four in (("iopub", parts), ("shell", replies), ("control", replies), ("stdin", replies)):
        table |= {
            f"{channel}: one empty frame": (channel, [b""]),
            f"{channel}: garbage": (channel, [b"\xff\xfe" * 100]),
            f"{channel}: only a delimiter": (channel, [DELIMITER]),
            f"{channel}: too few parts": (channel, signed(*four)[:-1]),
            f"{channel}: unsigned": (channel, [DELIMITER, b"", *four]),
            f"{channel}: wrongly signed": (channel, [DELIMITER, b"0" * 64, *four]),
            f"{channel}: signed with another key": (channel, [DELIMITER, sign(b"x", four), *four]),
            f"{channel}: no delimiter": (channel, four),
            f"{channel}: a header that is not JSON": (channel, signed(b"{", *four[1:])),
        }
    return table


class FakeKernel:
    """Runs in a thread until closed; `connection_file` has the addresses."""

    def __init__(self, connection_file):
        self.connection_file = connection_file
        self.session = uuid.uuid4().hex
        self.count = 0
        self.sockets = {}
        self.context = zmq.Context()
        kinds = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "iopub": zmq.PUB, "hb": zmq.REP}
        for channel, kind in kinds.items():
            address, self.key = endpoint(connection_file, channel)
            self.sockets[channel] = s = self.context.socket(kind)
            s.linger = 0
            s.sndhwm = s.rcvhwm = 0
            s.bind(address)
        self.stop, self.stopped = self.context.socket(zmq.PAIR), self.context.socket(zmq.PAIR)
        self.stop.bind("inproc://stop")
        self.stopped.connect("inproc://stop")
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def close(self):
        self.stop.send(b"")
        self.thread.join()
        self.context.destroy(linger=0)

    def serve(self):
        poller = zmq.Poller()
        names = {s: n for n, s in self.sockets.items() if n != "iopub"} | {self.stopped: None}
        for s in names:
            poller.register(s, zmq.POLLIN)
        while True:
            for s, _ in poller.poll():
                frames = s.recv_multipart()
                if names[s] is None:
                    return
                if names[s] == "hb":
                    s.send_multipart(frames)
                elif names[s] in ("shell", "control") and DELIMITER in frames:
                    self.answer(names[s], frames)

    def publish(self, kind, content, parent):
        frames, _ = message(self.key, self.session, kind, content, parent=parent)
        self.sockets["iopub"].send_multipart([kind.encode(), *frames])

    def answer(self, channel, frames):
        at = frames.index(DELIMITER)
        request = {
            "header": json.loads(frames[at + 2]),
            "content": json.loads(frames[at + 5]),
        }
        header = request["header"]
        kind = header["msg_type"]
        self.publish("status", {"execution_state": "busy"}, header)
        content = {"status": "ok"}
        if kind == "kernel_info_request":
            content |= {
                "protocol_version": "5.3", "implementation": "fake", "implementation_version": "1",
                "language_info": {"name": "fake", "version": "1", "mimetype": "text/plain", "file_extension": ".txt"},
                "banner": "", "help_links": [],
            }  # fmt: skip
        elif kind == "execute_request":
            self.count += 1
            content |= {"execution_count": self.count, "user_expressions": {}, "payload": []}
            nonsensical = nonsense(self.key, request).get(request["content"]["code"])
            if nonsensical:
                where, body = nonsensical
                to = [] if where == "iopub" else frames[:at]
                self.sockets[where].send_multipart([*to, *body])
                if where != "iopub":
                    # Also send it to an identity that nobody has.
                    self.sockets[where].send_multipart([b"nobody", *body])
            self.publish("stream", {"name": "stdout", "text": f"ran {self.count}"}, header)
        reply, _ = message(self.key, self.session, kind.replace("_request", "_reply"), content, parent=header)
        self.sockets[channel].send_multipart([*frames[:at], *reply])
        self.publish("status", {"execution_state": "idle"}, header)

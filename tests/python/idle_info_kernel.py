"""A kernel that runs Python in one thread and behaves like IRkernel where that differs from ipykernel.

It answers kernel_info only on shell, and only between two cells; control is also read only between two
cells, and only for a shutdown; SIGINT interrupts it; every message carries the session of the request
that it answers.

Started as a kernel: `idle_info_kernel.py CONNECTION_FILE`.
"""

import contextlib
import io
import json
import os
import sys
import threading
import traceback

import zmq
from launch import DELIMITER, endpoint
from raw import message


class Kernel:
    def __init__(self, connection_file):
        self.count = 0
        self.globals = {"__name__": "__main__"}
        self.sockets = {}
        context = zmq.Context()
        kinds = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "iopub": zmq.PUB, "hb": zmq.REP}
        for channel, kind in kinds.items():
            address, self.key = endpoint(connection_file, channel)
            self.sockets[channel] = s = context.socket(kind)
            s.linger = 1000
            s.sndhwm = s.rcvhwm = 0
            s.bind(address)
        threading.Thread(target=self.echo, daemon=True).start()

    def echo(self):
        with contextlib.suppress(zmq.ContextTerminated):
            zmq.proxy(self.sockets["hb"], self.sockets["hb"])

    def serve(self):
        poller = zmq.Poller()
        for channel in ("shell", "control"):
            poller.register(self.sockets[channel], zmq.POLLIN)
        while True:
            # A SIGINT between two cells interrupts nothing.
            with contextlib.suppress(KeyboardInterrupt):
                ready = dict(poller.poll())
                for channel in ("control", "shell"):
                    if self.sockets[channel] in ready:
                        self.answer(channel, self.sockets[channel].recv_multipart())

    def publish(self, kind, content, parent):
        frames, _ = message(self.key, parent["session"], kind, content, parent=parent)
        self.sockets["iopub"].send_multipart([kind.encode(), *frames])

    def answer(self, channel, frames):
        at = frames.index(DELIMITER)
        header, content = json.loads(frames[at + 2]), json.loads(frames[at + 5])
        kind = header["msg_type"]
        handlers = {
            ("shell", "kernel_info_request"): self.info,
            ("shell", "execute_request"): self.execute,
            ("shell", "complete_request"): self.complete,
            ("control", "shutdown_request"): lambda *_: content,
        }
        if (channel, kind) not in handlers:
            return
        self.publish("status", {"execution_state": "busy"}, header)
        reply = {"status": "ok", **handlers[channel, kind](content, header)}
        answer, _ = message(
            self.key, header["session"], kind.replace("_request", "_reply"), reply, parent=header
        )
        self.sockets[channel].send_multipart([*frames[:at], *answer])
        self.publish("status", {"execution_state": "idle"}, header)
        if kind == "shutdown_request":
            zmq.Context.instance().destroy()
            os._exit(0)

    def info(self, _content, _header):
        return {
            "protocol_version": "5.3", "implementation": "idle-info", "implementation_version": "1",
            "language_info": {"name": "python", "version": "3", "mimetype": "text/x-python", "file_extension": ".py"},
            "banner": "", "help_links": [],
        }  # fmt: skip

    def complete(self, content, _header):
        at = content["cursor_pos"]
        return {"matches": [], "cursor_start": at, "cursor_end": at, "metadata": {}}

    def execute(self, content, header):
        if content.get("store_history", True) and not content.get("silent"):
            self.count += 1
        number = {"execution_count": self.count}
        self.publish("execute_input", {"code": content["code"], **number}, header)
        # Magics are ignored.
        code = "\n".join(line for line in content["code"].split("\n") if not line.startswith("%"))
        try:
            with contextlib.redirect_stdout(Published(self, header)):
                exec(compile(code, "<cell>", "exec"), self.globals)
        except BaseException as error:  # includes KeyboardInterrupt
            error_content = {
                "ename": type(error).__name__, "evalue": str(error),
                "traceback": traceback.format_exc().splitlines(),
            }  # fmt: skip
            self.publish("error", error_content, header)
            return {"status": "error", **error_content, **number}
        return {"user_expressions": {}, "payload": [], **number}


class Published(io.TextIOBase):
    """A cell's stdout: every write is a stream message."""

    def __init__(self, kernel, header):
        self.kernel, self.header = kernel, header

    def write(self, text):
        self.kernel.publish("stream", {"name": "stdout", "text": text}, self.header)
        return len(text)


if __name__ == "__main__":
    # A notebook imports modules from its own folder, not from this script's.
    sys.path[0] = os.getcwd()
    Kernel(sys.argv[1]).serve()

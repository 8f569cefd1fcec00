"""A full disk for the log, then for the messages that a subscriber has not read: other clients are still
served.

Run where `.nb` and `/var/tmp` are file systems of a few megabytes.
"""

import contextlib
import json
import pathlib
import socket
import struct
import time

from launch import SECONDS, arguments, say
from raw import Client, connection_file, process

GREETING = b"\xff\0\0\0\0\0\0\0\1\x7f\3\0" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
READY = b"\5READY\x0bSocket-Type" + struct.pack(">I", 3) + b"SUB"
MEGABYTE = 1 << 20


def fill(filler):
    with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def stalled(path):
    """A subscriber that never reads."""
    port = json.loads(path.read_text())["iopub_port"]
    bare = socket.socket()
    bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    bare.connect(("127.0.0.1", port))
    bare.sendall(GREETING + bytes([4, len(READY)]) + READY + b"\0\1\1")
    received = b""
    while b"READY" not in received:
        got = bare.recv(4096)
        assert got, f"refused: {received}"
        received += got
    return bare


def is_notified(path, client):
    """The next subscriber receives the ends of the cells that the disconnected one has missed."""
    with Client(path) as back:
        def is_notice(channel, got):
            return channel == "iopub" and "missing here" in got.content.get("text", "")

        notice = back.wait("what was missed", is_notice)
        say(notice.content["text"])
        cell = notice.parent["msg_id"]
        assert any(m.parent["msg_id"] == cell for m in client.received["shell"]), notice
        assert notice.content["name"] == "stderr", notice
        while not any(m.is_idle_of(cell) for m in back.received["iopub"]):
            back.wait("its end", lambda channel, _: channel == "iopub")


def is_written_again(log, client):
    """Entries that could not be written meanwhile are written, and the log says once that the fault is
    over."""
    def asked():
        for line in log.with_name("journal.jsonl").read_text().splitlines():
            # The last entry that the full disk accepted may be half a line.
            with contextlib.suppress(json.JSONDecodeError):
                entry = json.loads(line)
                if entry["event"] == "requested":
                    yield entry["code"]

    end = time.monotonic() + SECONDS
    meant = [f"print('cell', {number})" for number in range(10)]
    while not {*meant, "print('there is room')"} <= {*asked()} or (
        log.read_text().count("record is written again") != 1
    ):
        assert time.monotonic() < end, f"{[*asked()]}\n{log.read_text()}"
        client.pump(0.05)
    text = log.read_text()
    assert text.count("cannot write this proxy's record") <= 1, text
    assert [code for code in asked() if "cell" in code] == meant, [*asked()]


def main():
    options = arguments()
    log, filler = pathlib.Path(".nb/proxy.log"), pathlib.Path(".nb/filler")
    path = connection_file()
    with process(options.kernel, path) as child, Client(path) as client:
        client.get_ready()
        assert client.run("print(1)") == "1\n"
        fill(filler)
        before = log.stat().st_size
        for number in range(10):
            assert client.run(f"print('cell', {number})") == f"cell {number}\n"
            with Client(path) as other:
                other.get_ready()
        say(f"the log grew by {log.stat().st_size - before} bytes on the full disk")
        filler.unlink()
        assert client.run("print('there is room')") == "there is room\n"
        is_written_again(log, client)

        with stalled(path) as bare:
            # Cell by cell: a client that reads is never behind by more than one message.
            chunks = 30
            for _ in range(chunks):
                printed = client.run(f"print('y' * {MEGABYTE}, end='', flush=True)")
                assert len(printed) == MEGABYTE, f"{len(printed)} bytes of a cell arrived"
            bare.settimeout(SECONDS)
            read = 0
            with contextlib.suppress(ConnectionError):
                while got := bare.recv(MEGABYTE):
                    read += len(got)
            assert read < chunks * MEGABYTE, "nothing was cut"
        end = time.monotonic() + SECONDS
        while "could not be written to disk" not in (text := log.read_text()):
            assert time.monotonic() < end, text
            client.pump(0.01)
        assert "a subscriber's connection ended" in text, text
        is_notified(path, client)
        assert child.poll() is None
        assert client.run("print('on')") == "on\n"
        say("\n".join(line for line in text.splitlines() if " WARN " in line))


main()

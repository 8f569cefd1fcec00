"""Connections and kernels that break off halfway, on real sockets: other clients are still served, and
no resources are kept.

The kernel is stopped and continued; connections are half open, replaced, made a thousand times, stop
within a frame; a thousand clients come, work and leave. At the end the process has as many open files as
at the beginning.
"""

import contextlib
import os
import signal
import socket
import struct
import time
import uuid

import bad_input
import zmq
from bad_input import GREETING, ready
from launch import PLAIN, SECONDS, arguments, endpoint, say, state
from raw import Client, connection_file, message, process, stdout


class Place(bad_input.Place):
    def descriptors(self):
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def until_descriptors(self, wanted, after):
        """Waits until at most so many are open; connections take some time to close."""
        end = time.monotonic() + SECONDS
        while (count := self.descriptors()) > wanted:
            assert time.monotonic() < end, f"{after}: {count} descriptors, {wanted} before"
            self.client.pump(0.01)

    def dial(self, channel, identity):
        """Returns a bare connection that has sent its READY and received the other's."""
        bare = self.call(channel, identity)
        hears(bare, b"READY", "a handshake")
        return bare

    def call(self, channel, identity):
        """Returns a bare connection that has sent its READY."""
        bare = socket.create_connection(self.address(channel), timeout=SECONDS)
        kind = b"SUB" if channel == "iopub" else b"DEALER"
        bare.sendall(GREETING + ready(kind, Identity=identity))
        return bare

    def request(self, kind, content=None):
        """Returns one signed request as bytes of the wire, and its id."""
        frames, request = message(self.client.key, uuid.uuid4().hex, kind, content or {})
        wire = b""
        for number, frame in enumerate(frames):
            more = 1 if number + 1 < len(frames) else 0
            wire += struct.pack(">BQ", 2 | more, len(frame)) + frame
        return wire, request.encode()


def hears(bare, request, after):
    """Reads until the answer to this request has come."""
    received = b""
    while request not in received:
        got = bare.recv(1 << 16)
        assert got, f"{after}: cut, having sent {received[-200:]}"
        received += got


def stopped(place, plain):
    """SIGSTOP: a client that connects is accepted all the same, and nothing is lost after SIGCONT."""
    pid = place.child.pid if plain else state()["kernel_pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        asked = [place.client.execute(f"print('late {n}')") for n in range(20)]
        if not plain:
            with Client(place.path) as other:
                other.get_ready()
    finally:
        os.kill(pid, signal.SIGCONT)
    for number, request in enumerate(asked):
        reply, iopub = place.client.finish(request)
        assert reply.content["status"] == "ok", reply
        assert stdout(iopub) == f"late {number}\n", iopub


def half_open(place):
    """One client that shuts down its sending side and stays, and one that never sends anything again."""
    through, silent = place.dial("shell", b"through"), place.dial("shell", b"silent")
    wire, request = place.request("kernel_info_request")
    through.sendall(wire)
    hears(through, request, "half open")
    through.shutdown(socket.SHUT_WR)
    place.still_served("half open")
    assert through.recv(1) == b"", "the other half is closed, too"
    through.close()
    silent.close()


def in_mid_frame(place):
    """A message of which half has come delays nobody, and is received when the rest comes."""
    bare = place.dial("shell", b"halting")
    wire, request = place.request("kernel_info_request", {"padding": "x" * 100_000})
    bare.sendall(wire[:50_000])
    place.still_served("half a frame")
    bare.sendall(wire[50_000:])
    hears(bare, request, "the other half")
    bare.sendall(wire[: len(wire) // 2])
    bare.close()
    place.still_served("half a frame, and gone")


def one_identity(place):
    """A replaced connection that closes late takes nothing from the new one."""
    for end in ("close", "reset"):
        old = place.dial("shell", b"twin")
        wire, request = place.request("kernel_info_request")
        old.sendall(wire)
        hears(old, request, "the first twin")
        new = place.dial("shell", b"twin")
        code = {"code": "import time; time.sleep(0.2)", "store_history": False, "silent": True}
        wire, request = place.request("execute_request", code)
        new.sendall(wire)
        place.still_served("two of one identity")
        if end == "reset":
            old.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        old.close()
        hears(new, request, f"the second twin, after the first one's {end}")
        wire, request = place.request("kernel_info_request")
        new.sendall(wire)
        hears(new, request, "the second twin, once more")
        new.close()


def reconnects(place):
    """One identity that connects a thousand times, replacing itself, and sends a request now and then."""
    before = place.descriptors()
    for number in range(100):
        bares = [place.call("shell", b"restless") for _ in range(10)]
        # Any of them may be the one that was kept; a new one certainly is.
        for bare in bares:
            bare.close()
        if number % 10 == 0:
            wire, request = place.request("kernel_info_request")
            with place.dial("shell", b"restless") as bare:
                bare.sendall(wire)
                hears(bare, request, f"connection {10 * number}")
    # The client is remembered for a while, with its own shell and stdin sockets to the kernel.
    place.until_descriptors(before + 2, "1,000 reconnects")
    place.still_served("1,000 reconnects")


def pings(place):
    """A client that sends PING every 200 ms keeps its connection, whatever the kernel does."""
    context = zmq.Context.instance()
    address, key = endpoint(place.path, "shell")
    with context.socket(zmq.DEALER) as beating:
        beating.linger = 0
        beating.heartbeat_ivl, beating.heartbeat_timeout = 200, 5000
        monitor = beating.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED)
        beating.connect(address)
        frames, _ = message(key, "beating", "kernel_info_request", {})
        beating.send_multipart(frames)
        assert beating.poll(SECONDS * 1000), "no answer"
        beating.recv_multipart()
        place.client.run("import time; time.sleep(1)")
        frames, _ = message(key, "beating", "kernel_info_request", {})
        beating.send_multipart(frames)
        assert beating.poll(SECONDS * 1000), "no answer after the pings"
        assert not monitor.poll(0), "its connection was lost"
        beating.disable_monitor()


def thousand(place):
    """1,000 clients, fifty at a time: each sends a request, gets its answer, and leaves."""
    before = place.descriptors()
    for batch in range(20):
        with contextlib.ExitStack() as stack:
            asked = []
            for _ in range(50):
                # A client that announces no identity is forgotten as soon as it has left.
                shell, iopub = (place.call(channel, b"") for channel in ("shell", "iopub"))
                stack.enter_context(shell)
                stack.enter_context(iopub)
                wire, request = place.request("kernel_info_request")
                shell.sendall(wire)
                asked.append((shell, request))
            for shell, request in asked:
                hears(shell, request, f"batch {batch}")
    place.until_descriptors(before, "1,000 clients")
    place.still_served("1,000 clients")


def main():
    options = arguments()
    plain = options.kernel == PLAIN
    path = connection_file()
    with process(options.kernel, path) as child:
        place = Place(child, path)
        with place.client:
            before = place.descriptors()
            tests = [stopped, half_open, in_mid_frame, one_identity, reconnects, pings, thousand]
            if plain:  # libzmq's own ends of the others are not tested
                tests = [stopped]
            for test in tests:
                began = time.monotonic()
                test(*([place, plain] if test is stopped else [place]))
                say(f"{test.__name__}: {time.monotonic() - began:.1f} s")
            place.still_served("all of it")
            left = place.descriptors()
            say(f"{before} descriptors at first, {left} at the end")


main()

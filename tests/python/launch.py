"""Launches a kernelspec as a front end does, and finds the kernel that is really behind it.

Every script here takes the kernelspec's name: with "python3" it runs against a plain ipykernel, which is
the reference; with "nb-shared" it runs through the installed proxy on the kernel that `nb open` keeps
alive in the working directory's project. Whatever holds for the first must hold for the second.
"""

import argparse
import contextlib
import faulthandler
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import time
from socket import create_server

import zmq
from jupyter_client import AsyncKernelManager, BlockingKernelClient, KernelManager

PLAIN = "python3"
# Generous, as the machine may have two cores and other work.
SECONDS = 60
DELIMITER = b"<IDS|MSG>"
CHANNELS = ("shell", "control", "stdin", "iopub", "hb")


def ports_in_turns(first, end):
    """Returns the ports of a range in turns, again and again, from a random one on."""
    start = random.randrange(first, end)
    return itertools.cycle([*range(start, end), *range(first, start)])


PORTS = ports_in_turns(*map(int, os.environ.get("NB_TEST_PORTS", "10000-32000").split("-")))


def arguments(**extra):
    """Reads `--kernel` and the given numbers or words (name=default) from the command line.

    A script that hangs prints where, and ends.
    """
    faulthandler.dump_traceback_later(5 * SECONDS, exit=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernel", default=PLAIN)
    for name, default in extra.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)
    return parser.parse_args()


def free_ports(count):
    """Returns ports that are free now and not reserved, as front ends find them.

    They are among those that NB_TEST_PORTS gives to this script alone, and each is given once, so that no other process
    takes it before the kernel binds it.
    """
    held = []
    while len(held) < count:
        with contextlib.suppress(OSError):
            held.append(create_server(("127.0.0.1", next(PORTS))))
    ports = [port_socket.getsockname()[1] for port_socket in held]
    for port_socket in held:
        port_socket.close()
    return ports


def own_ports():
    """Returns ports of this script for a kernel manager, which otherwise takes any that are free at that moment."""
    ports = dict(zip((f"{channel}_port" for channel in CHANNELS), free_ports(5)))
    return {"cache_ports": False, **ports}


class OwnPortsManager(AsyncKernelManager):
    """The kernel manager of a client that makes its own."""

    def __init__(self, **traits):
        super().__init__(**own_ports(), **traits)


@contextlib.contextmanager
def launched(kernel, **start):
    """Launches the kernelspec; at the end of the block its process is ended in any case."""
    manager = KernelManager(kernel_name=kernel, **own_ports())
    manager.start_kernel(**start)
    try:
        yield manager
    finally:
        if manager.has_kernel:
            manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


@contextlib.contextmanager
def joined(connection_file, ready=True):
    """A client with its own identity on that connection file."""
    client = BlockingKernelClient(connection_file=str(connection_file))
    client.load_connection_file()
    client.start_channels(hb=False)
    try:
        if ready:
            client.wait_for_ready(timeout=SECONDS)
        yield client
    finally:
        client.stop_channels()


def state():
    """Returns the project's state, as `nb` stores it."""
    return json.loads(pathlib.Path(".nb/state.json").read_text())


def kernels_own(manager):
    """Returns the connection file on which the kernel itself listens."""
    if manager.kernel_name == PLAIN:
        return manager.connection_file
    return state()["connection_file"]


def endpoint(connection_file, channel):
    """Returns the ZMQ address of one channel of a connection file, and the file's key."""
    info = json.loads(pathlib.Path(connection_file).read_text())
    port = info[f"{channel}_port"]
    if info["transport"] == "ipc":
        return f"ipc://{info['ip']}-{port}", info["key"].encode()
    return f"tcp://{info['ip']}:{port}", info["key"].encode()


def subscriber(connection_file):
    """A raw subscriber to everything on iopub, without a high-water mark: what it misses was lost by
    others."""
    address, _ = endpoint(connection_file, "iopub")
    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.linger = 0
    socket.rcvhwm = 0
    socket.subscribe(b"")
    socket.connect(address)
    return socket


class Message:
    """One Jupyter message as the frames in which it came."""

    def __init__(self, frames):
        at = frames.index(DELIMITER)
        self.frames = frames
        self.signature = frames[at + 1]
        self.unsigned = frames[: at + 1] + frames[at + 2 :]
        self.header, self.parent, self.metadata, self.content = (
            json.loads(part) for part in frames[at + 2 : at + 6]
        )
        self.buffers = frames[at + 6 :]

    @property
    def type(self):
        return self.header["msg_type"]

    def is_idle_of(self, request):
        return (
            self.type == "status"
            and self.content["execution_state"] == "idle"
            and self.parent.get("msg_id") == request
        )

    def __repr__(self):
        return f"{self.type} of {self.parent.get('msg_id')}: {str(self.content)[:200]}"


def receive(socket, seconds=SECONDS):
    """Returns the next message of a raw socket."""
    if not socket.poll(int(seconds * 1000)):
        raise AssertionError(f"no message within {seconds} s on {socket.last_endpoint}")
    return Message(socket.recv_multipart())


def until_idle(socket, request, seconds=SECONDS):
    """Returns all messages of a raw iopub socket up to the idle of that request, which is the last."""
    received = []
    end = time.monotonic() + seconds
    while not (received and received[-1].is_idle_of(request)):
        left = end - time.monotonic()
        if left <= 0 or not socket.poll(int(left * 1000)):
            raise AssertionError(f"no idle of {request} within {seconds} s; received: {received[-20:]}")
        received.append(Message(socket.recv_multipart()))
    return received


def prove_subscription(client, *sockets):
    """Runs empty cells until every raw subscriber has seen one of them to its end.

    A subscription takes effect some time after the connect, and nothing on the wire says when.
    """
    waiting = list(sockets)
    while True:
        request = client.execute("pass", silent=True)
        reply_to(client, request)
        missed = []
        for socket in waiting:
            try:
                until_idle(socket, request, seconds=2)
            except AssertionError:
                missed.append(socket)
        if not missed:
            break
        # Sockets that saw this cell must discard the next one too, so that all begin at the same message.
        waiting = list(sockets)
        for socket in sockets:
            while socket.poll(0):
                socket.recv_multipart()


def outputs(client, request, seconds=SECONDS):
    """Returns the iopub messages of one request, busy to idle, of a jupyter_client client."""
    received = []
    end = time.monotonic() + seconds
    while True:
        message = client.get_iopub_msg(timeout=max(0.001, end - time.monotonic()))
        if message["parent_header"].get("msg_id") != request:
            continue
        received.append(message)
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            return received


def reply_to(client, request, seconds=SECONDS):
    """Returns the shell reply to that request; others (wait_for_ready's late ones) are skipped."""
    end = time.monotonic() + seconds
    while True:
        message = client.get_shell_msg(timeout=max(0.001, end - time.monotonic()))
        if message["parent_header"].get("msg_id") == request:
            return message


def evaluate(client, expression, seconds=SECONDS):
    """Returns the value of one Python expression in the kernel."""
    request = client.execute(
        "", user_expressions={"value": f"__import__('json').dumps({expression})"}, silent=False
    )
    reply = reply_to(client, request, seconds)
    value = reply["content"]["user_expressions"]["value"]
    assert value["status"] == "ok", value
    return json.loads(eval(value["data"]["text/plain"]))  # a repr of a str


def run(client, code, seconds=SECONDS):
    """Runs one cell; returns its reply's content and its stdout text. It must succeed."""
    request = client.execute(code)
    received = outputs(client, request, seconds)
    reply = reply_to(client, request, seconds)["content"]
    assert reply["status"] == "ok", f"{code!r} failed: {reply}"
    text = "".join(
        m["content"]["text"]
        for m in received
        if m["msg_type"] == "stream" and m["content"]["name"] == "stdout"
    )
    return reply, text


def nb(*words, expect=0, **run_options):
    """Runs the `nb` under test and returns its stdout."""
    done = subprocess.run(
        [os.environ["NB_TEST_BINARY"], *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
        **run_options,
    )
    if expect is not None and done.returncode != expect:
        raise AssertionError(
            f"nb {' '.join(map(str, words))} exited {done.returncode}, expected {expect}\n"
            f"stdout: {done.stdout}\nstderr: {done.stderr}"
        )
    return done.stdout


def until(condition_name, condition):
    """Repeats the condition until it holds; returns its value."""
    end = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, f"never: {condition_name}"
        time.sleep(0.002)
    return found


def say(*words):
    """Prints a line for the test's log, in order with a failure's traceback."""
    print(*words, file=sys.stderr, flush=True)

"""A plain proxy on pyzmq, as a user might write it: a thread for each channel, hmac for the signatures.

pyzmq_proxy.py FRONT KERNEL     serves the connection file FRONT with the kernel of KERNEL until it is killed
"""

import hashlib
import hmac
import json
import sys
import threading

import zmq

front, kernel = (json.load(open(path)) for path in sys.argv[1:])
context = zmq.Context()
DELIMITER = b"<IDS|MSG>"


def address(info, channel):
    port = info[f"{channel}_port"]
    if info["transport"] == "ipc":
        return f"ipc://{info['ip']}-{port}"
    return f"tcp://{info['ip']}:{port}"


def signer(info):
    keyed = hmac.new(info["key"].encode(), digestmod=hashlib.sha256)

    def sign(parts):
        state = keyed.copy()
        for part in parts:
            state.update(part)
        return state.hexdigest().encode()

    return sign


def open_sockets(channel, clients, own):
    clients, own = context.socket(clients), context.socket(own)
    for socket in (clients, own):
        socket.linger = 0
        socket.set_hwm(0)  # by default messages are dropped silently
    if own.type == zmq.DEALER:
        own.identity = b"proxy"  # a kernel sends stdin requests only to identities that it knows from shell
    if own.type == zmq.SUB:
        own.subscribe(b"")
    clients.bind(address(front, channel))
    own.connect(address(kernel, channel))
    return clients, own


def resigned(frames, verify, sign):
    at = frames.index(DELIMITER)
    parts = frames[at + 2 : at + 6]
    if not hmac.compare_digest(frames[at + 1], verify(parts)):
        return None
    frames[at + 1] = sign(parts)
    return frames


def run(channel, kinds):
    clients, own = open_sockets(channel, *kinds)
    for_clients, for_kernel = signer(front), signer(kernel)
    poller = zmq.Poller()
    poller.register(own, zmq.POLLIN)
    if clients.type == zmq.ROUTER:
        poller.register(clients, zmq.POLLIN)
    while True:
        for socket, _ in poller.poll():
            frames = socket.recv_multipart()
            if socket is own:
                to, verify, sign = clients, for_kernel, for_clients
            else:
                to, verify, sign = own, for_clients, for_kernel
            if channel != "hb":
                frames = resigned(frames, verify, sign)
            if frames:
                to.send_multipart(frames)


KINDS = {channel: (zmq.ROUTER, zmq.DEALER) for channel in ("shell", "control", "stdin", "hb")}
KINDS["iopub"] = (zmq.PUB, zmq.SUB)
threads = [threading.Thread(target=run, args=each) for each in KINDS.items()]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

"""Three clients at once on one kernel: two through one launched kernelspec, one directly on it.

Every reply and every prompt reaches only the client that asked, and a subscriber of the launched
kernelspec receives on iopub, apart from signatures, exactly the bytes that a subscriber of the kernel
itself receives.
"""

import collections
import time
import uuid

import zmq
from launch import (
    SECONDS,
    Message,
    arguments,
    joined,
    kernels_own,
    launched,
    prove_subscription,
    say,
    subscriber,
)

IN_FLIGHT = 3
EVERY_PROMPT = 20
EVERY_COMM = 50


class Asker:
    """One client with its outstanding requests and the answers that it has to give."""

    def __init__(self, name, client, count):
        self.name, self.client, self.count = name, client, count
        self.sent = 0
        self.outstanding = collections.OrderedDict()
        self.answers = {}
        self.controls = set()
        self.prompts = 0

    def ask(self):
        """Sends requests until the window is full."""
        while self.sent < self.count and len(self.outstanding) < IN_FLIGHT:
            number, self.sent = self.sent, self.sent + 1
            mark = f"{self.name}-{number}"
            if number % EVERY_PROMPT == 7:
                code = f"value = input('{mark}? ')\nprint(value)"
                mark = uuid.uuid4().hex
            elif number % EVERY_COMM == 11:
                code = (
                    "from comm import create_comm\n"
                    f"c = create_comm(target_name='none', data={{'mark': '{mark}'}},"
                    f" buffers=[b'\\x00{mark}\\xff', b''])\nc.close(); value = '{mark}'"
                )
            else:
                code = f"import sys\nvalue = '{mark}'\nprint(value); print(value, file=sys.stderr)\nvalue"
            request = self.client.execute(
                code, allow_stdin=True, stop_on_error=False, user_expressions={"value": "value"}
            )
            self.outstanding[request] = mark
            if number % EVERY_PROMPT == 7:
                self.answers[request] = mark
            if number % EVERY_PROMPT == 13:
                message = self.client.session.msg("kernel_info_request")
                self.controls.add(message["header"]["msg_id"])
                self.client.control_channel.send(message)

    def shell(self):
        reply = self.client.get_shell_msg(timeout=0)
        request = reply["parent_header"]["msg_id"]
        own = reply["parent_header"]["session"] == self.client.session.session
        if own and reply["msg_type"] == "kernel_info_reply":
            return  # a late one: wait_for_ready sends a request every second until it has a reply
        assert request in self.outstanding, f"{self.name} got somebody else's reply: {reply}"
        first = next(iter(self.outstanding))
        assert request == first, f"{self.name}: reply to {request} before the one to {first}"
        mark = self.outstanding.pop(request)
        assert reply["content"]["status"] == "ok", reply["content"]
        value = reply["content"]["user_expressions"]["value"]["data"]["text/plain"]
        assert value == repr(mark), f"{self.name}: expected {mark}, the kernel had {value}"

    def stdin(self):
        prompt = self.client.get_stdin_msg(timeout=0)
        request = prompt["parent_header"]["msg_id"]
        assert request in self.answers, f"{self.name} got somebody else's prompt: {prompt}"
        assert prompt["content"]["prompt"].startswith(self.name + "-"), prompt["content"]
        self.client.input(self.answers.pop(request))
        self.prompts += 1

    def control(self):
        reply = self.client.get_control_msg(timeout=0)
        request = reply["parent_header"]["msg_id"]
        assert request in self.controls, f"{self.name} got somebody else's control reply: {reply}"
        self.controls.remove(request)

    def done(self):
        return self.sent == self.count and not (self.outstanding or self.answers or self.controls)


def main():
    options = arguments(count=500)
    with launched(options.kernel) as manager:
        own = kernels_own(manager)
        with (
            joined(manager.connection_file) as first,
            joined(manager.connection_file) as second,
            joined(own) as third,
        ):
            compare(options.count, manager.connection_file, own, first, second, third)


class Published:
    """What both subscribers have received.

    A request for the kernel's info that a busy kernel does not answer in time is answered by the proxy, which then drops
    the kernel's own late answer: what was published for such a request is left out on both sides.
    """

    def __init__(self, through, straight):
        self.received = {through: [], straight: []}
        self.through, self.straight = self.received.values()
        self.answered_by_proxy = set()

    def receive(self, socket):
        message = Message(socket.recv_multipart())
        if message.frames[0].startswith(b"kernel.nb-proxy-"):
            self.answered_by_proxy.add(message.parent["msg_id"])
        elif message.type == "nb_facts":
            assert self.received[socket] is self.straight, "a front end gets what only `nb` asks for"
        else:
            self.received[socket].append(message)

    def of_kernel(self):
        """Returns the messages of both sides, but for those of requests that the proxy has answered."""
        return [
            [m for m in messages if m.parent.get("msg_id") not in self.answered_by_proxy]
            for messages in self.received.values()
        ]


def compare(count, front, own, first, second, third):
    through, straight = subscriber(front), subscriber(own)
    prove_subscription(third, through, straight)
    askers = [Asker(n, c, count) for n, c in zip("ABC", (first, second, third))]
    poller = zmq.Poller()
    handlers = {}
    for asker in askers:
        for channel in ("shell", "stdin", "control"):
            socket = getattr(asker.client, f"{channel}_channel").socket
            handlers[socket] = getattr(asker, channel)
        # The clients' own subscriptions are read too: an unread one would be a slow reader.
        iopub = asker.client.iopub_channel.socket
        handlers[iopub] = lambda socket=iopub: socket.recv_multipart()
    published = Published(through, straight)
    for socket in (through, straight):
        handlers[socket] = lambda s=socket: published.receive(s)
    for socket in handlers:
        poller.register(socket, zmq.POLLIN)

    def turn():
        ready = poller.poll(SECONDS * 1000)
        assert ready, (
            f"nothing for {SECONDS} s; iopub: {len(published.through)} messages through,"
            f" {len(published.straight)} straight; "
            + "; ".join(
                f"{a.name}: sent {a.sent}, waiting for {dict(a.outstanding)} {a.answers} {a.controls}"
                for a in askers
            )
        )
        for socket, _ in ready:
            handlers[socket]()

    began = time.monotonic()
    while not all(asker.done() for asker in askers):
        for asker in askers:
            asker.ask()
        turn()
    took = time.monotonic() - began

    # Both subscribers have received everything once they have the end of a last request. What the kernel publishes of
    # the control channel may follow it.
    last = third.execute("value = 'end'", user_expressions={"value": "value"})
    askers[2].outstanding[last] = "end"
    while not all(any(m.is_idle_of(last) for m in side) for side in (published.through, published.straight)):
        turn()
    while len(set(map(len, published.of_kernel()))) > 1:
        turn()
    through_messages, straight_messages = published.of_kernel()

    for index, (got, wanted) in enumerate(zip(through_messages, straight_messages)):
        assert got.unsigned == wanted.unsigned, (
            f"iopub message {index} of {len(straight_messages)} differs:\nthrough:  {got.unsigned}\nstraight: {wanted.unsigned}"
        )
    assert sum(len(m.buffers) for m in straight_messages) > 0, "no message with buffers was among them"
    prompts = sum(asker.prompts for asker in askers)
    assert prompts == 3 * sum(1 for n in range(count) if n % EVERY_PROMPT == 7)
    say(
        f"3 x {count} executes, {prompts} prompts, {len(straight_messages)} iopub messages byte-equal,"
        f" {took:.1f} s"
    )


main()

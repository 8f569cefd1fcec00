"""A front end on the kernel of a chat, on jupyter_client alone.

It runs the cells of a JSON list, in the file that is its argument, and prints what came of them as JSON: for each cell its status, its
error, its printed text, the displays as they are in the end, the questions, and the times of the displays.
A cell is an object with `code`, and maybe `answers` (to the questions, in order; without them stdin is not
allowed), `interrupt` (a text of the outputs at which to interrupt), `kill` (a text at which to kill the process
whose command has the word in `victim`), `restart` (before the cell). Instead of `code` it can have `complete`, or `both`: two
cells that two front ends run at the same time; then `answers` are those of the second one.
"""

import json
import os
import queue
import signal
import sys
import time

from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

SECONDS = 120


def victims(word):
    home = os.environ["HOME"]
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            command = open(f"/proc/{entry}/cmdline", "rb").read().decode(errors="replace")
            environment = open(f"/proc/{entry}/environ", "rb").read().decode(errors="replace")
        except OSError:
            continue
        if word in command and f"HOME={home}\0" in environment + "\0" and int(entry) != os.getpid():
            yield int(entry)


def memory(process):
    """Returns the largest resident size that a process has had, in MiB."""
    for line in open(f"/proc/{process}/status", encoding="utf-8"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024


class FrontEnd:
    def __init__(self):
        self.manager = KernelManager(kernel_name="nb-chat")
        self.start()

    def start(self):
        self.manager.start_kernel()
        self.connect()

    def connect(self):
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=SECONDS)

    def run(self, cell):
        if cell.get("restart"):
            self.client.stop_channels()
            self.manager.restart_kernel(now=cell["restart"] == "now")
            self.connect()
        answers = list(cell.get("answers", []))
        asked = []
        request = self.client.execute(cell["code"], allow_stdin="answers" in cell)
        result = {"printed": "", "error": None, "displays": {}, "questions": asked, "times": [], "order": []}
        deadline = time.monotonic() + SECONDS
        done = False
        pending = {name: cell.get(name) for name in ("interrupt", "kill")}
        while not done and time.monotonic() < deadline:
            try:
                message = self.client.get_iopub_msg(timeout=0.02)
            except queue.Empty:
                message = None
            if message and message["parent_header"].get("msg_id") == request:
                done = self.take(message, result)
            try:
                question = self.client.get_stdin_msg(timeout=0)
                asked.append(question["content"]["prompt"])
                if answers:
                    self.client.input(answers.pop(0))
            except queue.Empty:
                pass
            progress = json.dumps([result["displays"], asked])
            if pending["interrupt"] and pending["interrupt"] in progress:
                pending["interrupt"] = None
                self.manager.interrupt_kernel()
            if pending["kill"] and pending["kill"] in progress:
                pending["kill"] = None
                for victim in victims(cell["victim"]):
                    os.kill(victim, signal.SIGKILL)
                if cell["victim"] == "chat-kernel":
                    self.client.stop_channels()
                    self.manager.restart_kernel(now=True)
                    self.connect()
                    result["status"] = "killed"
                    return result
        assert done, f"the cell did not end: {cell} {result}"
        while True:
            reply = self.client.get_shell_msg(timeout=SECONDS)
            if reply["parent_header"].get("msg_id") == request:
                break
        result["status"] = reply["content"]["status"]
        result["megabytes"] = [memory(kernel) for kernel in victims("chat-kernel")]
        return result

    def run_both(self, cell):
        """Returns for each front end: the reply's status, its questions, and what it saw of its own cell and of the other's."""
        other = BlockingKernelClient(connection_file=self.manager.connection_file)
        other.load_connection_file()
        other.start_channels()
        other.wait_for_ready(timeout=SECONDS)
        clients = [self.client, other]
        requests = [client.execute(code, allow_stdin=True) for client, code in zip(clients, cell["both"])]
        answers = list(cell.get("answers", []))
        results = [{"questions": [], "seen": ["", ""], "order": []} for _ in clients]
        idle = [set(), set()]
        deadline = time.monotonic() + SECONDS
        while any(len(ended) < 2 for ended in idle):
            assert time.monotonic() < deadline, f"the cells did not end: {results}"
            for client, result, ended in zip(clients, results, idle):
                try:
                    message = client.get_iopub_msg(timeout=0.02)
                    if message["parent_header"].get("msg_id") in requests:
                        at = requests.index(message["parent_header"]["msg_id"])
                        content = message["content"]
                        if "data" in content:
                            result["seen"][at] = content["data"]["text/plain"]
                        if state := content.get("execution_state"):
                            result["order"].append([at, state])
                        if state == "idle":
                            ended.add(at)
                except queue.Empty:
                    pass
                try:
                    result["questions"].append(client.get_stdin_msg(timeout=0)["content"]["prompt"])
                    client.input(answers.pop(0))
                except queue.Empty:
                    pass
        for client, request, result in zip(clients, requests, results):
            reply = client.get_shell_msg(timeout=SECONDS)
            assert reply["parent_header"]["msg_id"] == request
            result["status"] = reply["content"]["status"]
        other.stop_channels()
        return results

    def take(self, message, result):
        content = message["content"]
        kind = message["msg_type"]
        if kind in ("display_data", "update_display_data"):
            key = content["transient"]["display_id"]
            assert (kind == "display_data") == (key not in result["displays"]), kind
            result["displays"][key] = content["data"]
            result["times"].append(time.monotonic())
            result["order"].append(kind)
        elif kind == "stream":
            result["printed"] += content["text"]
        elif kind == "error":
            result["error"] = [content["ename"], *content["traceback"]]
        return kind == "status" and content["execution_state"] == "idle"

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel()


front_end = FrontEnd()
results = []
with open(sys.argv[1], encoding="utf-8") as file:
    cells = json.load(file)
for cell in cells:
    if "complete" in cell:
        reply = front_end.client.complete(cell["complete"], reply=True, timeout=SECONDS)
        results.append(reply["content"]["matches"])
    elif "both" in cell:
        results.append(front_end.run_both(cell))
    else:
        results.append(front_end.run(cell))
front_end.close()
json.dump(results, sys.stdout)

"""Runs texts on a real kernel that says what each of them did: each line of stdin is a request.

A request has, in this order: `forget`, whether the kernel begins anew in an empty folder; `unbind`, variables to
delete; `run`, texts to run, each in a request of its own; `look`, whether the answer has the variables; `play`, texts to
run as `graph.py` does. The argument is the file of the witness, with the facts that are switched off after it.
"""

import json
import sys

from graph import IN_KERNEL, kernel_on_sockets

START = '''
import sys
from IPython import get_ipython

space = {"__name__": "nb_witness"}
with open(%r) as file:
    exec(compile(file.read(), "nb_witness", "exec"), space)
# However slow this machine is, all is looked at.
space["SECONDS"] = 60
blind = {"fingerprints": {"print": "0"}, "functions": {"reach": frozenset(), "stores": frozenset()},
         "sharing": {"parts": frozenset()}}
begin = space["Record"].__init__


def without(record, look):
    begin(record, look)
    for off in %r:
        for name, value in blind[off].items():
            setattr(record, name, value)


space["Record"].__init__ = without
sys.modules["player"].witness = space["start_in_kernel"](get_ipython())
'''


def main():
    manager, client = kernel_on_sockets()
    try:
        silently(client, "exec(" + repr(IN_KERNEL) + ", {})")
        silently(client, "exec(" + repr(START % (sys.argv[1], sys.argv[2:])) + ", {})")
        for line in sys.stdin:
            print(json.dumps(answer(client, json.loads(line))), flush=True)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def answer(client, request):
    if request["forget"]:
        silently(client, "[__import__('player').forget(), __import__('player').witness.forget()]")
    if request["unbind"]:
        silently(client, f"__import__('player').witness.unbind({request['unbind']})")
    runs = [run(client, text) for text in request["run"]]
    values = None
    if request["look"]:
        values = json.loads(silently(client, "__import__('player').look_all()"))
    truth = None
    if request["play"] is not None:
        truth = json.loads(silently(client, f"__import__('player').play_all([{request['play']!r}])"))[0]
    return {"runs": runs, "values": values, "truth": truth}


def run(client, text):
    """Runs a text as a front end does. Returns whether it ended well, its outputs as text, and its facts."""
    facts, outputs = [], []

    def hear(message):
        content = message["content"]
        if message["msg_type"] == "nb_facts":
            facts.append(content)
        elif message["msg_type"] == "stream":
            outputs.append(content["text"])
        elif message["msg_type"] in ("execute_result", "display_data"):
            outputs.append(content["data"].get("text/plain", ""))
        elif message["msg_type"] == "error":
            outputs.append(content["ename"])

    reply = client.execute_interactive(text, output_hook=hear, timeout=60)
    ended = reply["content"]["status"] == "ok"
    return {"ended": ended, "facts": facts[0] if facts else None, "output": "".join(outputs)}


def silently(client, code):
    """Runs code that no front end sees. Returns what it gives."""
    reply = client.execute_interactive(
        "None", silent=True, user_expressions={"it": code}, output_hook=lambda message: None, timeout=60
    )
    given = reply["content"]["user_expressions"]["it"]
    if given["status"] != "ok":
        sys.exit(str(given))
    # The repr of a text.
    return eval(given["data"]["text/plain"]) if "text/plain" in given["data"] else None


if __name__ == "__main__":
    main()

"""What a kernel of some language does through the proxy, for a front end that uses jupyter_client.

Prints one JSON object; the caller knows what each kernel can do.
"""

import json
import os
import pathlib
import time

from launch import SECONDS, arguments, joined, launched


def finish(client, request, answer=None, on_output=None, has_output=False, sign=None):
    """Waits for reply and idle; returns the reply's status, the outputs and the prompts.

    Outputs may come after idle (deno): if an output is expected, it is awaited. If outputs come only at
    the end (gnuplot), running code makes the file that `sign` names.
    """
    outputs, asked, idle = [], [], False
    end = time.monotonic() + SECONDS
    while not idle or (has_output and not outputs and time.monotonic() < end):
        try:
            message = client.get_iopub_msg(timeout=0.05)
        except Exception:  # nothing has come
            message = None
        if on_output and sign and pathlib.Path(sign).exists():
            on_output()
            on_output = None
        if answer is not None and not asked:
            try:
                asked.append(client.get_stdin_msg(timeout=0.05)["content"]["prompt"])
                client.input(answer)
            except Exception:
                pass
        if message is None or message["parent_header"].get("msg_id") != request:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            outputs.append(content["text"])
        elif kind in ("display_data", "execute_result"):
            outputs.append(str(content["data"].get("text/plain")))
        elif kind == "error":
            outputs.append(f"{content['ename']}: {content['evalue']}")
        elif kind == "status" and content["execution_state"] == "idle":
            idle = True
        if on_output and outputs:
            on_output()
            on_output = None
    while True:
        reply = client.get_shell_msg(timeout=SECONDS)
        if reply["parent_header"]["msg_id"] == request:
            return reply["content"].get("status"), "".join(outputs), asked


def main():
    options = arguments(notebook="", case="")
    case = json.loads(pathlib.Path(options.case).read_text())
    os.environ["JPY_SESSION_NAME"] = options.notebook
    result = {}
    with launched(options.kernel) as manager, joined(manager.connection_file) as client:
        status, text, _ = finish(client, client.execute(case["hello"]), has_output=True)
        result["hello"] = [status, text]
        status, text, _ = finish(client, client.execute(case["error"]))
        result["error"] = status
        code, cursor = case["complete"], len(case["complete"])
        # evcxr first reads its whole library.
        reply = client.complete(code, cursor, reply=True, timeout=3 * SECONDS)["content"]
        result["completes"] = case["completion"] in reply.get("matches", [])
        if case["input"]:
            request = client.execute(case["input"], allow_stdin=True)
            status, text, asked = finish(client, request, "Ada", has_output=True)
            result["input"] = [status, asked, text]
        if case["endless"]:
            request = client.execute(case["endless"])
            interrupt = manager.interrupt_kernel
            status, text, _ = finish(client, request, on_output=interrupt, sign=case["sign"])
            result["interrupt"] = status
            status, text, _ = finish(client, client.execute(case["hello"]), has_output=True)
            result["after"] = [status, text]
    print(json.dumps(result))


main()

"""An agent that waits for a cell is told that a person's debugger has stopped it."""

import json
import os

from launch import arguments, joined, launched, nb, say, until

CODE = "step = 1\nstep += 1\nprint('through', step)"


def main():
    options = arguments()
    nb("open", "t.ipynb", "--python", os.environ["NB_TEST_PYTHON"])
    nb("insert", "t.ipynb", CODE)
    os.environ["NB_NOTEBOOK"] = "t.ipynb"
    with launched(options.kernel) as manager, joined(manager.connection_file) as client:
        sequence = iter(range(1, 100))

        def debug(command, **words):
            content = {"type": "request", "seq": next(sequence), "command": command, "arguments": words}
            client.control_channel.send(client.session.msg("debug_request", content))
            return client.get_control_msg(timeout=60)["content"]

        debug("initialize", clientID="t", adapterID="", pathFormat="path", linesStartAt1=True, columnsStartAt1=True)
        debug("attach")
        path = debug("dumpCell", code=CODE)["body"]["sourcePath"]
        found = debug("setBreakpoints", source={"path": path}, breakpoints=[{"line": 2}], sourceModified=False)
        assert found["success"], found
        debug("configurationDone")
        job = json.loads(nb("exec", "-d", "t.ipynb", "0", "--json"))["job"]
        say(until("the agent is told", stopped))
        assert "stopped it at a breakpoint" in nb("wait", job, "--timeout", "0.2", "--json", expect=4)

        def thread():
            while True:
                message = client.get_iopub_msg(timeout=60)
                if message["msg_type"] == "debug_event" and message["content"]["event"] == "stopped":
                    return message["content"]["body"]["threadId"]

        debug("continue", threadId=thread())
        assert "through 2" in nb("wait", job)
        debug("disconnect", restart=False, terminateDebuggee=False)
    nb("shutdown", "--force")


def stopped():
    notes = json.loads(nb("jobs", "--json"))["jobs"][0].get("notes", [])
    return next((note for note in notes if "stopped it at a breakpoint" in note), None)


main()

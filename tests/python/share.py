"""A front end of a notebook that shares another's kernel uses that kernel, whatever happens to it."""

import contextlib
import json
import os

from launch import SECONDS, arguments, nb, say, until
from raw import Client, connection_file, process


def main():
    options = arguments()
    nb("open", "a.ipynb", "--select", "--python", os.environ["NB_TEST_PYTHON"])
    nb("open", "b.ipynb", "--kernel-of", "a.ipynb")
    with front_end(options.kernel, "a.ipynb") as a, front_end(options.kernel, "b.ipynb") as b:
        assert a.run("mine = 41") == ""
        assert b.run("mine += 1\nprint(mine)") == "42\n"
        say("two front ends of two notebooks are on one kernel")

        restarted = json.loads(nb("restart", "b.ipynb", "--force", "--json"))
        assert restarted["kernel_generation"] == 2, restarted
        for client in (a, b):
            assert pid(client) == restarted["kernel_pid"]
        say("a restart of one is both's")

        nb("shutdown", "b.ipynb")
        # The kernel lives on, so that only the changed record tells its front end.
        until("the front end of b.ipynb has no kernel", lambda: outcome(b, "1") == "error")
        assert pid(a) == restarted["kernel_pid"]
        nb("open", "b.ipynb")
        assert pid(b) == restarted["kernel_pid"]
        say("letting go ends nothing, and is undone by opening")

        stopped = json.loads(nb("shutdown", "a.ipynb", "--force", "--json"))
        assert stopped["shared_with"] == ["b.ipynb"], stopped
        (note,) = stopped["notes"]
        assert "while a front end shows it" in note and "python3" in note, note
        assert outcome(a, "1") == outcome(b, "1") == "error"
        own = json.loads(nb("open", "b.ipynb", "--own", "--json"))
        assert pid(b) == own["kernel_pid"]
        assert outcome(a, "1") == "error"
        nb("shutdown", "b.ipynb", "--force")


@contextlib.contextmanager
def front_end(kernel, notebook):
    path = connection_file()
    os.environ["NB_NOTEBOOK"] = notebook
    with process(kernel, path) as child:
        del os.environ["NB_NOTEBOOK"]
        with Client(path) as client:
            client.get_ready()
            yield client
            child.terminate()
            child.wait(SECONDS)


def outcome(client, code):
    reply, _ = client.finish(client.execute(code))
    return reply.content["status"]


def pid(client):
    return int(client.run("import os\nprint(os.getpid())"))


if __name__ == "__main__":
    main()

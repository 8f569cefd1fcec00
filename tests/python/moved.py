"""A front end stays on the kernel of a notebook that is moved, also while its cell runs."""

import json
import os
import pathlib

from launch import arguments, nb, say
from share import front_end, pid


def main():
    options = arguments()
    nb("open", "a.ipynb", "--select", "--python", os.environ["NB_TEST_PYTHON"])
    with front_end(options.kernel, "a.ipynb") as client:
        before = pid(client)
        code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('through')"
        running = client.execute(code)
        moved = json.loads(nb("mv", "a.ipynb", "b.ipynb", "--json"))
        assert moved["kernel_pid"] == before, moved
        assert any("may still show a.ipynb" in note for note in moved["notes"]), moved
        pathlib.Path("go").touch()
        reply, published = client.finish(running)
        assert reply.content["status"] == "ok", reply.content
        assert any("through" in str(message.content) for message in published), published
        assert pid(client) == before
        say("the cell goes on, and the front end is on the same kernel")

        log = nb("log", "b.ipynb")
        assert "import os, time" in log and ": it failed" not in log, log
        status = json.loads(nb("status", "b.ipynb", "--json"))
        assert len(status["sessions"][0]["joined"]) == 1, status
        say("its run is in the log of the new name, and it is listed there as joined")

        restarted = json.loads(nb("restart", "b.ipynb", "--force", "--json"))
        assert pid(client) == restarted["kernel_pid"] != before
        say("a restart under the new name is the front end's, too")
    nb("shutdown", "b.ipynb", "--force")


main()

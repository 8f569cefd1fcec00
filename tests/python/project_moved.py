"""A project's folder is moved while a front end is joined: the front end and its runs go along, and come back."""

import json
import os
import pathlib
import shutil

from launch import arguments, nb, say, until
from share import front_end, pid


def main():
    options = arguments()
    top = pathlib.Path.cwd()
    old, new, third = (top / name for name in ("p", "q", "r"))
    old.mkdir()
    os.chdir(old)
    nb("open", "t.ipynb", "--python", os.environ["NB_TEST_PYTHON"])
    with front_end(options.kernel, "t.ipynb") as client:
        before = pid(client)
        running = client.execute("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nmine = 41")
        until("the cell is in the journal", lambda: "import os, time" in journal(old))
        old.rename(new)
        (new / "go").touch()
        reply, _ = client.finish(running)
        assert reply.content["status"] == "ok", reply.content
        assert client.run("print(mine + 1)") == "42\n"
        os.chdir(new)
        found = json.loads(nb("run", "mine", "--json", "--timeout", "20"))
        assert found["status"] == "ok", found
        until("its run is in the journal", lambda: "print(mine + 1)" in journal(new))
        status = json.loads(nb("status", "--json"))
        assert len(status["sessions"][0]["joined"]) == 1, status
        assert status["sessions"][0]["kernel_pid"] == pid(client) == before, status
        until("the move is in the log", lambda: "the project was moved from" in (new / ".nb/proxy.log").read_text())
        assert not old.exists(), list(old.rglob("*"))
        say("the front end and its runs are in the moved project")

        # Another project takes the old name, and gives it back.
        old.mkdir()
        (old / "t.ipynb").write_bytes((new / "t.ipynb").read_bytes())
        assert client.run("print(mine)") == "41\n"
        assert not (old / ".nb").exists()
        shutil.rmtree(old)
        new.rename(old)
        os.chdir(old)
        assert client.run("print('back')") == "back\n"
        until("its run is in the journal", lambda: "print('back')" in journal(old))
        assert pid(client) == before
        assert not new.exists()
        say("it is moved back, and nothing is left")

        restarted = json.loads(nb("restart", "--force", "--json"))
        assert pid(client) == restarted["kernel_pid"] != before
        old.rename(third)
        os.chdir(third)
    assert not old.exists(), list(old.rglob("*"))
    nb("shutdown", "--force")


def journal(project):
    return (project / ".nb/journal.jsonl").read_text()


main()

"""A kernel that a Jupyter server started for JupyterLab is shared by its id, and stays the server's
kernel."""

import json

from launch import SECONDS, arguments, nb, say, state
from raw import Client, connection_file, process
from server import Socket, rest, server


def main():
    options = arguments()
    with server() as port:
        kernel = rest(port, "POST", "kernels", {"name": "python3"})["id"]
        lab = Socket(port, kernel)
        assert lab.run("mine = 41")[0]["status"] == "ok"
        opened = json.loads(nb("open", "b.ipynb", "--attach", kernel, "--json"))
        assert opened["owned"] is False and kernel in opened["connection_file"], opened
        assert "42" in nb("run", "-n", "b.ipynb", "mine += 1; print(mine)")
        path = connection_file()
        with process(options.kernel, path, cwd=".") as child, Client(path) as client:
            client.get_ready()
            assert client.run("print(mine)") == "42\n"
            child.terminate()
            child.wait(SECONDS)
        # The server restarts its own kernel on the same sockets.
        rest(port, "POST", f"kernels/{kernel}/restart")
        lab = Socket(port, kernel)
        assert lab.run("mine = 1")[0]["status"] == "ok"
        nb("open", "b.ipynb")
        assert "1" in nb("run", "-n", "b.ipynb", "print(mine)")
        say(nb("shutdown", "b.ipynb"))
        assert lab.run("mine")[0]["status"] == "ok"
        rest(port, "DELETE", f"kernels/{kernel}")
    assert state()["sessions"]["b.ipynb"]["status"] == "stopped"


main()

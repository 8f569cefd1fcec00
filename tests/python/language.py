"""A new notebook gets a kernel of the language whose shared kernelspec was chosen for it."""

import os
import pathlib

from launch import SECONDS, arguments, nb, say, state
from raw import Client, connection_file, process


def main():
    options = arguments()
    path = connection_file()
    # As an editor makes a new notebook; jupyter_server passes its name in this variable.
    pathlib.Path("new.ipynb").touch()
    os.environ["JPY_SESSION_NAME"] = "new.ipynb"
    with process(options.kernel, path) as child, Client(path) as client:
        client.get_ready()
        assert client.run("print(6 * 7)") == "42\n"
        assert client.run("import os\nprint('NB_LANGUAGE' in os.environ)") == "False\n"
        child.terminate()
        child.wait(SECONDS)
    spec = state()["sessions"]["new.ipynb"]["kernelspec"]
    assert (spec["name"], spec["language"]) == ("ir", "R"), spec
    say("a new notebook has a kernel of the chosen language")
    nb("shutdown", "new.ipynb")


main()

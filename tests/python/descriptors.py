"""A proxy may open as many files as the system lets it; the kernel that it starts has the user's own limit."""

import os
import pathlib
import resource

from launch import arguments, nb
from raw import Client, connection_file, process

SOFT, HARD = 256, 2048


def limited():
    resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, HARD))


def main():
    options = arguments()
    nb("open", "t.ipynb", "--python", os.environ["NB_TEST_PYTHON"])
    nb("shutdown", "t.ipynb")
    path = connection_file()
    with process(options.kernel, path, preexec_fn=limited) as child, Client(path) as client:
        client.get_ready()
        limits = pathlib.Path(f"/proc/{child.pid}/limits").read_text().splitlines()
        [files] = [line.split() for line in limits if line.startswith("Max open files")]
        assert files[3:5] == [str(HARD), str(HARD)], files
        code = "import resource, os\nprint(resource.getrlimit(resource.RLIMIT_NOFILE), 'NB_DETACH_DESCRIPTORS' in os.environ)"
        assert client.run(code) == f"({SOFT}, {HARD}) False\n"
        # A proxy has seven sockets for each of these clients, a kernel three.
        others = [Client(path) for _ in range(SOFT // 5)]
        for other in others:
            other.get_ready()
        for other in others:
            other.__exit__()


main()

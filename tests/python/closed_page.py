"""The last page of a Jupyter server without nb's extension is closed while its cell runs: the server keeps its connections to
the kernel, and a recorder takes the cell. This process stands in for the server.
"""

import http.server
import json
import os
import pathlib
import threading

import nbformat
from launch import arguments, say, until
from raw import Client, connection_file, process

CELL = "c0"
CODE = """import os, time
print('before', flush=True)
while not os.path.exists('go'):
    time.sleep(0.01)
print('after')
"""


class Kernels(http.server.BaseHTTPRequestHandler):
    connections = 1
    asked = 0

    def do_GET(self):
        assert self.path == f"/base/api/kernels/{self.kernel}", self.path
        assert self.headers["Authorization"] == "token secret"
        answer = json.dumps({"id": self.kernel, "connections": self.connections}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        Kernels.asked += 1

    def log_message(self, *_):
        pass


def main(kernel):
    path = pathlib.Path("t.ipynb")
    cell = nbformat.v4.new_code_cell(CODE, id=CELL)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    connection = connection_file()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Kernels)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shown(server, connection)
    with process(kernel, connection), Client(connection) as client:
        client.get_ready()
        client.execute(CODE, metadata={"cellId": CELL})
        until("the server is asked", lambda: Kernels.asked > 1)
        # A page that is loaded again is not closed.
        Kernels.connections, before = 0, Kernels.asked
        until("the server is asked", lambda: Kernels.asked > before + 1)
        Kernels.connections, before = 1, Kernels.asked
        until("the server is asked", lambda: Kernels.asked > before + 1)
        assert not recorders()
        say("the last page is closed")
        Kernels.connections = 0
        until("a recorder", recorders)
        pathlib.Path("go").touch()
        until("the outputs", lambda: printed(path) == "before\nafter\n")


def shown(server, connection):
    """Writes what a Jupyter server that launches kernels leaves on the disk and in the environment."""
    os.environ["JPY_PARENT_PID"] = str(os.getpid())
    Kernels.kernel = pathlib.Path(connection).stem.removeprefix("kernel-")
    host, port = server.server_address
    record = {
        "base_url": "/base/", "hostname": host, "pid": os.getpid(), "port": port, "root_dir": os.getcwd(),
        "secure": False, "sock": "", "token": "secret", "url": f"http://{host}:{port}/base/",
    }  # fmt: skip
    runtime = pathlib.Path(os.environ["JUPYTER_RUNTIME_DIR"])
    runtime.mkdir(parents=True, exist_ok=True)
    (runtime / f"jpserver-{os.getpid()}.json").write_text(json.dumps(record))


def recorders():
    return list(pathlib.Path(".nb/jobs").glob("*/ready"))


def printed(path):
    [cell] = json.loads(path.read_text())["cells"]
    return "".join("".join(output.get("text", "")) for output in cell["outputs"])


if __name__ == "__main__":
    main(arguments().kernel)

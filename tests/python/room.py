"""A Jupyter server that may have a notebook open in a room of jupyter-collaboration: edits are refused, and outputs wait
for the end of the tab. This process stands in for the server."""

import contextlib
import http.server
import json
import os
import pathlib
import subprocess
import threading

import psutil
from launch import nb, say, until

RUNTIME = pathlib.Path(os.environ["JUPYTER_RUNTIME_DIR"])
NOTEBOOK = "t.ipynb"
OPEN = [{"path": NOTEBOOK, "kernel": {"connections": 1}}]
CLOSED = [{"path": NOTEBOOK, "kernel": {"connections": 0}}]
# Of each kind of writer one; `{}` is the cell.
WRITERS = [
    ("insert", NOTEBOOK, "x"), ("edit", NOTEBOOK, "{}", "x = 2"), ("rm", NOTEBOOK, "{}"),
    ("clear", NOTEBOOK), ("replace", NOTEBOOK, "print", "repr"), ("undo", NOTEBOOK),
    ("restore", NOTEBOOK, "{}@{revision}"), ("fmt", NOTEBOOK, "--write"),
]  # fmt: skip


class Sessions(http.server.BaseHTTPRequestHandler):
    listed = OPEN

    def do_GET(self):
        answer = json.dumps(self.listed).encode()
        assert self.path == "/api/sessions", self.path
        assert self.headers["Authorization"] == "token secret"
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sessions)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    nb("open", NOTEBOOK, "--python", os.environ["NB_TEST_PYTHON"])
    nb("insert", NOTEBOOK, "print(6 * 7)")
    cell = cells()[0]["id"]
    before = json.loads(nb("cells", NOTEBOOK, "--json"))["cells"][0]["revision"]
    nb("edit", NOTEBOOK, cell, "print(42)", "-x")
    assert cells()[0]["execution_count"] == 1, cells()
    # `nb fmt` has something to do.
    compact = json.dumps(json.loads(pathlib.Path(NOTEBOOK).read_text()))
    pathlib.Path(NOTEBOOK).write_text(compact)
    shown(server)

    assert "uses jupyter-collaboration" in run("doctor", NOTEBOOK).stdout
    unchanged = pathlib.Path(NOTEBOOK).read_bytes()
    for words in WRITERS:
        words = [word.replace("{revision}", before).replace("{}", cell) for word in words]
        refused(*words)
        assert pathlib.Path(NOTEBOOK).read_bytes() == unchanged, words
    done = run("exec", NOTEBOOK, cell)
    assert done.returncode == 0 and done.stdout == "42\n", done
    assert "they are written once its tab is closed" in done.stderr, done
    assert cells()[0]["execution_count"] == 1, cells()
    job = json.loads(nb("jobs", "--json"))["jobs"][-1]
    assert job["held"] and job["state"] == "done", job
    say("refused:", len(WRITERS), "and the outputs wait")

    nb("insert", NOTEBOOK, "forced", "--force")
    Sessions.listed = CLOSED
    nb("insert", NOTEBOOK, "closed")
    assert ["".join(cell["source"]) for cell in cells()] == ["print(42)", "forced", "closed"]
    nb("jobs", job["id"], "--write")
    assert cells()[0]["execution_count"] == 2, cells()
    job = json.loads(nb("jobs", "--json"))["jobs"][-1]
    assert "held" not in job, job
    nb("shutdown", NOTEBOOK)
    # The recorder that waits for the end of the tab looks again within a few seconds.
    until("the recorder ends", lambda: not recorders())


def recorders():
    def is_own(process):
        with contextlib.suppress(psutil.Error):
            return process.cmdline()[:1] == ["nb"] and process.environ().get("HOME") == os.environ["HOME"]

    return list(filter(is_own, psutil.process_iter()))


def shown(server):
    """Writes what a server with rooms leaves on the disk."""
    marks = pathlib.Path(".jupyter")
    marks.mkdir()
    (marks / "collaboration_sessions.json").write_text("{}")
    host, port = server.server_address
    record = {
        "base_url": "/", "hostname": host, "password": False, "pid": os.getpid(), "port": port,
        "root_dir": os.getcwd(), "secure": False, "sock": "", "token": "secret",
        "url": f"http://{host}:{port}/", "version": "2.21.1",
    }  # fmt: skip
    (RUNTIME / f"jpserver-{os.getpid()}.json").write_text(json.dumps(record))


def run(*words):
    return subprocess.run(
        [os.environ["NB_TEST_BINARY"], *words], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def refused(*words):
    done = run(*words)
    assert done.returncode == 5, (words, done)
    assert "has it open with jupyter-collaboration" in done.stderr, (words, done)
    assert "--force" in done.stderr, (words, done)


def cells():
    return json.loads(pathlib.Path(NOTEBOOK).read_text())["cells"]


main()

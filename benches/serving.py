"""Prints the linker script that lays what nb-proxy runs side by side: build.rs says what it is for.

    cargo build --release --config profile.release.strip=false
    python3 benches/serving.py target/release/nb-proxy > /tmp/serving.ld && mv /tmp/serving.ld src/bin/

It adds to the list that is there, since valgrind does not name what that has laid apart.
It runs the proxy under valgrind, on an ipykernel, as front ends use it, and takes down which functions
it came through: first those from the launch to the rest after the first reply, then those of cells, of
clients that come and go, and of the end. Python needs ipykernel. Names lose the hashes that another
compiler changes. A name that is in no program any more does no harm, and one that is missing costs the
64 KB round it: another list is worth it where `cargo bench --bench proxy -- launch` has grown.
"""

import collections
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import time

from jupyter_client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

NOTEBOOK = "a.ipynb"

# The variables of launches: a console's, one that is given what it serves, JupyterLab's, VS Code's.
LAUNCHES = [
    {},
    # Its kernel is on TCP; those of `nb open` are on Unix sockets.
    {"NB_STATE": "{bare}/.nb/state.json"},
    {"JPY_PARENT_PID": "1", "JPY_SESSION_NAME": "{project}/a.ipynb"},
    {"VSCODE_PID": "1"},
]

CELLS = [
    "1 + 1",
    "print('a')",
    "import sys; print('a', file=sys.stderr)",
    "from IPython.display import display; display({'text/plain': 'a'}, raw=True, display_id=True)",
    "for i in range(200): print('a' * 5000, flush=True)",
    "input('?')",
    "1 / 0",
]


def main(program):
    with tempfile.TemporaryDirectory() as home:
        rest, later = runs(os.path.abspath(program), home)
    all_sizes = sizes(program)
    before = listed()
    print("/* What nb-proxy runs, see build.rs. Made by benches/serving.py; not for editing. */")
    print("SECTIONS\n{\n  .text.serving :\n  {")
    known = set()
    for when, functions in [("from the launch to rest", rest), ("cells, clients, the end", later)]:
        own, shared = patterns(functions, all_sizes)
        for what, found in [("", own), (", by names that other functions bear too", shared)]:
            heading = f"/* {when}{what} */"
            found |= before.get(heading, set())
            print(f"    {heading}", *sorted(found - known), sep="\n    ")
            known |= found
    print("  }\n}\nINSERT BEFORE .text;")


def listed():
    """Returns what the list has under each heading."""
    before, under = {}, set()
    for line in open(os.path.join(os.path.dirname(__file__), "..", "src", "bin", "serving.ld")):
        line = line.strip()
        if line.startswith("/*"):
            under = before.setdefault(line, set())
        elif line.startswith("*("):
            under.add(line)
    return before


def runs(program, home):
    """Returns the functions of each part of a proxy's life."""
    foreign = ("NB_", "XDG_", "JUPYTER", "JPY_", "VSCODE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    env |= {"HOME": home, "JUPYTER_PATH": os.path.join(sys.prefix, "share", "jupyter")}
    project, bare = (os.path.join(home, name) for name in ("project", "bare"))
    os.makedirs(os.path.join(bare, ".nb"))
    os.makedirs(project)
    with open(os.path.join(project, NOTEBOOK), "w") as file:
        json.dump({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, file)
    nb = [os.path.join(os.path.dirname(program), "nb")]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*nb, "open", NOTEBOOK], env=env, cwd=project, check=True, **silent)
    kernel_file = os.path.join(home, "kernel.json")
    write_connection_file(kernel_file, ip="127.0.0.1")
    ipykernel = [sys.executable, "-m", "ipykernel_launcher", "-f", kernel_file]
    kernel = subprocess.Popen(ipykernel, env=env, cwd=bare, **silent)
    rest, later = set(), set()
    try:
        joined(kernel_file).stop_channels()
        with open(os.path.join(bare, ".nb", "state.json"), "w") as file:
            state = {"version": 1, "notebook": os.path.join(bare, NOTEBOOK)}
            json.dump(state | {"connection_file": kernel_file, "kernel_pid": kernel.pid}, file)
        for number, variables in enumerate(LAUNCHES):
            variables = {name: value.format(project=project, bare=bare) for name, value in variables.items()}
            front_file, out = (os.path.join(home, f"{name}{number}") for name in ("front", "callgrind"))
            write_connection_file(front_file, ip="127.0.0.1")
            valgrind = ["valgrind", "-q", "--tool=callgrind", "--demangle=no", f"--callgrind-out-file={out}"]
            command = [*valgrind, program, "-f", front_file]
            proxy = subprocess.Popen(command, env=env | variables, cwd=project, **silent)
            client = joined(front_file)
            if "VSCODE_PID" in variables:
                metadata = {"cellId": f"vscode-notebook-cell:{project}/{NOTEBOOK}#W0sZmlsZQ%3D%3D"}
                run(client, "1 + 1", metadata)
            time.sleep(2)
            subprocess.run(["callgrind_control", "--dump", str(proxy.pid)], check=True, **silent)
            until(lambda: os.path.exists(f"{out}.1"))
            rest |= executed(f"{out}.1", program)
            if not number:
                use(client, front_file)
            client.stop_channels()
            proxy.send_signal(signal.SIGTERM)
            ended(proxy)
            later |= executed(out, program)
        return rest, later
    finally:
        kernel.kill()
        kernel.wait()
        subprocess.run([*nb, "shutdown", NOTEBOOK, "--force"], env=env, cwd=project, check=True, **silent)


def run(client, code, metadata=None):
    """Runs a cell and waits for its end."""
    content = {"code": code, "silent": False, "store_history": True, "allow_stdin": True}
    message = client.session.msg("execute_request", content, metadata=metadata)
    client.shell_channel.send(message)
    while True:
        try:
            asked = client.get_stdin_msg(timeout=0.01)
            client.input("a" if asked else "")
        except queue.Empty:
            pass
        try:
            heard = client.get_iopub_msg(timeout=0.01)
        except queue.Empty:
            continue
        is_ours = heard["parent_header"].get("msg_id") == message["header"]["msg_id"]
        if is_ours and heard["content"].get("execution_state") == "idle":
            return


def joined(file):
    client = BlockingKernelClient()
    client.load_connection_file(file)
    client.start_channels()
    while True:
        client.kernel_info()
        try:
            client.get_shell_msg(timeout=2)
            return client
        except queue.Empty:
            pass


def use(client, front_file):
    for cell in CELLS:
        run(client, cell)
    other = joined(front_file)
    other.complete("prin")
    other.history(hist_access_type="tail", n=5)
    other.comm_info()
    # One that takes seconds is written down; then it is interrupted.
    other.execute("import time; time.sleep(60)")
    time.sleep(3.5)
    other.control_channel.send(other.session.msg("interrupt_request"))
    run(client, "1")
    other.stop_channels()
    time.sleep(1)


def ended(proxy):
    """Waits for its end. Valgrind was seen to hang when it had written all."""
    try:
        proxy.wait(timeout=60)
    except subprocess.TimeoutExpired:
        proxy.kill()
        proxy.wait()


def until(holds):
    while not holds():
        time.sleep(0.01)


def executed(file, program):
    """Returns the program's own functions in a file of callgrind's, by their mangled names."""
    objects, names, found, here = {}, {}, set(), False
    own = os.path.realpath(program)
    for line in open(file, errors="replace"):
        part = re.match(r"(ob|cob|fn|cfn)=\((\d+)\)(?: (.*))?$", line.rstrip("\n"))
        if not part:
            continue
        word, number, name = part.groups()
        known = objects if word.endswith("ob") else names
        if name is not None:
            known[number] = name
        if word == "ob":
            here = os.path.realpath(known[number]) == own
        elif word == "fn" and here:
            found.add(known[number].split("'")[0])
    return found


def sizes(program):
    """Returns all functions of the program and their bytes."""
    told = subprocess.run(["nm", "--print-size", program], check=True, capture_output=True, text=True).stdout
    fields = (line.split() for line in told.splitlines())
    return {name: int(size, 16) for _, size, _, name in (it for it in fields if len(it) == 4)}


def patterns(names, all_sizes):
    """Returns what finds the sections of functions, those too that the compiler calls unlikely. Apart from
    the others: what finds more that did not run than did."""
    ran, all_of = collections.Counter(), collections.Counter()
    for name, size in all_sizes.items():
        all_of[pattern(name)] += size
    for name in names:
        ran[pattern(name)] += all_sizes.get(name, 0)
    ran.pop(None, None)
    own = {it for it, size in ran.items() if size * 2 >= all_of[it]}
    return own, ran.keys() - own


def pattern(name):
    """Returns what finds a function, whatever hashes another compiler gives its name."""
    if name == "main":
        return "*(.text*.main)"
    if not name.startswith(("_ZN", "_R")):
        return None
    name = re.sub(r"17h[0-9a-f]{16}E.*$", "17h", name)
    name = re.sub(r"Cs[0-9A-Za-z]+_", "Cs*_", name)
    name = re.sub(r"(\.\d+|\.llvm\.\d+)+$", "", name)
    return f"*(.text*.{name}*)"


main(sys.argv[1])

"""Launches that cannot work end immediately, non-zero, with a plain line; nothing else is affected."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import time

from launch import SECONDS, arguments, say
from raw import CHANNELS, Client, argv, connection_file

STATE = pathlib.Path(".nb/state.json")


def main():
    options = arguments()
    faults = {"connection file": connection_files, "state.json": states, "port": ports, "argument": words}
    for subject, cases in faults.items():
        count = 0
        for name, command, environment in cases(options.kernel):
            ends_at_once(f"{subject}: {name}", command, environment)
            count += 1
        say(f"{subject}: {count} faults, each reported")
    tolerated(options.kernel)


def ends_at_once(name, command, environment, limit=30):
    began = time.monotonic()
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{name}: it did not end; stderr: {error.stderr}") from error
    took = time.monotonic() - began
    lines = done.stderr.strip().splitlines()
    say(f"  {name}: {done.returncode} {done.stderr.strip()[:300]!r}")
    assert done.returncode not in (0, None) and done.returncode > 0, f"{name}: {done}"
    assert took < limit, f"{name}: took {took:.1f} s"
    assert 1 <= len(lines) <= 6, f"{name}: stderr {done.stderr!r}"
    assert "panicked" not in done.stderr and "Traceback" not in done.stderr, f"{name}: {done.stderr}"
    assert done.stdout == "", f"{name}: stdout {done.stdout!r}"
    assert not any(word in done.stderr for word in ("hmac_key", "SECRET")), f"{name}: {done.stderr}"


def connection_files(kernel):
    good = json.loads(connection_file().read_text()) | {"key": "SECRET"}
    text = json.dumps(good)
    broken = {
        "empty": "",
        "truncated": text[: len(text) // 2],
        "not JSON": "kernel here",
        "a list": "[1]",
        "not UTF-8": b"\xff\xfe\x00{",
        "no ports": json.dumps({"ip": "127.0.0.1", "transport": "tcp", "key": "SECRET"}),
        "port 0": json.dumps(good | {"shell_port": 0}),
        "port 70000": json.dumps(good | {"shell_port": 70000}),
        "a negative port": json.dumps(good | {"hb_port": -1}),
        "a port in words": json.dumps(good | {"iopub_port": "many"}),
        "one port twice": json.dumps(good | {"iopub_port": good["shell_port"]}),
        "an unknown transport": json.dumps(good | {"transport": "carrier pigeon"}),
        "an unknown scheme": json.dumps(good | {"signature_scheme": "hmac-rot13"}),
        "an address of nobody's": json.dumps(good | {"ip": "203.0.113.7"}),
        "a name instead of an address": json.dumps(good | {"ip": "no such host"}),
        "CURVE keys": json.dumps(good | {"curve_publickey": "x" * 40, "curve_secretkey": "SECRET"}),
    }
    folder = connection_file().parent
    for name, body in broken.items():
        path = folder / "broken.json"
        path.write_bytes(body if isinstance(body, bytes) else body.encode())
        yield name, *argv(kernel, path)
    yield "missing", *argv(kernel, folder / "no such file.json")
    yield "a folder", *argv(kernel, folder)
    unreadable = folder / "unreadable.json"
    unreadable.write_text(text)
    unreadable.chmod(0)
    if not os.access(unreadable, os.R_OK):  # root may read it all the same
        yield "unreadable", *argv(kernel, unreadable)


def states(kernel):
    """Without a kernel: `state.json` is missing, broken, or not true."""
    # Without starting a kernel, which is tested elsewhere.
    alone = {"NB_AUTOSTART": "0"}
    own = connection_file()
    kept = STATE.read_bytes()
    bare = {"notebook": "t.ipynb", "connection_file": str(own), "kernel_pid": 1}
    text = json.dumps(bare)
    try:
        for name, body in {
            "empty": "",
            "truncated": text[: len(text) // 2],
            "not JSON": "state",
            "a list": "[]",
            "a later version": json.dumps(bare | {"version": 1000}),
            "keys of other types": json.dumps({"notebook": 1, "connection_file": [], "kernel_pid": "x"}),
            "no keys": "{}",
            "a missing connection file": json.dumps(bare | {"connection_file": str(own) + ".gone", "kernel_pid": os.getpid()}),
            "a connection file that is a folder": json.dumps(bare | {"connection_file": str(own.parent), "kernel_pid": os.getpid()}),
        }.items():
            STATE.write_text(body)
            command, environment = argv(kernel, connection_file())
            yield name, command, environment | alone
            yield f"{name}, nb run", [os.environ["NB_TEST_BINARY"], "run", "1"], environment
            if name not in ("no keys",):
                assert STATE.read_text() == body, f"{name}: state.json was overwritten"
        STATE.write_text("[]")
        yield "a list, nb open", [os.environ["NB_TEST_BINARY"], "open", "t.ipynb"], environment
        assert STATE.read_text() == "[]", "nb open overwrote a damaged state.json"
        own.write_text('{"transport": "tcp", "ip": "127.0.0.1", "shell_po')
        STATE.write_text(json.dumps(bare | {"kernel_pid": os.getpid()}))
        command, environment = argv(kernel, connection_file())
        yield "a truncated connection file", command, environment | alone
        STATE.unlink()
        command, environment = argv(kernel, connection_file())
        yield "missing", command, environment | alone
        elsewhere = connection_file().parent
        command, environment = argv(kernel, connection_file())
        yield "no project", ["env", "-C", str(elsewhere), *command], environment | alone
        yield "NB_STATE names nothing", command, environment | alone | {"NB_STATE": str(elsewhere / "no.json")}
        yield "inside a kernel", command, environment | {"NB_KERNEL": "1"}
    finally:
        STATE.write_bytes(kept)


def ports(kernel):
    for channel in CHANNELS:
        path = connection_file()
        port = json.loads(path.read_text())[f"{channel}_port"]
        with socket.create_server(("127.0.0.1", port)):
            yield f"{channel} in use", *argv(kernel, path)


def words(kernel):
    command, environment = argv(kernel, "unused")
    program = command[0]
    script = connection_file().parent / "x.py"
    touched = script.parent / "touched"
    script.write_text(f"open({str(touched)!r}, 'w')")
    yield "-I x.py", [program, "-I", str(script)], environment
    yield "-I x.py and more", [program, "-I", str(script), "-f", str(connection_file())], environment
    yield "-c code", [program, "-c", f"open({str(touched)!r}, 'w')"], environment
    yield "-m module", [program, "-m", "pip"], environment
    yield "nothing", [program], environment
    yield "-f alone", [program, "-f"], environment
    yield "-f with an empty value", [program, "-f", ""], environment
    yield "a word", [program, "serve"], environment
    assert not touched.exists()


def tolerated(kernel):
    """Other spellings, quotes round a path with spaces, and unknown arguments."""
    for name in ("-f", "--f=", "--connection-file", "--connection-file=", "quoted"):
        path = connection_file()
        spaced = path.parent / "a folder" / "kernel.json"
        spaced.parent.mkdir()
        shutil.move(path, spaced)
        (program, *_), environment = argv(kernel, spaced)
        given = f'"{spaced}"' if name == "quoted" else str(spaced)
        flag = "-f" if name == "quoted" else name
        found = [flag + given] if flag.endswith("=") else [flag, given]
        child = subprocess.Popen([program, *found, "--unknown", "--log-level=10"], env=environment)
        try:
            with Client(spaced) as client:
                client.get_ready()
                assert client.run("print(6 * 7)") == "42\n"
        finally:
            child.terminate()
            child.wait(SECONDS)
    for flag in ("--version", "--help"):
        done = subprocess.run([program, flag], capture_output=True, text=True, env=environment)
        assert done.returncode == 0 and "nb-proxy" in done.stdout and not done.stderr, done
    say("five spellings and unknown arguments: served")


main()

"""A person at a front end and an agent with `nb` on one kernel: neither ends the other's work without
consent."""

import json
import os
import pty
import select
import subprocess

from launch import SECONDS, arguments, evaluate, joined, launched, outputs, reply_to, run, say, state


def agent(*words, expect=0):
    """Runs `nb` as an agent; returns its stdout and stderr."""
    done = subprocess.run(
        [os.environ["NB_TEST_BINARY"], *words, "--as", "claude"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
    )
    report = f"nb {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == expect, report
    return done.stdout, done.stderr


def at_a_terminal(*words, answer):
    """Runs `nb` at a terminal and answers its question; returns its exit code and the screen."""
    terminal, other_end = pty.openpty()
    child = subprocess.Popen(
        [os.environ["NB_TEST_BINARY"], *words, "--as", "ada"], stdin=other_end, stdout=other_end, stderr=other_end
    )
    os.close(other_end)
    screen = b""
    answered = False
    while True:
        ready, _, _ = select.select([terminal], [], [], SECONDS)
        assert ready, f"nothing on the screen after {screen!r}"
        try:
            read = os.read(terminal, 4096)
        except OSError:  # Linux: the other side is closed
            read = b""
        if not read:
            break
        screen += read
        if b"[y/N]" in screen and not answered:
            answered = True
            os.write(terminal, answer.encode() + b"\n")
    os.close(terminal)
    assert answered, f"there was no question: {screen!r}"
    return child.wait(SECONDS), screen.decode()


def begins(client, code):
    """Sends a cell and waits until it has printed."""
    request = client.execute(code)
    while True:
        message = client.get_iopub_msg(timeout=SECONDS)
        if message["msg_type"] == "stream" and message["parent_header"]["msg_id"] == request:
            return request


def main():
    options = arguments()
    agent("run", "1")
    with launched(options.kernel) as manager, joined(manager.connection_file) as person:
        # The person has joined but has no variables yet, so a restart takes nothing from them.
        agent("restart")
        run(person, "mine = 'precious'")
        _, stderr = agent("run", "2")
        line = stderr.strip().splitlines()[-1]
        assert line.startswith("‣ since ") and "human (" in line, stderr
        assert "ran \"mine = 'precious'\" ok" in line, stderr
        assert agent("run", "2") == ("2\n", ""), "it is reported twice"

        for deed in ("restart", "shutdown"):
            _, refused = agent(deed, expect=5)
            assert "delete the variables of human (" in refused, refused
            assert f"nb {deed} --force" in refused, refused
        agent("interrupt")
        assert evaluate(person, "mine") == "precious"

        request = begins(person, "print('on')\nwhile True: pass")
        answer = json.loads(agent("interrupt", "--json", expect=5)[0])
        assert answer["error"]["kind"] == "refused", answer
        assert "nb interrupt --force" in answer["error"]["hints"][0], answer
        assert answer["kernel_generation"] == 2, answer
        status = json.loads(agent("status", "--json")[0])["sessions"][0]
        assert status["state"] == "busy", status
        assert status["running"]["by"].startswith("human ("), status
        # The agent's own code waits, and says whose code it waits for.
        stdout, stderr = agent("run", "3", "--timeout", "1", expect=4)
        assert "waiting behind human (" in stderr and "running for" in stderr, stderr
        # Another person is asked; the default is no.
        for answer in ("", "n"):
            code, screen = at_a_terminal("interrupt", answer=answer)
            assert code == 5 and "left as it is" in screen, screen
        assert "an interrupt would end human (" in screen, screen
        code, screen = at_a_terminal("interrupt", answer="y")
        assert code == 0, screen
        outputs(person, request)
        assert reply_to(person, request)["content"]["ename"] == "KeyboardInterrupt"
        request = begins(person, "print('on')\nwhile True: pass")
        agent("interrupt", "--force")
        outputs(person, request)
        assert reply_to(person, request)["content"]["ename"] == "KeyboardInterrupt"

        agent("restart", "--force")
        run(person, "assert 'mine' not in dir()")
        kept, _ = agent("shutdown", "--idle", "0s")
        assert "t.ipynb: goes on: " in kept and "is joined" in kept, kept
        everywhere = json.loads(agent("status", "--all", "--json")[0])["kernels"]
        assert [len(kernel["joined"]) for kernel in everywhere] == [1], everywhere
        answer = json.loads(agent("status", "--json")[0])
        assert answer["sessions"][0]["state"] == "idle", answer
        say("since:", *(doings["text"] for doings in answer["since"]))
    # The person has left.
    agent("restart")
    # A client of the kernel itself: no proxy sees what it runs.
    with joined(state()["connection_file"]) as stranger:
        request = begins(stranger, "print('on')\nwhile True: pass")
        _, refused = agent("restart", expect=5)
        assert "which the journal does not know" in refused, refused
        agent("interrupt", "--force")
        outputs(stranger, request)
        agent("restart")


main()

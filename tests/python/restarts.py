"""VS Code's Restart restarts the shared kernel; what only resembles it restarts nothing."""

import os
import pathlib
import time

from launch import arguments, nb, say
from window import Editor, Window, journal, session_of

NOTEBOOK = "t.ipynb"


def main():
    options = arguments(order="after")
    cases = {
        "after": lambda kernel: restart(kernel, early=False),
        "early": lambda kernel: restart(kernel, early=True),
        "nothing": nothing_else,
        "keep": keep,
    }
    cases[options.order](options.kernel)


def restart(kernel, early):
    """`early`: the next process is launched before the last one gets its SIGTERM."""
    nb("run", "-n", NOTEBOOK, "agents = 'here'")
    with Window(kernel, NOTEBOOK).ready() as window:
        assert window.run("x = 1\nprint(agents)") == "here\n"
        for _ in range(2):
            before = session_of(NOTEBOOK)
            began = time.monotonic()
            if early:
                again = Window(kernel, NOTEBOOK, window.session)
                # The requests arrive before the old process has left.
                again.client.send("shell", "kernel_info_request")
                again.client.send("control", "kernel_info_request")
                window.close()
            else:
                window.terminate()
                again = Window(kernel, NOTEBOOK, window.session)
            with again.ready():
                printed = again.run("print('x' in globals(), 'agents' in globals())\nx = 1")
                assert printed == "False False\n", f"the variables are still there: {printed}"
                say(f"restarted, and a cell has run, after {time.monotonic() - began:.2f} s")
                assert not stderr(again), f"a notice to whoever has restarted: {stderr(again)}"
                assert len(again.client.sessions) == 1, again.client.sessions
                after = session_of(NOTEBOOK)
                assert after["generation"] == before["generation"] + 1, (before, after)
                assert after["pid"] != before["pid"], after
                assert after["ended"]["by"] == "human (VS Code)", after["ended"]
                if not early:
                    window.wait_for_end()
                again_session = again.session
                again.close()
            # The next round is another window, with a new session.
            window = Window(kernel, NOTEBOOK).ready()
            assert window.run("print(x)") == "1\n"
            assert again_session != window.session
        window.close()
    restarted = [line["by"] for line in journal() if line["event"] == "restarted"]
    assert restarted == ["human (VS Code)"] * 2, restarted
    say(f"restarted twice, by {restarted}")


def nothing_else(kernel):
    nb("run", "-n", NOTEBOOK, "agents = 'here'")
    known = session_of(NOTEBOOK)

    def still(window, action):
        assert window.run("print(agents)") == "here\n", f"{action} restarted the kernel"
        assert session_of(NOTEBOOK)["generation"] == known["generation"], action
        say(f"{action}: nothing was restarted")

    with Window(kernel, NOTEBOOK).ready() as window:
        still(window, "a launch")
        window.terminate()
        with Window(kernel, NOTEBOOK).ready() as other:
            still(other, "a kernel switch, which has a new session")
            other.close()
        window.wait_for_end()

        # A window reload: another process, another session.
        with Window(kernel, NOTEBOOK).ready() as window, Editor() as editor:
            still(window, "a launch")
            window.close()
            with Window(kernel, NOTEBOOK, editor=editor).ready() as other:
                still(other, "a window reload")
                other.terminate()
                other.wait_for_end()

        # The same session from another process does not restart this process's kernel.
        with Window(kernel, NOTEBOOK).ready() as window, Editor() as editor:
            still(window, "a launch")
            window.close()
            with Window(kernel, NOTEBOOK, window.session, editor=editor).ready() as other:
                still(other, "another window")
                other.terminate()
                other.wait_for_end()

        # Two windows at once, one of which is closed.
        with Window(kernel, NOTEBOOK).ready() as one, Window(kernel, NOTEBOOK).ready() as two:
            still(one, "a launch")
            still(two, "a launch")
            one.close()
            still(two, "another window's end")
            two.close()

        # A killed process: nothing requested a restart.
        with Window(kernel, NOTEBOOK).ready() as window:
            still(window, "a launch")
            window.child.kill()
            window.wait_for_end()
            with Window(kernel, NOTEBOOK, window.session).ready() as other:
                still(other, "a proxy that was killed")
                other.close()
                pid = {"JPY_PARENT_PID": str(os.getpid())}
                with Window(kernel, NOTEBOOK, window.session, environment=pid).ready() as other:
                    still(other, "jupyter_client's own restart of a dead kernel")
                    other.close()

        # An upgrade replaces the program file of the running process.
        with Window(kernel, NOTEBOOK).ready() as window:
            still(window, "a launch")
            program = pathlib.Path(window.child.exe())
            text = program.read_bytes()
            program.unlink()
            program.write_bytes(text + b"\0")
            program.chmod(0o755)
            still(window, "a replaced program")
            nb("serve")
            assert program.read_bytes() == text, "it was not put back"
            still(window, "nb serve")
            window.close()
    events = [line for line in journal() if line["event"] == "restarted"]
    assert not events, events


def keep(kernel):
    """`on_restart = "keep"`: the variables survive the front end's Restart."""
    nb("run", "-n", NOTEBOOK, "agents = 'here'")
    keeps(kernel, {"NB_ON_RESTART": "keep"})
    pathlib.Path(".nb/config.toml").write_text('on_restart = "keep"\n')
    keeps(kernel, {})
    assert session_of(NOTEBOOK)["generation"] == 1
    # The variable takes precedence over the file.
    real = {"NB_ON_RESTART": "restart"}
    with Window(kernel, NOTEBOOK, environment=real).ready() as window:
        window.run("x = 1")
        window.terminate()
        with Window(kernel, NOTEBOOK, window.session, environment=real).ready() as again:
            assert again.run("print('x' in globals())") == "False\n"
            again.close()
        window.wait_for_end()


def keeps(kernel, kept):
    with Window(kernel, NOTEBOOK, environment=kept).ready() as window:
        window.run("x = 1")
        window.terminate()
        with Window(kernel, NOTEBOOK, window.session, environment=kept).ready() as again:
            assert again.run("print(agents, x)") == "here 1\n"
            again.close()
        window.wait_for_end()


def stderr(window):
    streams = [m.content for m in window.client.received["iopub"] if m.type == "stream"]
    return "".join(s["text"] for s in streams if s["name"] == "stderr")


main()

"""Cells of a front end on the shared kernel: it gets their outputs, and nothing of what the kernel says to `nb` alone."""

from launch import arguments, joined, launched, say

CELLS = ["a = [0]", "f = a.append", "f(1)", "print(a)"]


def main():
    options = arguments()
    with launched(options.kernel) as manager, joined(manager.connection_file) as client:
        for code in CELLS:
            types = []
            reply = client.execute_interactive(code, timeout=60, output_hook=lambda message: types.append(message["msg_type"]))
            assert reply["content"]["status"] == "ok", reply
            wanted = ["status", "execute_input", "stream", "status"] if "print" in code else ["status", "execute_input", "status"]
            assert types == wanted, types
    say(f"{len(CELLS)} cells, as on any kernel")


if __name__ == "__main__":
    main()

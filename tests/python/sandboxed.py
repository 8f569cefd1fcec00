"""Runs a command as some agents' shells do: a seccomp filter forbids Unix sockets (EPERM).

With `--pairs` it also forbids pairs of them, with `--all` sockets of any kind.
"""

import ctypes
import os
import platform
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2
AF_UNIX, EPERM = 1, 1
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | EPERM
SOCKET, SOCKETPAIR = {"x86_64": (41, 53), "aarch64": (198, 199)}[platform.machine()]


def rules(word):
    """Returns the filter in BPF: it reads the system call's number, and for `socket` its first
    argument's low half."""
    refused = {"--unix": [SOCKET], "--pairs": [SOCKET, SOCKETPAIR], "--all": [SOCKET]}[word]
    for number in refused:
        yield LOAD, 0, 0, 0
        if word == "--all":
            yield EQUAL, 0, 1, number
        else:
            yield EQUAL, 0, 3, number
            yield LOAD, 0, 0, 16
            yield EQUAL, 0, 1, AF_UNIX
        yield RETURN, 0, 0, REFUSE
    yield RETURN, 0, 0, ALLOW


def main():
    program = [struct.pack("HBBI", *rule) for rule in rules(sys.argv[1])]
    code = ctypes.create_string_buffer(b"".join(program))
    head = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in [
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, FILTER, ctypes.c_char_p(head), 0, 0),
    ]:
        if libc.prctl(*words) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
    os.execvp(sys.argv[2], sys.argv[2:])


main()

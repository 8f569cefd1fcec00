"""Every way out of a sandbox that the tests know. Run inside, with MARKS in the environment or as
a variable; `escapes()` returns what became of each attempt: None where it failed."""

import ctypes
import ctypes.util
import os
import socket
import stat

LIBC = ctypes.CDLL(None, use_errno=True)


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def tcp(m):
    socket.create_connection(("127.0.0.1", m["tcp"]), 2).send(b"x")


def tcp_v6(m):
    socket.create_connection(("::1", m["tcp"]), 2).send(b"x")


def udp(m):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", m["udp"]))


def raw(m):
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


def ping(m):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)


def packet(m):
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)


def netlink(m):
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)


def vsock(m):
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)


def abstract(m):
    socket.socket(socket.AF_UNIX).connect("\0" + m["abstract"])


def path_socket(m):
    socket.socket(socket.AF_UNIX).connect(m["path"])


def path_datagram(m):
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", m["datagrams"])


def path_datagram_of_a_pair(m):
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", m["datagrams"])


def io_uring(m):
    checked(LIBC.syscall(425, 4, ctypes.create_string_buffer(256)))


def write_new(m):
    open(os.path.join(m["workspace"], "new"), "w").close()


def write_new_at_home(m):
    open(os.path.join(m["home"], "new"), "w").close()


def write_new_in_tmp(m):
    # It may have a /tmp of its own: what counts is what the outside sees, see the test.
    try:
        open(m["file_in_tmp"], "w").close()
    except OSError:
        pass
    raise OSError("to be looked at outside")


def overwrite(m):
    open(m["notebook"], "r+b").write(b"")


def overwrite_outside(m):
    open(m["file"], "r+b").write(b"")


def truncate(m):
    os.truncate(m["notebook"], os.stat(m["notebook"]).st_size)


def unlink(m):
    os.unlink(m["victim"])


def rename(m):
    os.rename(m["victim"], m["victim"] + "2")


def link(m):
    os.link(m["victim"], os.path.join(os.environ["TMPDIR"], "linked"))


def link_and_write(m):
    linked = os.path.join(os.environ["TMPDIR"], "linked2")
    os.link(m["victim"], linked)
    open(linked, "a").close()


def unchanged(marks):
    # A mode may be said to be changed where it is not: what counts is what is seen.
    if os.stat(marks["victim"]).st_mode & 0o777 != 0o777:
        raise OSError("the mode is as it was")


def chmod(m):
    os.chmod(m["victim"], 0o777)
    unchanged(m)


def chmod_through_a_descriptor(m):
    os.fchmod(os.open(m["victim"], os.O_RDONLY), 0o777)
    unchanged(m)


def chown(m):
    os.chown(m["victim"], os.getuid(), os.getgid())


def set_attribute(m):
    os.setxattr(m["victim"], "user.x", b"1")


def write_state(m):
    open(os.path.join(m["nb"], "state.json"), "r+").close()


def write_connection_file(m):
    open(m["connection_file"], "r+").close()


def make_in_nb(m):
    open(os.path.join(m["nb"], "new"), "w").close()


def read_home(m):
    open(os.path.join(m["home"], "secret")).read()


def read_other_users(m):
    open(m["others"]).read()


def read_outside(m):
    open(m["file"]).read()


def read_shadow(m):
    open("/etc/shadow").read()


def read_by_root_link(m):
    open(f"/proc/1/root{m['file']}").read()


def signal_outside(m):
    os.kill(m["pid"], 0)


def signal_all(m):
    # Signal 0 harms nobody; inside a namespace there is only the sandbox itself.
    if any(int(name) == m["pid"] for name in os.listdir("/proc") if name.isdigit()):
        os.kill(m["pid"], 0)
        return
    raise OSError("it is not seen")


def read_proc(m):
    line = open(f"/proc/{m['pid']}/cmdline").read()
    if m["cmdline"] not in line:
        raise OSError("another process has this number here")


def read_environment(m):
    if b"SECRET_MARK" not in open(f"/proc/{m['pid']}/environ", "rb").read():
        raise OSError("another process")


def inherited_secret(m):
    os.environ["SECRET_MARK"]


def secret_of_parents(m):
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    for pid in pids:
        try:
            if b"SECRET_MARK" in open(f"/proc/{pid}/environ", "rb").read():
                return
        except OSError:
            pass
    raise OSError("nobody has it")


def trace(m):
    checked(LIBC.ptrace(16, m["pid"], 0, 0))


def read_memory(m):
    buffer = ctypes.create_string_buffer(8)

    class Iovec(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    local = Iovec(ctypes.addressof(buffer), 8)
    remote = Iovec(m["address"], 8)
    checked(LIBC.process_vm_readv(m["pid"], ctypes.byref(local), 1, ctypes.byref(remote), 1, 0))


def mount(m):
    checked(LIBC.mount(b"none", os.environ["TMPDIR"].encode(), b"tmpfs", 0, None))


def user_namespace(m):
    checked(LIBC.unshare(0x10000000))


def mount_namespace(m):
    checked(LIBC.unshare(0x00020000))


def chroot(m):
    os.chroot("/")


def device(m):
    os.mknod(os.path.join(os.environ["TMPDIR"], "device"), stat.S_IFBLK | 0o600, os.makedev(8, 0))


def become_another_user(m):
    os.setuid(m["other_uid"])


ATTEMPTS = [
    value
    for value in list(globals().values())
    if callable(value) and getattr(value, "__module__", None) == __name__ and value not in (checked, unchanged)
]


def escapes(marks):
    found = {}
    for attempt in ATTEMPTS:
        try:
            attempt(marks)
            found[attempt.__name__] = "it worked"
        except Exception as error:
            found[attempt.__name__] = None
            _ = error
    return found

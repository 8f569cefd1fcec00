"""Every way out of a sandbox that the tests know. Run inside, with MARKS in the environment or as a
variable. `escapes()` returns the result of each attempt: None if it failed."""

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
    # The tests' home is in /tmp, and the sandbox may have its own /tmp: the test looks from outside.
    try:
        open(os.path.join(m["home"], "new"), "w").close()
    except OSError:
        pass
    raise OSError("to be looked at outside")


def write_new_in_tmp(m):
    # The sandbox may have its own /tmp: what counts is what is seen outside, where the test looks.
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
    # A call may report success without a change: what counts is the mode that is seen.
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
    # Signal 0 does no harm; in a PID namespace it reaches only processes of the sandbox.
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


# The rest is a table: the name of each attempt, and its function. The numbers of system calls are those of
# x86-64.
NUMBERS = {
    "read": 0, "mmap": 9, "mprotect": 10, "ioctl": 16, "shmget": 29, "shmat": 30, "shmctl": 31,
    "sendto": 44, "clone": 56, "semget": 64, "semop": 65, "semctl": 66, "msgget": 68, "msgsnd": 69,
    "msgrcv": 70, "msgctl": 71, "fcntl": 72, "creat": 85, "ptrace": 101, "syslog": 103, "setpgid": 109,
    "capset": 126, "rt_sigqueueinfo": 129, "mknod": 133, "setpriority": 141, "sched_setparam": 142,
    "sched_setscheduler": 144, "sched_getscheduler": 145, "pivot_root": 155, "prctl": 157, "chroot": 161,
    "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169,
    "sethostname": 170, "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176, "quotactl": 179,
    "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198,
    "fremovexattr": 199, "tkill": 200, "sched_setaffinity": 203, "clock_settime": 227, "tgkill": 234,
    "mq_open": 240, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250, "ioprio_set": 251,
    "migrate_pages": 256, "get_robust_list": 274, "utimensat": 280, "fallocate": 285,
    "rt_tgsigqueueinfo": 297, "perf_event_open": 298, "fanotify_init": 300, "prlimit64": 302,
    "name_to_handle_at": 303, "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310,
    "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "sched_setattr": 314, "renameat2": 316,
    "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323, "copy_file_range": 326, "move_pages": 279,
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_open": 434, "clone3": 435, "openat2": 437, "pidfd_getfd": 438, "process_madvise": 440,
    "mount_setattr": 442, "process_mrelease": 448, "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466,
    "open_tree_attr": 467, "file_setattr": 469, "unshare": 272,
}


def call(name, *words):
    if os.uname().machine != "x86_64":
        raise OSError("other numbers")
    words = [word.encode() if isinstance(word, str) else word for word in words]
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in words]
    return checked(LIBC.syscall(ctypes.c_long(NUMBERS[name]), *words))


def own(name):
    return os.path.join(os.environ["TMPDIR"], name)


def fresh(name):
    path = own(name)
    try:
        os.unlink(path)
    except OSError:
        pass
    return path


def opened(path, flags=os.O_RDONLY, mode=0o600):
    return os.open(path, flags, mode)


def writes(path):
    os.close(os.open(path, os.O_WRONLY))


def reads(path):
    with open(path, "rb") as file:
        file.read(1)


def is_seen(m):
    # In a PID namespace, the bystander's number belongs to no process.
    call("sched_getscheduler", m["pid"])


def special(make):
    """Makes a file that would run as its owner."""
    path = fresh("special")
    make(path)
    if os.stat(path).st_mode & 0o6000 == 0:
        raise OSError("an ordinary file")


def special_temporary(path):
    made = os.open(os.environ["TMPDIR"], os.O_TMPFILE | os.O_WRONLY, 0o4755)
    os.link(f"/proc/self/fd/{made}", path)


def chmod_of_own(path):
    open(path, "w").close()
    os.chmod(path, 0o4755)


def fchmod_of_own(path):
    os.fchmod(opened(path, os.O_CREAT | os.O_WRONLY), 0o6755)


def changed(m, deed):
    """Checks whether the victim has changed, whatever the call reports."""
    before = os.stat(m["victim"])
    deed()
    after = os.stat(m["victim"])
    state = lambda found: (found.st_mode, found.st_mtime_ns, found.st_atime_ns, found.st_uid, found.st_size)
    if state(before) == state(after):
        raise OSError("nothing changed")


def scheduled(m, deed):
    """Checks whether another process's scheduling has changed, whatever the call reports."""
    before = os.sched_getscheduler(m["pid"])
    deed()
    if os.sched_getscheduler(m["pid"]) == before:
        raise OSError("nothing changed")


def scratch():
    return os.path.dirname(os.environ["HOME"])


def sockets(m):
    import json

    return os.path.dirname(json.load(open(m["connection_file"]))["ip"])


def descriptors(m):
    """Something outside that is open already."""
    for name in os.listdir("/proc/self/fd"):
        try:
            found = os.fstat(int(name))
            path = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        known = (os.environ["HOME"], os.environ["TMPDIR"], "/usr", "/proc", "/dev", "/var/tmp/nb-tests")
        if stat.S_ISDIR(found.st_mode) and not path.startswith(known):
            os.open("..", os.O_RDONLY, dir_fd=int(name))
            return
    raise OSError("none")


def async_owner(m):
    import fcntl

    is_seen(m)
    one, _ = socket.socketpair()
    fcntl.fcntl(one, fcntl.F_SETOWN, m["pid"])


def socket_owner(m):
    import fcntl, struct

    is_seen(m)
    one, _ = socket.socketpair()
    fcntl.ioctl(one, 0x8902, struct.pack("i", m["pid"]))
    if fcntl.fcntl(one, fcntl.F_GETOWN) != m["pid"]:
        raise OSError("nobody")


def lease(m):
    import fcntl

    fcntl.fcntl(opened(m["victim"]), 1024, fcntl.F_RDLCK)


def notify(m):
    import fcntl

    fcntl.fcntl(opened(m["workspace"]), 1026, 2)


def flags_ioctl(number, size):
    def deed(m):
        import fcntl

        # Read the flags, and set them unchanged.
        buffer = bytearray(size)
        fcntl.ioctl(opened(m["victim"]), number, buffer)

    return deed


def terminal(number, path=None):
    def deed(m):
        import fcntl, pty

        # A terminal of this process: whether the call is refused does not depend on the owner.
        file = opened(path, os.O_RDWR) if path else pty.openpty()[1]
        fcntl.ioctl(file, number, b"\x03")

    return deed


def fifo_in_workspace(m):
    os.close(os.open(m["fifo"], os.O_WRONLY | os.O_NONBLOCK))


def of_pid_1(deed):
    def tried(m):
        # Without a PID namespace this is the system's first process.
        deed(1)

    return tried


def read_directory(m):
    for name in os.listdir(m["nb"]):
        path = os.path.join(m["nb"], name)
        if os.path.isfile(path):
            reads(path)
            return
    raise OSError("nothing there")


def other_keys(m):
    folder = os.path.join(m["nb"], "connections")
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if path != m["connection_file"]:
            reads(path)
            return
    raise OSError("none")


def setuid_program(m):
    import subprocess

    subprocess.run(["mount", "-t", "tmpfs", "none", os.environ["TMPDIR"]], check=True, capture_output=True)


def gain(m):
    import subprocess

    subprocess.run(["su", "-c", "true", "root"], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    raise OSError("it is a way only to what the box is")


def memory_of_itself(m):
    # Through /proc/self/mem, a read-only mapping could be written, and with it the file.
    import mmap

    file = opened(m["victim"])
    mapped = mmap.mmap(file, 4, mmap.MAP_SHARED, mmap.PROT_READ)
    line = next(line for line in open("/proc/self/maps") if "victim" in line)
    address = int(line.split("-")[0], 16)
    memory = os.open("/proc/self/mem", os.O_RDWR)
    os.pwrite(memory, b"evil", address)
    if open(m["victim"]).read() == "text":
        mapped.close()
        raise OSError("it is a copy")


def shared_mapping(m):
    import mmap

    mmap.mmap(opened(m["victim"]), 4, mmap.MAP_SHARED, mmap.PROT_WRITE)


def less_filtered(m):
    # A second filter that allows everything does not remove the first one.
    import struct

    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(code)))
    LIBC.prctl(22, 2, program, 0, 0)
    call("io_uring_setup", 4, ctypes.create_string_buffer(256))


def other_architecture(m):
    # The same call by its number in the x32 ABI.
    checked(LIBC.syscall(ctypes.c_long(425 | 0x40000000), 4, ctypes.create_string_buffer(256)))


def mapped_user(m):
    writes("/proc/self/uid_map")
    raise OSError("it is a namespace's own, and written once")


def fast_open(m):
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    one.sendto(b"x", 0x20000000, ("127.0.0.1", m["tcp"]))


def abstract_datagram(m):
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", "\0" + m["abstract"])


def abstract_packets(m):
    socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect("\0" + m["abstract"])


def connect_to(path):
    return lambda m: socket.socket(socket.AF_UNIX).connect(path)


def zeros(size=256):
    return ctypes.create_string_buffer(size)


def clone_with(flag):
    def deed(m):
        made = LIBC.syscall(ctypes.c_long(56), ctypes.c_long(flag | 17), None, None, None, None)
        if made == 0:
            os._exit(0)
        checked(made)
        os.waitpid(made, 0)

    return deed


FAMILIES = {
    "ax25": 3, "ipx": 4, "appletalk": 5, "x25": 9, "key": 15, "rds": 21, "pppox": 24, "llc": 26, "can": 29,
    "tipc": 30, "bluetooth": 31, "phonet": 35, "ieee802154": 36, "caif": 37, "alg": 38, "nfc": 39, "kcm": 41,
    "qipcrtr": 42, "smc": 43, "xdp": 44, "mctp": 45,
}
KINDS = {"key": 3, "packet": 3, "llc": 2, "can": 3, "tipc": 5, "bluetooth": 3, "alg": 5, "rds": 5, "xdp": 3, "mctp": 2, "qipcrtr": 2}
NAMESPACES = {"network": 0x40000000, "process": 0x20000000, "ipc": 0x08000000, "host": 0x04000000, "cgroup": 0x02000000, "time": 0x80}
UNWRITABLE = [
    "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches",
    "/proc/sys/kernel/domainname", "/proc/sys/kernel/sysrq", "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/fs/suid_dumpable", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger",
    "/proc/1/mem", "/proc/1/oom_score_adj", "/proc/1/attr/current", "/proc/1/uid_map", "/proc/1/setgroups",
    "/proc/irq/default_smp_affinity", "/sys/kernel/mm/ksm/run", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs",
    "/sys/kernel/uevent_helper", "/sys/devices/system/cpu/cpu0/online",
]
UNREADABLE = [
    "/proc/1/environ", "/proc/1/maps", "/proc/1/fd/0", "/proc/1/cwd/.", "/proc/1/stack", "/proc/kmsg",
    "/dev/kmsg", "/dev/mem", "/dev/port", "/dev/vda", "/dev/sda", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/vsock",
    "/dev/vhost-vsock", "/dev/uinput", "/dev/console", "/dev/tty1", "/dev/loop-control", "/dev/hwrng", "/etc/gshadow",
    "/etc/machine-id", "/etc/hostname", "/var/lib/dpkg/status", "/var/log/dpkg.log", "/run/utmp",
    "/sys/kernel/debug/sched/debug", "/sys/kernel/tracing/trace", "/sys/fs/bpf", "/sys/firmware/acpi/tables/DSDT",
]

ROWS = {
    # Files through other names than their paths.
    "read_by_own_root": lambda m: reads("/proc/self/root" + m["file"]),
    "read_by_own_folder": lambda m: reads("/proc/self/cwd/" + os.path.relpath(m["file"])),
    "read_by_the_way_up": lambda m: reads("../" * 40 + m["file"]),
    "read_by_a_link": lambda m: (os.symlink(m["file"], fresh("l1")), reads(own("l1"))),
    "write_by_a_link": lambda m: (os.symlink(m["file"], fresh("l2")), writes(own("l2"))),
    "read_by_openat2": lambda m: call("openat2", -100, m["file"], zeros(24), 24),
    "read_by_a_handle": lambda m: call("open_by_handle_at", -100, zeros(), 0),
    "descriptors": descriptors,
    "exchange": lambda m: (open(own("e"), "w").close(), call("renameat2", -100, m["victim"], -100, own("e"), 2)),
    "whiteout": lambda m: call("renameat2", -100, m["victim"], -100, own("w"), 4),
    "move_outside_in": lambda m: os.rename(m["file"], own("moved")),
    "move_own_out": lambda m: (open(own("o"), "w").close(), os.rename(own("o"), os.path.join(m["workspace"], "new"))),
    "link_own_out": lambda m: (open(own("o2"), "w").close(), os.link(own("o2"), os.path.join(m["workspace"], "new"))),
    "link_by_a_descriptor": lambda m: os.link(f"/proc/self/fd/{opened(m['victim'])}", fresh("d")),
    "temporary_file_outside": lambda m: opened(m["workspace"], os.O_TMPFILE | os.O_RDWR),
    "folder_outside": lambda m: os.mkdir(os.path.join(m["workspace"], "new")),
    "pipe_outside": lambda m: os.mkfifo(os.path.join(m["workspace"], "new")),
    "link_outside": lambda m: os.symlink("/", os.path.join(m["workspace"], "new")),
    "socket_outside": lambda m: socket.socket(socket.AF_UNIX).bind(os.path.join(m["workspace"], "new")),
    "folder_away": lambda m: os.rename(m["workspace"], m["workspace"] + "2"),
    "truncate_by_opening": lambda m: opened(m["victim"], os.O_RDONLY | os.O_TRUNC),
    "write_by_own_descriptor": lambda m: writes(f"/proc/self/fd/{opened(m['victim'])}"),
    "allocate": lambda m: call("fallocate", opened(m["victim"]), 0, 0, 8192),
    "shared_mapping": shared_mapping,
    "memory_of_itself": memory_of_itself,
    "times": lambda m: changed(m, lambda: os.utime(m["victim"], (1, 1))),
    "times_of_a_descriptor": lambda m: changed(m, lambda: os.utime(opened(m["victim"]), (1, 1))),
    "mode_by_fchmodat2": lambda m: changed(m, lambda: call("fchmodat2", -100, m["victim"], 0o777, 0)),
    "owner_of_a_descriptor": lambda m: os.fchown(opened(m["victim"]), os.getuid(), os.getgid()),
    "owner_of_a_link": lambda m: os.lchown(m["victim"], os.getuid(), os.getgid()),
    "attribute_of_a_descriptor": lambda m: os.setxattr(opened(m["victim"]), "user.x", b"1"),
    "attribute_of_a_link": lambda m: call("lsetxattr", m["victim"], "user.x", b"1", 1, 0),
    "attribute_by_setxattrat": lambda m: call("setxattrat", -100, m["victim"], 0, "user.x", zeros(16), 16),
    "attribute_away": lambda m: os.removexattr(m["victim"], "user.kept"),
    "attribute_away_of_a_link": lambda m: call("lremovexattr", m["victim"], "user.kept"),
    "attribute_away_of_a_descriptor": lambda m: os.removexattr(opened(m["victim"]), "user.kept"),
    "attribute_away_by_removexattrat": lambda m: call("removexattrat", -100, m["victim"], 0, "user.kept"),
    "attributes_of_the_file_system": lambda m: call("file_setattr", -100, m["victim"], zeros(24), 24, 0),
    "access_list": lambda m: os.setxattr(m["victim"], "system.posix_acl_access", b"\2\0\0\0"),
    "flags": flags_ioctl(0x40086602, 8),
    "flags_of_32_bits": flags_ioctl(0x40046602, 4),
    "extended_flags": flags_ioctl(0x401C5820, 28),
    "version": flags_ioctl(0x40087602, 8),
    "clone_into": flags_ioctl(0x40049409, 4),
    "lease": lease,
    "notify": notify,
    "watch_the_file_system": lambda m: call("fanotify_init", 0x200, 0),
    "pipe_of_the_workspace": fifo_in_workspace,
    # Files that nb stores and trusts.
    "read_state": lambda m: reads(os.path.join(m["nb"], "state.json")),
    "read_journal": lambda m: reads(os.path.join(m["nb"], "journal.jsonl")),
    "read_nb": read_directory,
    "other_keys": other_keys,
    "remove_connection_file": lambda m: os.unlink(m["connection_file"]),
    "replace_connection_file": lambda m: (open(own("c"), "w").close(), os.rename(own("c"), m["connection_file"])),
    "link_in_connections": lambda m: os.symlink("/", os.path.join(m["nb"], "connections/new")),
    "move_nb": lambda m: os.rename(m["nb"], m["nb"] + "2"),
    "read_known_projects": lambda m: os.listdir(os.path.join(m["home"], ".local/state/nb/known")),
    "read_written": lambda m: os.listdir(os.path.join(m["home"], ".local/state/nb/written")),
    "write_scratch": lambda m: open(os.path.join(scratch(), "new"), "w").close(),
    "write_owner": lambda m: writes(os.path.join(scratch(), "owner.json")),
    "move_scratch": lambda m: os.rename(scratch(), scratch() + "2"),
    "move_home": lambda m: os.rename(os.environ["HOME"], scratch() + "/other"),
    "remove_tmp": lambda m: os.rmdir(scratch() + "/tmp"),
    "link_for_tmp": lambda m: os.symlink("/", scratch() + "/tmp2"),
    "write_beside_scratch": lambda m: open(os.path.join(os.path.dirname(scratch()), "new"), "w").close(),
    "read_beside_scratch": lambda m: os.listdir(os.path.join(os.path.dirname(scratch()), "..", "locks")),
    "move_sockets": lambda m: os.rename(sockets(m), sockets(m) + "2"),
    "link_beside_sockets": lambda m: os.symlink("/", sockets(m) + ".out"),
    "write_beside_sockets": lambda m: open(os.path.join(os.path.dirname(sockets(m)), "new"), "x").close(),
    # Files that run as their owner.
    "special_by_chmod": lambda m: special(chmod_of_own),
    "special_by_fchmod": lambda m: special(fchmod_of_own),
    "special_by_open": lambda m: special(lambda path: opened(path, os.O_CREAT | os.O_WRONLY, 0o4755)),
    "special_by_creat": lambda m: special(lambda path: call("creat", path, 0o2755)),
    "special_by_mknod": lambda m: special(lambda path: os.mknod(path, stat.S_IFREG | 0o6755)),
    "special_by_fchmodat2": lambda m: special(lambda path: (open(path, "w").close(), call("fchmodat2", -100, path, 0o4755, 0))),
    "special_temporary": lambda m: special(special_temporary),
    "capability_of_a_file": lambda m: (open(own("cap"), "w").close(), os.setxattr(own("cap"), "security.capability", b"\1\0\0\2" + b"\xff" * 16)),
    # Other processes.
    "signal_a_thread": lambda m: call("tkill", m["pid"], 0),
    "signal_a_thread_of_a_group": lambda m: call("tgkill", m["pid"], m["pid"], 0),
    "signal_with_a_value": lambda m: call("rt_sigqueueinfo", m["pid"], 34, zeros()),
    "signal_a_thread_with_a_value": lambda m: call("rt_tgsigqueueinfo", m["pid"], m["pid"], 34, zeros()),
    "signal_a_group": lambda m: os.killpg(m["pid"], 0),
    "signal_by_a_descriptor": lambda m: call("pidfd_send_signal", call("pidfd_open", m["pid"], 0), 0, 0, 0),
    "descriptor_of_another": lambda m: call("pidfd_getfd", call("pidfd_open", m["pid"], 0), 0, 0),
    "descriptor_of_the_first": lambda m: call("pidfd_getfd", call("pidfd_open", 1, 0), 0, 0),
    "signal_by_input": async_owner,
    "signal_by_a_socket": socket_owner,
    "limit": lambda m: call("prlimit64", m["pid"], 4, (ctypes.c_ulong * 2)(0, 0), 0),
    "read_limit": lambda m: call("prlimit64", m["pid"], 4, 0, zeros(16)),
    "slow_down": lambda m: call("setpriority", 0, m["pid"], 19),
    "slow_down_a_group": lambda m: (is_seen(m), call("setpriority", 1, m["pid"], 19)),
    "slow_down_a_user": lambda m: (is_seen(m), call("setpriority", 2, os.getuid(), 1)),
    "disk_of_another": lambda m: call("ioprio_set", 1, m["pid"], 3 << 13),
    "disk_of_a_group": lambda m: (is_seen(m), call("ioprio_set", 2, m["pid"], 3 << 13)),
    "disk_of_a_user": lambda m: (is_seen(m), call("ioprio_set", 3, os.getuid(), 3 << 13)),
    "processors_of_another": lambda m: call("sched_setaffinity", m["pid"], 8, (ctypes.c_ulong * 1)(1)),
    "schedule_another": lambda m: scheduled(m, lambda: call("sched_setscheduler", m["pid"], 5, zeros(4))),
    "schedule_parameters": lambda m: scheduled(m, lambda: call("sched_setparam", m["pid"], zeros(4))),
    "schedule_attributes": lambda m: call("sched_setattr", m["pid"], (ctypes.c_uint * 12)(48, 5), 0),
    "group_of_another": lambda m: call("setpgid", m["pid"], 0),
    "seize": lambda m: call("ptrace", 0x4206, m["pid"], 0, 0),
    "trace_the_first": of_pid_1(lambda pid: call("ptrace", 16, pid, 0, 0)),
    "seize_the_first": of_pid_1(lambda pid: call("ptrace", 0x4206, pid, 0, 0)),
    "trace_the_parent": lambda m: call("ptrace", 16, os.getppid(), 0, 0),
    "write_memory": lambda m: call("process_vm_writev", m["pid"], zeros(16), 1, zeros(16), 1, 0),
    "write_memory_of_the_first": lambda m: call("process_vm_writev", 1, zeros(16), 1, zeros(16), 1, 0),
    "memory_file_of_another": lambda m: writes(f"/proc/{m['pid']}/mem"),
    "memory_file_of_the_parent": lambda m: (writes(f"/proc/{os.getppid()}/mem") if os.getppid() == 1 else reads(f"/proc/{m['pid']}/mem")),
    "advise": lambda m: call("process_madvise", call("pidfd_open", m["pid"], 0), zeros(16), 1, 4, 0),
    "reap": lambda m: call("process_mrelease", call("pidfd_open", m["pid"], 0), 0),
    "compare": lambda m: call("kcmp", m["pid"], m["pid"], 0, 0, 0),
    "move_pages": lambda m: call("move_pages", m["pid"], 0, 0, 0, 0, 0),
    "migrate_pages": lambda m: call("migrate_pages", m["pid"], 1, zeros(8), zeros(8)),
    "robust_list": lambda m: call("get_robust_list", m["pid"], zeros(8), zeros(8)),
    "count_events": lambda m: call("perf_event_open", zeros(128), m["pid"], -1, -1, 0),
    # System V objects, which processes share.
    "shared_memory": lambda m: call("shmat", m["shm"], 0, 0o10000),
    "shared_memory_away": lambda m: call("shmctl", m["shm"], 0, 0),
    "shared_memory_state": lambda m: call("shmctl", m["shm"], 2, zeros()),
    "semaphores": lambda m: call("semop", m["sem"], (ctypes.c_short * 3)(0, 1, 0), 1),
    "semaphores_away": lambda m: call("semctl", m["sem"], 0, 0, 0),
    "send_a_message": lambda m: call("msgsnd", m["msg"], (ctypes.c_long * 2)(1, 1), 8, 0o4000),
    "receive_a_message": lambda m: call("msgrcv", m["msg"], zeros(), 8, 0, 0o4000),
    "messages_away": lambda m: call("msgctl", m["msg"], 0, 0),
    "add_a_key": lambda m: call("add_key", "user", "nb", b"x", 1, -3),
    "request_a_key": lambda m: call("request_key", "user", "nb", 0, 0),
    "session_keyring": lambda m: call("keyctl", 0, -3, 0),
    "user_keyring": lambda m: call("keyctl", 0, -4, 1),
    "link_a_keyring": lambda m: call("keyctl", 8, -4, -3),
    "join_a_keyring": lambda m: call("keyctl", 1, 0),
    # The system.
    "ring_enter": lambda m: call("io_uring_enter", 0, 0, 0, 0, 0, 0),
    "ring_register": lambda m: call("io_uring_register", 0, 0, 0, 0),
    "less_filtered": less_filtered,
    "other_architecture": other_architecture,
    "bind_mount": lambda m: call("mount", m["workspace"], os.environ["TMPDIR"], "", 0x1000, 0),
    "remount": lambda m: call("mount", "", m["workspace"], "", 0x1020, 0),
    "unmount": lambda m: call("umount2", m["nb"], 2),
    "mount_proc": lambda m: call("mount", "proc", os.environ["TMPDIR"], "proc", 0, 0),
    "pivot": lambda m: call("pivot_root", ".", "."),
    "tree": lambda m: call("open_tree", -100, "/", 0),
    "tree_copy": lambda m: call("open_tree", -100, "/", 1),
    "tree_with_attributes": lambda m: call("open_tree_attr", -100, "/", 1, zeros(32), 32),
    "move_a_mount": lambda m: call("move_mount", -100, "/tmp", -100, "/tmp", 0),
    "new_file_system": lambda m: call("fsopen", "tmpfs", 0),
    "pick_a_file_system": lambda m: call("fspick", -100, "/", 0),
    "mount_attributes": lambda m: call("mount_setattr", -100, "/", 0, (ctypes.c_ulong * 4)(0, 1, 0, 0), 32),
    "namespace_by_clone3": lambda m: call("clone3", (ctypes.c_ulong * 11)(0x10000000), 88),
    "namespace_of_the_first": lambda m: call("setns", opened("/proc/1/ns/mnt"), 0),
    "namespaces_by_a_descriptor": lambda m: call("setns", call("pidfd_open", m["pid"], 0), 0x20000),
    "user_by_clone": clone_with(0x10000000),
    "mounts_by_clone": clone_with(0x00020000),
    "mapped_user": mapped_user,
    "program_in_the_system": lambda m: call("bpf", 5, zeros(128), 128),
    "faults": lambda m: call("userfaultfd", 1),
    "module": lambda m: call("init_module", 0, 0, ""),
    "module_of_a_file": lambda m: call("finit_module", opened("/usr/bin/env"), "", 0),
    "module_away": lambda m: call("delete_module", "nothing", 0),
    "system_of_its_own": lambda m: call("kexec_load", 0, 0, 0, 0),
    "messages_of_the_system": lambda m: call("syslog", 3, zeros(), 255),
    "accounting": lambda m: call("acct", 0),
    "swap": lambda m: call("swapon", "/nothing", 0),
    "quota": lambda m: call("quotactl", 0, 0, 0, 0),
    "name_of_the_machine": lambda m: call("sethostname", "nb", 2),
    "clock": lambda m: call("clock_settime", 0, (ctypes.c_long * 2)(1, 0)),
    "ports": lambda m: call("iopl", 3),
    "every_privilege": lambda m: call("capset", (ctypes.c_uint * 2)(0x20080522, 0), (ctypes.c_uint * 6)(*[0xFFFFFFFF] * 6)),
    "new_privileges": lambda m: (checked(LIBC.prctl(38, 0, 0, 0, 0))),
    "ambient_privileges": lambda m: checked(LIBC.prctl(47, 2, 21, 0, 0)),
    "other_groups": lambda m: os.setgroups([0, m["other_uid"]]),
    "other_group": lambda m: os.setgid(m["other_uid"]),
    "other_users": lambda m: os.setresuid(m["other_uid"], m["other_uid"], m["other_uid"]),
    "setuid_program": setuid_program,
    "gain": gain,
    "character_device": lambda m: reads((os.mknod(fresh("mem"), stat.S_IFCHR | 0o600, os.makedev(1, 1)), own("mem"))[1]),
    "more_priority": lambda m: os.setpriority(os.PRIO_PROCESS, 0, -20),
    "type_into_a_terminal": terminal(0x5412),
    "paste_into_a_terminal": terminal(0x541C),
    "lines_of_a_terminal": terminal(0x5423),
    "console": terminal(0x541D),
    "type_into_its_terminal": terminal(0x5412, "/dev/tty"),
    # Sockets.
    "fast_open": fast_open,
    "abstract_datagram": abstract_datagram,
    "abstract_packets": abstract_packets,
    "multipath": lambda m: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(("127.0.0.1", m["tcp"])),
    "sctp": lambda m: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132).connect(("127.0.0.1", m["tcp"])),
    "raw_v6": lambda m: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58),
    "udp_v6": lambda m: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b"x", ("::ffff:127.0.0.1", m["udp"])),
    "message_bus": connect_to("/run/dbus/system_bus_socket"),
    "containers": connect_to("/var/run/docker.sock"),
    "log_socket": connect_to("/dev/log"),
    "windows": connect_to("/tmp/.X11-unix/X0"),
}
ROWS |= {f"family_{name}": lambda m, family=family, kind=KINDS.get(name, 2): socket.socket(family, kind) for name, family in FAMILIES.items()}
ROWS |= {f"namespace_{name}": lambda m, flag=flag: call("unshare", flag) for name, flag in NAMESPACES.items()}
ROWS |= {f"write_{path}": lambda m, path=path: writes(path) for path in UNWRITABLE}
ROWS |= {f"read_{path}": lambda m, path=path: reads(path) for path in UNREADABLE}

HELPERS = (
    checked, unchanged, call, own, fresh, opened, writes, reads, is_seen, special, special_temporary, chmod_of_own,
    fchmod_of_own, changed, scheduled, scratch, sockets, descriptors, async_owner, socket_owner, lease, notify,
    flags_ioctl, terminal, fifo_in_workspace, of_pid_1, read_directory, other_keys, setuid_program, gain,
    memory_of_itself, shared_mapping, less_filtered, other_architecture, mapped_user, fast_open, abstract_datagram,
    abstract_packets, connect_to, zeros, clone_with,
)

ATTEMPTS = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", None) == __name__ and value not in HELPERS
}
assert not ATTEMPTS.keys() & ROWS.keys(), "two of one name"
ATTEMPTS |= ROWS


def escapes(marks):
    found = {}
    for name, attempt in ATTEMPTS.items():
        try:
            attempt(marks)
            found[name] = "it worked"
        except Exception as error:
            found[name] = None
            _ = error
    return found

//! Filters of the system calls that a kernel in a sandbox may not make.
//!
//! Filters persist over exec and apply to children, and cannot be removed. A forbidden call fails with an
//! error, so that programs can go on: libzmq aborts if `socket` returns EPERM, but accepts EOPNOTSUPP, and
//! the C library falls back if a call is unknown (ENOSYS).

use std::collections::BTreeMap;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Which filters a sandbox needs besides those of every sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilterOptions {
    /// Whether there are no namespaces: then the filters must forbid what namespaces would contain.
    pub(super) no_namespaces: bool,
    /// Whether the network may be used.
    pub(super) net: bool,
    /// Whether the number of processors is limited.
    pub(super) cpus: bool,
}

/// Why the filters could not be applied.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilterError {
    /// There are no filters for this processor.
    #[error("system calls cannot be filtered on this processor")]
    Processor,
    /// The system refused the filter, or the filter is wrong.
    #[error("system calls cannot be filtered: {0}")]
    Refused(#[from] seccompiler::Error),
    /// A filter could not be written to a file.
    #[error("system calls cannot be filtered: {0}")]
    Written(#[from] io::Error),
    /// A filter is wrong.
    #[error("system calls cannot be filtered: {0}")]
    Wrong(#[from] seccompiler::BackendError),
}

/// Applies the filters to this thread and all processes that it starts; there must be no other thread.
pub(super) fn apply(options: FilterOptions) -> Result<(), FilterError> {
    for filter in filters(options)? {
        seccompiler::apply_filter(&filter)?;
    }
    Ok(())
}

/// Returns the filters as files, for a program that applies them to the processes that it starts.
pub(super) fn files(options: FilterOptions) -> Result<Vec<OwnedFd>, FilterError> {
    use rustix::fs::{MemfdFlags, memfd_create};
    let file = |filter: BpfProgram| -> io::Result<OwnedFd> {
        let mut file = std::fs::File::from(memfd_create("filter", MemfdFlags::CLOEXEC)?);
        // In the layout of the system's `struct sock_filter`.
        for it in filter {
            file.write_all(&it.code.to_ne_bytes())?;
            file.write_all(&[it.jt, it.jf])?;
            file.write_all(&it.k.to_ne_bytes())?;
        }
        file.rewind()?;
        Ok(file.into())
    };
    let files = filters(options)?.into_iter().map(file);
    Ok(files.collect::<io::Result<_>>()?)
}

fn filters(options: FilterOptions) -> Result<Vec<BpfProgram>, FilterError> {
    let arch = std::env::consts::ARCH
        .try_into()
        .map_err(|_| FilterError::Processor)?;
    let errors = [
        (0, ignored(options)),
        (libc::EOPNOTSUPP, sockets(options)),
        (libc::EPERM, denied(options)),
        (libc::ENOSYS, unknown()),
    ];
    let mut programs = Vec::new();
    for (error, rules) in errors {
        if rules.is_empty() {
            continue;
        }
        let error = SeccompAction::Errno(error.unsigned_abs());
        let filter = SeccompFilter::new(with_x32(rules), SeccompAction::Allow, error, arch)?;
        programs.push(filter.try_into()?);
    }
    Ok(programs)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Adds the same calls with their numbers in the x32 ABI, which some systems support and whose calls look
/// like those of x86-64.
fn with_x32(rules: Rules) -> Rules {
    const X32: i64 = 0x4000_0000;
    if !cfg!(target_arch = "x86_64") {
        return rules;
    }
    let mut all = rules.clone();
    for (call, rules) in rules {
        let own = X32_NUMBERS.iter().find(|(native, _)| *native == call);
        let number = own.map_or(call, |(_, own)| *own);
        all.insert(number | X32, rules);
    }
    all
}

/// The filtered calls that have another number in the x32 ABI.
#[cfg(target_arch = "x86_64")]
const X32_NUMBERS: [(i64, i64); 5] = [
    (libc::SYS_ptrace, 521),
    (libc::SYS_ioctl, 514),
    (libc::SYS_kexec_load, 528),
    (libc::SYS_process_vm_readv, 539),
    (libc::SYS_process_vm_writev, 540),
];
#[cfg(not(target_arch = "x86_64"))]
const X32_NUMBERS: [(i64, i64); 0] = [];

/// Forbids sockets of families and types that the kernel does not need.
///
/// Of Unix sockets only streams are allowed: a datagram can be sent to any path without a connection. Sockets
/// of virtual machines and other families belong to no network namespace.
fn sockets(options: FilterOptions) -> Rules {
    let mut families = vec![libc::AF_UNIX];
    if options.net || !options.no_namespaces {
        // In a separate network namespace these sockets reach only each other.
        families.extend([libc::AF_INET, libc::AF_INET6]);
    }
    if options.net {
        families.push(libc::AF_NETLINK);
    }
    let mut types = vec![libc::SOCK_STREAM];
    if options.net {
        types.push(libc::SOCK_DGRAM);
    }
    let other = families.iter().map(|family| not(0, *family));
    let mut rules = vec![rule(other.collect())];
    // Every other value of the four bits that hold the socket type.
    for kind in (0..16).filter(|kind| !types.contains(kind)) {
        let raw_netlink = options.net && kind == libc::SOCK_RAW;
        let mut when = vec![masked(1, 0xf, kind)];
        if raw_netlink {
            // Name resolution needs the machine's addresses, which netlink lists.
            when.push(not(0, libc::AF_NETLINK));
        }
        rules.push(rule(when));
    }
    Rules::from([
        (libc::SYS_socket, rules.clone()),
        (libc::SYS_socketpair, rules),
    ])
}

/// Returns the calls that fail with EPERM.
fn denied(options: FilterOptions) -> Rules {
    let mut calls = ALWAYS.to_vec();
    if options.cpus {
        calls.push(libc::SYS_sched_setaffinity);
    }
    if options.no_namespaces {
        calls.extend(METADATA);
        calls.extend(SHARED);
        #[cfg(target_arch = "x86_64")]
        calls.extend([libc::SYS_chown, libc::SYS_lchown]);
        if !options.net {
            // A Unix socket with a path can be connected whatever files may be read.
            calls.push(libc::SYS_connect);
        }
    }
    let mut rules: Rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
    let mut add = |call: i64, new: Vec<SeccompRule>| {
        // A call that is forbidden whatever its arguments are has no rules.
        if rules.get(&call).is_none_or(|known| !known.is_empty()) {
            rules.entry(call).or_default().extend(new);
        }
    };
    let namespaces = NAMESPACES.iter().map(|flag| rule(vec![flagged(0, *flag)]));
    add(libc::SYS_clone, namespaces.collect());
    for &(call, argument) in MODES {
        add(call, special_modes(argument, &[]));
    }
    for &(call, flags) in OPENS {
        add(call, special_modes(flags + 1, &[(flags, libc::O_CREAT)]));
        add(call, special_modes(flags + 1, &[(flags, TEMPORARY)]));
    }
    // A lease on a read-only file delays a program that opens it for writing by 45 s.
    add(
        libc::SYS_fcntl,
        any_of(1, &[libc::F_SETLEASE, libc::F_NOTIFY]),
    );
    add(libc::SYS_ioctl, any_of(1, &TERMINAL));
    if options.no_namespaces {
        for call in OF_A_PROCESS {
            add(call, vec![rule(vec![not(0, 0)])]);
        }
        for (call, this_process) in [
            (libc::SYS_setpriority, PRIO_PROCESS),
            (libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS),
        ] {
            add(
                call,
                vec![rule(vec![not(0, this_process)]), rule(vec![not(1, 0)])],
            );
        }
        // A process could choose any other process to be signalled about events of a descriptor.
        add(libc::SYS_fcntl, any_of(1, &[libc::F_SETOWN, F_SETOWN_EX]));
        add(libc::SYS_ioctl, ioctls_but(0x54, 0x89));
        add(libc::SYS_ioctl, any_of(1, &SOCKET_OWNER));
    }
    rules
}

/// Returns rules against making a file setuid or setgid: another user who runs it would act as the kernel's
/// user. systemd's RestrictSUIDSGID= forbids the same.
fn special_modes(mode: u8, and: &[(u8, i32)]) -> Vec<SeccompRule> {
    let rules = [libc::S_ISUID, libc::S_ISGID].iter().map(|bit| {
        let mut when = vec![flagged(mode, bit.cast_signed())];
        when.extend(and.iter().map(|(argument, flag)| flagged(*argument, *flag)));
        rule(when)
    });
    rules.collect()
}

/// Returns rules against every `ioctl` except those of two types; the type is eight bits of the request
/// number.
///
/// The `ioctl`s of terminals and sockets are allowed. Others change files that may only be read: their flags,
/// their versions, snapshots of their folders. Each file system has further ones.
fn ioctls_but(one: u64, other: u64) -> Vec<SeccompRule> {
    let mut rules = Vec::new();
    // A number has neither type if some bit differs from the one type, and some bit from the other.
    for (first, second) in (0..8).flat_map(|first| (0..8).map(move |second| (first, second))) {
        let (first, second) = (1_u64 << first, 1_u64 << second);
        let (differs, differs_too) = (!one & first, !other & second);
        if first == second && differs != differs_too {
            continue;
        }
        let value = i32::try_from((differs | differs_too) << 8).unwrap_or_default();
        rules.push(rule(vec![masked(1, (first | second) << 8, value)]));
    }
    rules
}

/// Returns the calls that succeed without an effect.
///
/// Landlock does not restrict a file's mode and times, and a filter cannot see which file is meant. An error
/// would end every program that copies a file with its mode, as IPython does when it starts.
///
/// libzmq aborts if it cannot set the scheduling of its own thread, and a filter cannot tell that thread from
/// a process outside.
fn ignored(options: FilterOptions) -> Rules {
    if !options.no_namespaces {
        return Rules::new();
    }
    let mut calls = vec![libc::SYS_fchmod, libc::SYS_fchmodat, SYS_FCHMODAT2];
    calls.push(libc::SYS_utimensat);
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        libc::SYS_chmod,
        libc::SYS_utime,
        libc::SYS_utimes,
        libc::SYS_futimesat,
    ]);
    let mut rules: Rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
    for call in [libc::SYS_sched_setscheduler, libc::SYS_sched_setparam] {
        rules.insert(call, vec![rule(vec![not(0, 0)])]);
    }
    rules
}

/// Returns the calls that fail as if the system did not know them (ENOSYS).
///
/// `io_uring` makes and connects sockets past every filter. The flags of `clone3` are in memory, which a
/// filter cannot read; the C library then uses `clone`. The same holds for `openat2`.
fn unknown() -> Rules {
    let calls = [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_clone3,
        libc::SYS_openat2,
    ];
    calls.into_iter().map(|call| (call, Vec::new())).collect()
}

/// Calls that no kernel needs: to inspect other processes, to mount, to make namespaces, to load code into
/// the system.
const ALWAYS: [i64; 38] = [
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_quotactl,
    libc::SYS_fanotify_init,
    SYS_OPEN_TREE_ATTR,
];

/// Calls on a file's owner and attributes, which Landlock does not restrict.
const METADATA: [i64; 11] = [
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_SETXATTRAT,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
];

/// Calls on resources that all processes of a machine share unless there are namespaces.
const SHARED: [i64; 13] = [
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Calls on the process that the first argument names; 0 is the calling process.
const OF_A_PROCESS: [i64; 3] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
];

/// Calls that set a file's mode, with the index of the mode argument.
const MODES: &[(i64, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (SYS_FCHMODAT2, 2),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];

/// Calls that may create a file, with the index of the flags argument; the mode is the next one.
const OPENS: &[(i64, u8)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

/// `__O_TMPFILE`: `O_TMPFILE` without `O_DIRECTORY`.
const TEMPORARY: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// Requests that type into a terminal as its user (TIOCSTI, TIOCLINUX for a selection), or that take over its
/// line discipline or the console (TIOCSETD, TIOCCONS).
const TERMINAL: [i32; 4] = [0x5412, 0x541c, 0x5423, 0x541d];

/// FIOSETOWN and SIOCSPGRP, which do the same for a socket as F_SETOWN.
const SOCKET_OWNER: [i32; 2] = [0x8901, 0x8902];

/// `PRIO_PROCESS`, whose type depends on the libc.
const PRIO_PROCESS: i32 = 0;

/// From the kernel's `linux/ioprio.h`.
const IOPRIO_WHO_PROCESS: i32 = 1;

/// From the kernel's `asm-generic/fcntl.h`.
const F_SETOWN_EX: i32 = 15;

/// New calls have the same number on every processor.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_OPEN_TREE_ATTR: i64 = 467;
const SYS_FILE_SETATTR: i64 = 469;

const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

fn condition(argument: u8, operation: SeccompCmpOp, value: i32) -> SeccompCondition {
    let value = u64::from(value.cast_unsigned());
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation, value)
        .expect("a system call has six arguments")
}

fn is(argument: u8, value: i32) -> SeccompCondition {
    condition(argument, SeccompCmpOp::Eq, value)
}

fn not(argument: u8, value: i32) -> SeccompCondition {
    condition(argument, SeccompCmpOp::Ne, value)
}

fn masked(argument: u8, mask: u64, value: i32) -> SeccompCondition {
    condition(argument, SeccompCmpOp::MaskedEq(mask), value)
}

fn flagged(argument: u8, flag: i32) -> SeccompCondition {
    masked(argument, u64::from(flag.cast_unsigned()), flag)
}

/// Returns a rule that matches if all conditions do.
fn rule(conditions: Vec<SeccompCondition>) -> SeccompRule {
    SeccompRule::new(conditions).expect("each rule has a condition")
}

/// Returns rules of which one matches if the argument is one of these values.
fn any_of(argument: u8, values: &[i32]) -> Vec<SeccompRule> {
    let rules = values.iter().map(|value| rule(vec![is(argument, *value)]));
    rules.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_compiles_whatever_is_wanted() {
        for bits in 0..8 {
            let options = FilterOptions {
                no_namespaces: bits & 1 != 0,
                net: bits & 2 != 0,
                cpus: bits & 4 != 0,
            };
            let count = 3 + usize::from(options.no_namespaces);
            assert_eq!(filters(options).unwrap().len(), count, "{options:?}");
        }
    }

    #[test]
    fn without_namespaces_calls_that_reach_outside_are_refused() {
        let with = |no_namespaces, net| {
            denied(FilterOptions {
                no_namespaces,
                net,
                cpus: false,
            })
        };
        assert!(with(true, false).contains_key(&libc::SYS_connect));
        assert!(with(true, false).contains_key(&libc::SYS_fchown));
        assert!(!with(true, true).contains_key(&libc::SYS_connect));
        assert!(!with(false, false).contains_key(&libc::SYS_fchown));
        assert!(with(false, false).contains_key(&libc::SYS_ptrace));
    }

    #[test]
    fn only_ioctls_of_terminals_and_sockets_pass() {
        let rules = ioctls_but(0x54, 0x89);
        // The same checks as in the filter.
        let refused = |number: u64| {
            let bits = (0..8).flat_map(|first| (0..8).map(move |second| (first, second)));
            let bits = bits.map(|(first, second)| (1_u64 << first, 1_u64 << second));
            let mut bits = bits.filter(|(first, second)| {
                first != second || (!0x54_u64 & first) == (!0x89_u64 & second)
            });
            bits.any(|(first, second)| {
                let value = (!0x54_u64 & first) | (!0x89_u64 & second);
                (number >> 8) & (first | second) == value
            })
        };
        assert!(rules.len() < 64);
        for kind in 0..256_u64 {
            let passes = matches!(kind, 0x54 | 0x89);
            assert_eq!(!refused(kind << 8 | 0x12), passes, "{kind:#x}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_other_numbers_of_a_call_are_filtered_too() {
        let rules = with_x32(unknown());
        assert!(rules.contains_key(&(libc::SYS_clone3 | 0x4000_0000)));
        let rules = with_x32(denied(FilterOptions {
            no_namespaces: true,
            net: false,
            cpus: false,
        }));
        assert!(rules.contains_key(&(521 | 0x4000_0000)));
    }
}

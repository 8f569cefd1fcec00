//! System calls that a kernel in a sandbox may not make.
//!
//! Filters are kept over exec and by children, and nothing takes them off. What they refuse is
//! refused with an error, so that programs can go on: libzmq aborts when `socket` says EPERM, but
//! takes EOPNOTSUPP, and the C library falls back where a call is unknown (ENOSYS).

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// What is to be filtered, beside what always is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// There are no namespaces: what those would keep inside must not be done at all.
    pub(super) no_namespaces: bool,
    /// The network may be used.
    pub(super) net: bool,
    /// The number of processors is limited.
    pub(super) cpus: bool,
}

/// Why the filters could not be put on.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilterError {
    /// There are no filters for this processor.
    #[error("system calls cannot be filtered on this processor")]
    Processor,
    /// The system refused, or a filter is wrong.
    #[error("system calls cannot be filtered: {0}")]
    Refused(#[from] seccompiler::Error),
    /// A filter is wrong.
    #[error("system calls cannot be filtered: {0}")]
    Wrong(#[from] seccompiler::BackendError),
}

/// Puts the filters on this thread, and so on all that it starts; there must be no other thread.
pub(super) fn apply(wanted: Wanted) -> Result<(), FilterError> {
    for filter in filters(wanted)? {
        seccompiler::apply_filter(&filter)?;
    }
    Ok(())
}

fn filters(wanted: Wanted) -> Result<Vec<BpfProgram>, FilterError> {
    let arch = std::env::consts::ARCH
        .try_into()
        .map_err(|_| FilterError::Processor)?;
    let errors = [
        (0, ignored(wanted)),
        (libc::EOPNOTSUPP, sockets(wanted)?),
        (libc::EPERM, denied(wanted)?),
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

/// The same calls by their numbers of the x32 ABI, which some systems have and which passes for
/// x86-64.
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

/// Calls that have a number of their own in the x32 ABI, of those that are filtered.
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

/// Sockets of other families and types than the kernel needs.
///
/// Of Unix sockets only streams: a datagram can be sent to any path without a connection.
/// Virtual machines' and other families belong to no network namespace.
fn sockets(wanted: Wanted) -> Result<Rules, FilterError> {
    let mut families = vec![libc::AF_UNIX];
    if wanted.net || !wanted.no_namespaces {
        // In a network namespace of their own they reach only each other.
        families.extend([libc::AF_INET, libc::AF_INET6]);
    }
    if wanted.net {
        families.push(libc::AF_NETLINK);
    }
    let mut types = vec![libc::SOCK_STREAM];
    if wanted.net {
        types.push(libc::SOCK_DGRAM);
    }
    let other = families.iter().map(|family| not(0, *family));
    let mut rules = vec![SeccompRule::new(other.collect::<Result<_, _>>()?)?];
    // Every other value of the four bits that hold the type.
    for kind in (0..16).filter(|kind| !types.contains(kind)) {
        let raw_netlink = wanted.net && kind == libc::SOCK_RAW;
        let mut when = vec![masked(1, 0xf, kind)?];
        if raw_netlink {
            // Names are looked up by the addresses of the machine, which netlink tells.
            when.push(not(0, libc::AF_NETLINK)?);
        }
        rules.push(SeccompRule::new(when)?);
    }
    Ok(Rules::from([
        (libc::SYS_socket, rules.clone()),
        (libc::SYS_socketpair, rules),
    ]))
}

/// What is refused with EPERM.
fn denied(wanted: Wanted) -> Result<Rules, FilterError> {
    let mut calls = ALWAYS.to_vec();
    if wanted.cpus {
        calls.push(libc::SYS_sched_setaffinity);
    }
    if wanted.no_namespaces {
        calls.extend(METADATA);
        #[cfg(target_arch = "x86_64")]
        calls.extend([libc::SYS_chown, libc::SYS_lchown]);
        if !wanted.net {
            // A path socket is reached by connecting, whatever files may be read.
            calls.push(libc::SYS_connect);
        }
    }
    let mut rules: Rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
    let namespaces = NAMESPACES
        .iter()
        .map(|flag| Ok(SeccompRule::new(vec![flagged(0, *flag)?])?));
    rules.insert(
        libc::SYS_clone,
        namespaces.collect::<Result<_, FilterError>>()?,
    );
    // Typing into a terminal, as if its user did.
    let typing = [0x5412, 0x541c].map(|request| SeccompRule::new(vec![is(1, request)?]));
    rules.insert(
        libc::SYS_ioctl,
        typing.into_iter().collect::<Result<_, _>>()?,
    );
    Ok(rules)
}

/// What is answered as done and not done.
///
/// Landlock does not rule over a file's mode, and a filter cannot see which file is meant. An error
/// would end every program that copies a file with its mode, as IPython does when it starts.
fn ignored(wanted: Wanted) -> Rules {
    let mut calls = Vec::new();
    if wanted.no_namespaces {
        calls.extend([libc::SYS_fchmod, libc::SYS_fchmodat, SYS_FCHMODAT2]);
        #[cfg(target_arch = "x86_64")]
        calls.push(libc::SYS_chmod);
    }
    calls.into_iter().map(|call| (call, Vec::new())).collect()
}

/// What is refused as if the system did not know it.
///
/// `io_uring` makes and connects sockets past every filter. The flags of `clone3` lie in memory,
/// where a filter cannot look; the C library then takes `clone`.
fn unknown() -> Rules {
    let calls = [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_clone3,
    ];
    calls.into_iter().map(|call| (call, Vec::new())).collect()
}

/// Never needed by a kernel: to look into other processes, to mount, to make namespaces, to load
/// code into the system.
const ALWAYS: [i64; 28] = [
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
    libc::SYS_kexec_load,
];

/// Nor does Landlock rule over a file's owner and attributes.
const METADATA: [i64; 9] = [
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_SETXATTRAT,
];

/// Numbers of new calls are the same on every processor.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;

const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

type Condition = Result<SeccompCondition, seccompiler::BackendError>;

fn condition(argument: u8, how: SeccompCmpOp, value: i32) -> Condition {
    let value = u64::from(value.cast_unsigned());
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value)
}

fn is(argument: u8, value: i32) -> Condition {
    condition(argument, SeccompCmpOp::Eq, value)
}

fn not(argument: u8, value: i32) -> Condition {
    condition(argument, SeccompCmpOp::Ne, value)
}

fn masked(argument: u8, mask: u64, value: i32) -> Condition {
    condition(argument, SeccompCmpOp::MaskedEq(mask), value)
}

fn flagged(argument: u8, flag: i32) -> Condition {
    masked(argument, u64::from(flag.cast_unsigned()), flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_compiles_whatever_is_wanted() {
        for bits in 0..8 {
            let wanted = Wanted {
                no_namespaces: bits & 1 != 0,
                net: bits & 2 != 0,
                cpus: bits & 4 != 0,
            };
            let count = 3 + usize::from(wanted.no_namespaces);
            assert_eq!(filters(wanted).unwrap().len(), count, "{wanted:?}");
        }
    }

    #[test]
    fn what_namespaces_would_keep_inside_is_refused_without_them() {
        let with = |no_namespaces, net| {
            denied(Wanted {
                no_namespaces,
                net,
                cpus: false,
            })
            .unwrap()
        };
        assert!(with(true, false).contains_key(&libc::SYS_connect));
        assert!(with(true, false).contains_key(&libc::SYS_fchown));
        assert!(!with(true, true).contains_key(&libc::SYS_connect));
        assert!(!with(false, false).contains_key(&libc::SYS_fchown));
        assert!(with(false, false).contains_key(&libc::SYS_ptrace));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_other_numbers_of_a_call_are_filtered_too() {
        let rules = with_x32(unknown());
        assert!(rules.contains_key(&(libc::SYS_clone3 | 0x4000_0000)));
        let rules = with_x32(
            denied(Wanted {
                no_namespaces: true,
                net: false,
                cpus: false,
            })
            .unwrap(),
        );
        assert!(rules.contains_key(&(521 | 0x4000_0000)));
    }
}

//! Limits on a kernel's memory and on open files.
//!
//! A systemd user scope limits the resident memory of the kernel and of all its descendants. Without a scope,
//! the address space of each process is limited: an allocation that is too large fails inside the program, as
//! a `MemoryError` in Python.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::platform;
use crate::kernel::environment::trust;
use crate::kernel::variables::{ProcessVariables, Variables};
use crate::project::ResourceLimits;

/// The error on a platform where memory cannot be limited.
#[derive(Debug, thiserror::Error)]
#[error("this platform cannot bound a program's memory; start it without --memory")]
pub struct LimitsError;

/// A limit on a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBound {
    /// The control group of the process and its descendants may have this many bytes of memory.
    Group(u64),
    /// Each process may have this many bytes of address space.
    AddressSpace(u64),
}

/// Returns the command that runs `argv` within the limits, and the limit for the address space in bytes if no
/// control group limits the memory.
///
/// Takes some time if memory is limited, since it tries whether a scope really does so.
pub fn bounded(
    argv: Vec<OsString>,
    limits: ResourceLimits,
) -> Result<(Vec<OsString>, Option<u64>), LimitsError> {
    let Some(bytes) = limits.memory_bytes else {
        return Ok((argv, None));
    };
    if !platform::BOUNDS_MEMORY {
        return Err(LimitsError);
    }
    if let Some(mut words) = scope(bytes, &ProcessVariables)
        && scope_holds(&words, &ProcessVariables)
    {
        words.extend(argv);
        return Ok((words, None));
    }
    Ok((argv, Some(bytes)))
}

/// Returns the limit on a live process's memory.
pub fn bound_of(pid: u32) -> Option<MemoryBound> {
    let group = platform::group_memory_max(pid).map(MemoryBound::Group);
    group.or_else(|| platform::address_space_max(pid).map(MemoryBound::AddressSpace))
}

/// Limits the address space of this process, also after exec.
pub(super) fn bound_address_space(bytes: u64) -> io::Result<()> {
    let (current, maximum) = (Some(bytes), Some(bytes));
    Ok(setrlimit(Resource::As, Rlimit { current, maximum })?)
}

/// The soft limit of open files that this process was started with, if it has raised it.
static DESCRIPTORS: OnceLock<u64> = OnceLock::new();

/// The variable that passes that limit to the first process of a detached start.
const DESCRIPTORS_VARIABLE: &str = "NB_DETACH_DESCRIPTORS";

/// Raises the soft limit of open files to the hard limit: the usual 1,024 is meant for programs that use
/// select(2), but a proxy has a socket for each client. A detached start restores the old limit.
pub fn raise_descriptors() {
    let before = getrlimit(Resource::Nofile);
    let Some(soft) = before.current else { return };
    let all = Rlimit {
        current: before.maximum,
        ..before
    };
    if before.maximum != Some(soft) && setrlimit(Resource::Nofile, all).is_ok() {
        let _ = DESCRIPTORS.set(soft);
    }
}

/// Passes the old limit of open files to the first process of a detached start.
pub(super) fn tell_descriptors(helper: &mut Command) {
    if let Some(soft) = DESCRIPTORS.get() {
        helper.env(DESCRIPTORS_VARIABLE, soft.to_string());
    }
}

/// Restores the old limit of open files in this process, which `next` inherits.
pub(super) fn restore_descriptors(next: &mut Command) -> io::Result<()> {
    next.env_remove(DESCRIPTORS_VARIABLE);
    let passed = std::env::var(DESCRIPTORS_VARIABLE).ok();
    let Some(soft) = passed.and_then(|passed| passed.parse().ok()) else {
        return Ok(());
    };
    let before = Rlimit {
        current: Some(soft),
        ..getrlimit(Resource::Nofile)
    };
    Ok(setrlimit(Resource::Nofile, before)?)
}

/// Returns the arguments before a command that run it in a scope of the user's systemd, as the same process.
fn scope(bytes: u64, variables: &dyn Variables) -> Option<Vec<OsString>> {
    let program = trust::on_path("systemd-run", variables)?;
    let memory = format!("MemoryMax={bytes}");
    // Without MemorySwapMax the program would be swapped out instead of being limited.
    let words = [
        "--user",
        "--scope",
        "--quiet",
        "--collect",
        "-p",
        &memory,
        "-p",
        "MemorySwapMax=0",
        "--",
    ];
    let words = words.map(OsString::from);
    let program = [program.into_os_string()].into_iter();
    Some(program.chain(words).collect())
}

/// Returns whether a scope of the user's systemd really limits memory: in a container there may be no such
/// systemd, or it may have no memory controller.
fn scope_holds(scope: &[OsString], variables: &dyn Variables) -> bool {
    // Checked first, because systemd-run may wait long for a bus that no process serves.
    let socket = variables.path("XDG_RUNTIME_DIR");
    let socket = socket.map(|folder| folder.join("systemd/private"));
    if !socket.is_some_and(|socket: PathBuf| socket.exists()) {
        return false;
    }
    let Some((program, words)) = scope.split_first() else {
        return false;
    };
    let tried = Command::new(program)
        .args(words)
        .args(["cat", "/proc/self/cgroup"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    // The scope's group disappears with `cat`; its parent shows whether memory is counted below it.
    tried.is_ok_and(|tried| {
        let text = String::from_utf8_lossy(&tried.stdout);
        let group = text.lines().find_map(|line| line.strip_prefix("0::"));
        let above = group.and_then(|group| Path::new(group).parent().map(Path::to_owned));
        tried.status.success() && above.is_some_and(|above| platform::counts_memory_below(&above))
    })
}

/// Parses an amount of memory for a kernel, like [`amount`], and checks the minimum.
pub fn read_bytes(text: &str) -> Result<u64, String> {
    match amount(text)? {
        bytes if bytes < MEMORY_BYTES_MIN => {
            Err(format!("{text} is too little for a kernel: 100M at least"))
        }
        bytes => Ok(bytes),
    }
}

/// Parses a number of bytes: `1.5G` and `1.5GB` are 1,500,000,000, `1.5GiB` is 1.5 times 2^30.
pub fn amount(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not an amount of bytes: 800M, 1.5G, 2GiB");
    let text_end = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[text_end.len()..].to_ascii_lowercase();
    let factor: f64 = match unit.as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "ki" | "kib" => 1024.0,
        "mi" | "mib" => 1024.0 * 1024.0,
        "gi" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "ti" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(wrong()),
    };
    let number: f64 = text_end.trim().parse().map_err(|_| wrong())?;
    let bytes = number * factor;
    if !(bytes.is_finite() && (0.0..1e18).contains(&bytes)) {
        return Err(wrong());
    }
    Ok(bytes as u64)
}

/// The minimum for a memory limit, in bytes: with less, hardly any kernel starts.
const MEMORY_BYTES_MIN: u64 = 100_000_000;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        assert_eq!(read_bytes("1.5G"), Ok(1_500_000_000));
        assert_eq!(read_bytes("1.5 gb"), Ok(1_500_000_000));
        assert_eq!(read_bytes("2GiB"), Ok(2 << 30));
        assert_eq!(read_bytes("800m"), Ok(800_000_000));
        assert_eq!(read_bytes("200000000"), Ok(200_000_000));
        for wrong in ["", "G", "1.5X", "-1G", "nanG", "infG", "1e300G"] {
            let error = read_bytes(wrong).unwrap_err();
            assert!(error.contains("is not an amount"), "{error}");
        }
        assert!(read_bytes("2").unwrap_err().contains("too little"));
    }

    #[test]
    fn without_limits_the_command_stays_as_it_is() {
        let argv: Vec<OsString> = vec!["python".into()];
        let (same, bytes) = bounded(argv.clone(), ResourceLimits::default()).unwrap();
        assert_eq!((same, bytes), (argv, None));
        assert!(!scope_holds(&["systemd-run".into()], &HashMap::new()));
    }
}

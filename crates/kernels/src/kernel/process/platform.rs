//! Information about processes on each platform. Only this file of the module names platforms.

use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub(super) use imp::{
    BOUNDS_MEMORY, adopt_orphans, arguments, death, has_terminal, is_stopped, memory_bytes,
    open_files, program, reopened_executable, start_time, unnamed_file, working_folder,
};

/// How many processes the system has killed because memory ran out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OomKills {
    /// Within the control group of this process.
    group: Option<u64>,
    /// In the whole system.
    system: Option<u64>,
}

impl OomKills {
    /// Returns whether there are more than before. If the group's count is known, only that one matters.
    pub(super) fn exceeds(self, before: Self) -> bool {
        match (self.group, before.group) {
            (Some(now), Some(before)) => now > before,
            _ => self.system > before.system,
        }
    }
}

// The following functions read files that exist only on Linux: on other systems they find nothing.

/// Returns a field of `/proc/PID/stat`, see proc_pid_stat(5): the state is field 3.
///
/// The command's name may hold spaces and parentheses, so fields count from the last one.
fn stat_field<T: FromStr>(stat: &str, field: usize) -> Option<T> {
    let fields = stat.rsplit_once(')')?.1;
    let value = fields.split_ascii_whitespace().nth(field - 3)?;
    value.parse().ok()
}

fn stat(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

/// Returns the children of a process, including zombies; none if orphans do not become this process's
/// children.
pub(super) fn children(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| stat(*pid).and_then(|stat| stat_field(&stat, 4)) == Some(parent))
        .collect()
}

/// Returns the rest of a line of a file after its first words.
fn line_of(file: impl AsRef<Path>, words: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(words))?;
    Some(line.trim().to_owned())
}

/// Returns the limit of a process's address space in bytes, if there is one.
pub(super) fn address_space_max(pid: u32) -> Option<u64> {
    let limits = line_of(format!("/proc/{pid}/limits"), "Max address space")?;
    limits.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the memory limit of a process's control group in bytes, if there is one.
pub(super) fn group_memory_max(pid: u32) -> Option<u64> {
    let group = group_folder(&format!("/proc/{pid}/cgroup"))?;
    let max = std::fs::read_to_string(group.join("memory.max")).ok()?;
    max.trim().parse().ok()
}

/// Returns whether memory is counted, and so can be limited, in the groups below this one.
pub(super) fn counts_memory_below(group: &Path) -> bool {
    let folder = Path::new(GROUPS).join(group.strip_prefix("/").unwrap_or(group));
    let counted = std::fs::read_to_string(folder.join("cgroup.subtree_control"));
    counted.is_ok_and(|counted| counted.split_ascii_whitespace().any(|it| it == "memory"))
}

/// Returns the folder of the group that the line `0::/a/b` of a process's `cgroup` names.
fn group_folder(groups: &str) -> Option<PathBuf> {
    Some(Path::new(GROUPS).join(line_of(groups, "0::/")?))
}

const GROUPS: &str = "/sys/fs/cgroup";

/// Counts the processes that the system has killed because memory ran out.
pub(super) fn oom_kills() -> OomKills {
    let own = "/proc/self/cgroup";
    let count = |file: PathBuf| line_of(file, "oom_kill ")?.parse().ok();
    // Version 1 of control groups has a separate tree for memory.
    let of_first_version = || {
        let groups = std::fs::read_to_string(own).ok()?;
        let group = groups.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            let is_memory = controllers.split(',').any(|it| it == "memory");
            is_memory.then(|| group.trim_start_matches('/').to_owned())
        })?;
        let tree = Path::new(GROUPS).join("memory");
        count(tree.join(group).join("memory.oom_control"))
    };
    let group = group_folder(own).and_then(|folder| count(folder.join("memory.events")));
    OomKills {
        group: group.or_else(of_first_version),
        system: count("/proc/vmstat".into()),
    }
}

/// Returns whether the system's log says that it has just killed this process because memory ran out.
///
/// Not every user may read that log.
pub(super) fn was_ended_for_memory(pid: u32) -> bool {
    let flags = rustix::fs::OFlags::NONBLOCK.bits();
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.cast_signed())
        .open("/dev/kmsg");
    let Ok(mut log) = opened else { return false };
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_sec;
    let since = u64::try_from(now)
        .unwrap_or_default()
        .saturating_sub(LATELY);
    // Each read gives one record.
    let mut record = [0; 8192];
    loop {
        match log.read(&mut record) {
            Ok(0) => return false,
            Ok(length) => {
                let text = String::from_utf8_lossy(&record[..length]);
                if tells_of(&text, pid, since) {
                    return true;
                }
            }
            // The record was overwritten before it was read: the next read returns a later one.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(_) => return false,
        }
    }
}

/// How many seconds back a log record may be.
const LATELY: u64 = 60;

/// Parses a record such as `3,512,71234567,-;Out of memory: Killed process 41 (python) total-vm:…`, whose
/// third number is the microseconds since the boot.
fn tells_of(record: &str, pid: u32, since_seconds: u64) -> bool {
    let Some((head, text)) = record.split_once(';') else {
        return false;
    };
    let at = head.split(',').nth(2).and_then(|at| at.parse::<u64>().ok());
    at.is_some_and(|at| at / 1_000_000 >= since_seconds)
        && text.contains(&format!("Killed process {pid} "))
}

#[cfg(target_os = "linux")]
mod imp {
    use std::ffi::OsString;
    use std::io;
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::{line_of, stat, stat_field};

    /// Returns when a live process started, in clock ticks since the boot.
    pub(in super::super) fn start_time(pid: u32) -> Option<u64> {
        start_of(&stat(pid)?)
    }

    /// Returns the start time from a `stat` line. A zombie counts as ended: it only waits until its parent
    /// reaps it.
    pub(super) fn start_of(stat: &str) -> Option<u64> {
        let state: char = stat_field(stat, 3)?;
        stat_field(stat, 22).filter(|_| !['Z', 'X', 'x'].contains(&state))
    }

    /// Returns whether a signal such as SIGSTOP has stopped a process.
    pub(in super::super) fn is_stopped(pid: u32) -> bool {
        stat(pid).and_then(|stat| stat_field(&stat, 3)) == Some('T')
    }

    /// Returns whether a process has a controlling terminal; without one the terminal's number is 0.
    pub(in super::super) fn has_terminal(pid: u32) -> bool {
        let terminal: Option<i64> = stat(pid).and_then(|stat| stat_field(&stat, 7));
        terminal.is_some_and(|number| number != 0)
    }

    /// Returns the resident memory of a process in bytes.
    pub(in super::super) fn memory_bytes(pid: u32) -> Option<u64> {
        let resident = line_of(format!("/proc/{pid}/status"), "VmRSS:")?;
        let kib: u64 = resident.strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }

    /// Returns the program of a process as it was called: environments' symlinks are not resolved.
    pub(in super::super) fn program(pid: u32) -> Option<PathBuf> {
        arguments(pid).next().map(PathBuf::from)
    }

    /// Returns the words with which a process was called, the program first.
    pub(in super::super) fn arguments(pid: u32) -> impl Iterator<Item = OsString> {
        let mut line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.pop_if(|last| *last == 0);
        let words: Vec<_> = line.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        words.into_iter().map(OsString::from_vec)
    }

    /// Returns the working directory of a process.
    pub(in super::super) fn working_folder(pid: u32) -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
    }

    /// Returns the present paths of the files that a process has open.
    pub(in super::super) fn open_files(pid: u32) -> impl Iterator<Item = PathBuf> {
        let links = std::fs::read_dir(format!("/proc/{pid}/fd"));
        let links = links.into_iter().flatten().flatten();
        links.filter_map(|link| std::fs::read_link(link.path()).ok())
    }

    /// Returns a new file in memory without a name.
    pub(in super::super) fn unnamed_file() -> io::Result<std::fs::File> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        Ok(rustix::fs::memfd_create("nb", flags)?.into())
    }

    /// Whether a program's memory can be limited.
    pub(in super::super) const BOUNDS_MEMORY: bool = true;

    /// Waits until a process has ended; returns at once unless `is_alive` returns `true`.
    #[expect(
        deprecated,
        reason = "the successor is unsafe and asks that the descriptor stay open, which an OwnedFd grants"
    )]
    pub(in super::super) async fn death(pid: u32, is_alive: impl Fn() -> bool) -> io::Result<()> {
        use tokio::io::{Interest, unix::AsyncFd};
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("no process has the id 0"))?;
        let watched = pidfd_open(pid, PidfdFlags::empty())?;
        // Opened first, checked second: a pidfd always refers to the process for which it was opened.
        if is_alive() {
            AsyncFd::with_interest(watched, Interest::READABLE)?
                .readable()
                .await?
                .retain_ready();
        }
        Ok(())
    }

    /// Makes this process the parent of its descendants' orphans.
    pub(in super::super) fn adopt_orphans() {
        // Systems that do not support this have no sandbox, either.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }

    /// Returns a path that starts this very program again, even if its file was replaced.
    pub(in super::super) fn reopened_executable() -> io::Result<PathBuf> {
        let own = PathBuf::from("/proc/self/exe");
        if own.is_symlink() {
            Ok(own)
        } else {
            let text = "there is no /proc here, by which nb identifies processes: mount it";
            Err(io::Error::other(text))
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::ffi::OsString;
    use std::io;
    use std::path::PathBuf;
    use std::process::Command;

    /// Returns when a live process started, in seconds since 1970.
    pub(in super::super) fn start_time(pid: u32) -> Option<u64> {
        let text = ps(pid, "stat=,lstart=")?;
        let (state, started) = text.trim().split_once(char::is_whitespace)?;
        if state.starts_with('Z') {
            return None;
        }
        let started = jiff::civil::DateTime::strptime("%a %b %e %H:%M:%S %Y", started.trim());
        let started = started.ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
        u64::try_from(started.timestamp().as_second()).ok()
    }

    /// Returns whether a signal such as SIGSTOP has stopped a process.
    pub(in super::super) fn is_stopped(pid: u32) -> bool {
        ps(pid, "stat=").is_some_and(|stat| stat.trim().starts_with('T'))
    }

    /// Returns whether a process has a controlling terminal.
    pub(in super::super) fn has_terminal(pid: u32) -> bool {
        ps(pid, "tty=").is_some_and(|tty| !tty.trim().trim_matches(['?', '-']).is_empty())
    }

    /// Returns the resident memory of a process in bytes.
    pub(in super::super) fn memory_bytes(pid: u32) -> Option<u64> {
        let kib = ps(pid, "rss=")?.trim().parse::<u64>().ok()?;
        Some(kib * 1024)
    }

    /// Returns the program of a process.
    pub(in super::super) fn program(pid: u32) -> Option<PathBuf> {
        Some(ps(pid, "comm=")?.trim().into())
    }

    /// Returns nothing: `ps` does not say where a word of a process ends.
    pub(in super::super) fn arguments(_: u32) -> impl Iterator<Item = OsString> {
        std::iter::empty()
    }

    /// Returns `None`: it is not read on this system.
    pub(in super::super) fn working_folder(_: u32) -> Option<PathBuf> {
        None
    }

    /// Returns nothing: the system does not tell it without a program of its own.
    pub(in super::super) fn open_files(_: u32) -> impl Iterator<Item = PathBuf> {
        std::iter::empty()
    }

    /// The system accepts a limit of the address space but does not enforce it.
    pub(in super::super) const BOUNDS_MEMORY: bool = false;

    /// Returns an error: the system has no event for the end of a process.
    pub(in super::super) async fn death(_: u32, _: impl Fn() -> bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Does nothing: here orphans become children of init.
    pub(in super::super) fn adopt_orphans() {}

    /// Returns a new file without a name.
    pub(in super::super) fn unnamed_file() -> io::Result<std::fs::File> {
        tempfile::tempfile()
    }

    /// Returns the path of this program.
    pub(in super::super) fn reopened_executable() -> io::Result<PathBuf> {
        std::env::current_exe()
    }

    fn ps(pid: u32, columns: &str) -> Option<String> {
        let out = Command::new("/bin/ps")
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .args(["-o", columns, "-p", &pid.to_string()])
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&out.stdout);
        out.status.success().then(|| text.into_owned())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::imp::start_of;
    use super::*;

    #[test]
    fn the_systems_log_names_whom_it_has_ended() {
        let record = "3,512,71234567,-;Memory cgroup out of memory: Killed process 41 (python) total-vm:2087584kB, anon-rss:1048220kB";
        assert!(tells_of(record, 41, 60));
        assert!(!tells_of(record, 4, 60));
        assert!(!tells_of(record, 41, 72), "another one of this pid");
        assert!(!tells_of("3,512", 41, 0));
        let temp = tempfile::tempdir().unwrap();
        let events = temp.path().join("memory.events");
        std::fs::write(&events, "oom 2\noom_kill 3\noom_group_kill 0\n").unwrap();
        assert_eq!(line_of(&events, "oom_kill ").as_deref(), Some("3"));
        let kills = |group, system| OomKills { group, system };
        assert!(kills(Some(3), Some(9)).exceeds(kills(Some(2), Some(9))));
        assert!(!kills(Some(2), Some(9)).exceeds(kills(Some(2), Some(8))));
        assert!(kills(None, Some(9)).exceeds(kills(None, Some(8))));
        assert!(!kills(None, None).exceeds(kills(None, None)));
    }

    #[test]
    fn a_command_may_be_called_anything() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(start_of(&format!("9 (a) Z (b) {rest}")), Some(4711));
        assert_eq!(start_of(&format!("9 (a) {}", rest.replace('S', "Z"))), None);
        assert_eq!(start_of("9 (a"), None);
        let stat = |terminal: &str| format!("9 (a) Z (b) S 1 9 9 {terminal} 9 0");
        assert_eq!(stat_field(&stat("34816"), 7), Some(34816));
        assert_eq!(stat_field(&stat("0"), 7), Some(0));
        assert_eq!(stat_field::<u32>("9 (a) S 1 9", 7), None);
        assert_eq!(start_of("9 (a) S 1 2"), None);
    }
}

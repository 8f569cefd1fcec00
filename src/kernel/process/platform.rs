//! What each platform tells of a process. The only file of this module that names platforms.

pub(super) use imp::{
    BOUNDS_MEMORY, Watch, address_space_max, adopt_orphans, children, counts_memory_below,
    group_memory_max, has_terminal, memory_bytes, oom_kills, program, reopened_executable,
    start_time, unnamed_file, was_ended_for_memory,
};

/// How many processes the system has ended for want of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OomKills {
    /// In the control group of this process.
    group: Option<u64>,
    /// In all of the system.
    system: Option<u64>,
}

impl OomKills {
    /// Says whether there are more than before. Where the group counts, others' do not matter.
    pub(super) fn exceeds(self, before: Self) -> bool {
        match (self.group, before.group) {
            (Some(now), Some(before)) => now > before,
            _ => self.system > before.system,
        }
    }
}

#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::path::{Path, PathBuf};

    use super::OomKills;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    /// Returns when a living process started, in clock ticks since the boot.
    ///
    /// A zombie is dead: it only waits for somebody to ask how it ended.
    pub(in super::super) fn start_time(pid: u32) -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        parse_stat(&stat)
    }

    /// Reads the state and the start time out of `/proc/PID/stat`, see proc_pid_stat(5).
    ///
    /// The command's name may hold spaces and parentheses, so fields count from the last one.
    pub(super) fn parse_stat(stat: &str) -> Option<u64> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let state = fields.next()?;
        if matches!(state, "Z" | "X" | "x") {
            return None;
        }
        // Field 22; the state is field 3.
        fields.nth(18)?.parse().ok()
    }

    /// Returns whether a process has a controlling terminal.
    pub(in super::super) fn has_terminal(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| parse_terminal(&stat) == Some(true))
    }

    /// Reads from `/proc/PID/stat` whether there is a terminal: field 7, which is 0 without one.
    pub(super) fn parse_terminal(stat: &str) -> Option<bool> {
        let fields = stat.rsplit_once(')')?.1;
        let terminal = fields.split_ascii_whitespace().nth(4)?;
        Some(terminal.parse::<i64>().ok()? != 0)
    }

    /// Returns a new file in memory, which has no name.
    pub(in super::super) fn unnamed_file() -> io::Result<std::fs::File> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        Ok(rustix::fs::memfd_create("nb", flags)?.into())
    }

    /// Returns the memory of a process that is not shared with or swapped out to anything.
    pub(in super::super) fn memory_bytes(pid: u32) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1024)
    }

    /// Returns the program of a process as it was called: symlinks, as environments have, are kept.
    pub(in super::super) fn program(pid: u32) -> Option<PathBuf> {
        use std::os::unix::ffi::OsStringExt;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let first = line.split(|byte| *byte == 0).next()?.to_vec();
        Some(std::ffi::OsString::from_vec(first).into())
    }

    /// Whether a program's memory can be bounded.
    pub(in super::super) const BOUNDS_MEMORY: bool = true;

    /// Returns the most address space that a process may have, where it is bounded.
    pub(in super::super) fn address_space_max(pid: u32) -> Option<u64> {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max address space"))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    }

    /// Returns the most memory that the control group of a process may have, where it is bounded.
    pub(in super::super) fn group_memory_max(pid: u32) -> Option<u64> {
        let group = group_folder(&std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)?;
        let max = std::fs::read_to_string(group.join("memory.max")).ok()?;
        max.trim().parse().ok()
    }

    /// Says whether memory is counted, and so can be bounded, in the groups below this one.
    pub(in super::super) fn counts_memory_below(group: &Path) -> bool {
        let folder = Path::new(GROUPS).join(group.strip_prefix("/").unwrap_or(group));
        let counted = std::fs::read_to_string(folder.join("cgroup.subtree_control"));
        counted.is_ok_and(|counted| counted.split_ascii_whitespace().any(|it| it == "memory"))
    }

    /// Returns the folder of the group that a line `0::/a/b` of `/proc/PID/cgroup` names.
    fn group_folder(groups: &str) -> Option<PathBuf> {
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        Some(Path::new(GROUPS).join(group))
    }

    const GROUPS: &str = "/sys/fs/cgroup";

    /// Counts what the system has ended for want of memory.
    pub(in super::super) fn oom_kills() -> OomKills {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let read = |path: PathBuf| counted(&std::fs::read_to_string(path).ok()?);
        let one = group_folder(&groups).map(|folder| folder.join("memory.events"));
        // The first version of control groups has a tree for memory alone.
        let old = groups.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            let memory = controllers.split(',').any(|it| it == "memory");
            memory.then(|| {
                Path::new(GROUPS)
                    .join("memory")
                    .join(group.trim_start_matches('/'))
            })
        });
        let old = old.map(|folder| folder.join("memory.oom_control"));
        OomKills {
            group: one.and_then(read).or_else(|| old.and_then(read)),
            system: read("/proc/vmstat".into()),
        }
    }

    /// Reads the line `oom_kill 3`.
    pub(super) fn counted(text: &str) -> Option<u64> {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("oom_kill "))?;
        line.trim().parse().ok()
    }

    /// Says whether the system's log tells that it has just ended this process for want of memory.
    ///
    /// Not everybody may read that log.
    pub(in super::super) fn was_ended_for_memory(pid: u32) -> bool {
        use std::io::Read;
        use std::os::unix::fs::OpenOptionsExt;
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
                // Overwritten before it was read: the next one is there.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(_) => return false,
            }
        }
    }

    /// How many seconds are just now.
    const LATELY: u64 = 60;

    /// Reads a record such as `3,512,71234567,-;Out of memory: Killed process 41 (python) total-vm:…`,
    /// whose third number are microseconds since the boot.
    pub(super) fn tells_of(record: &str, pid: u32, since_seconds: u64) -> bool {
        let Some((head, text)) = record.split_once(';') else {
            return false;
        };
        let at = head.split(',').nth(2).and_then(|at| at.parse::<u64>().ok());
        at.is_some_and(|at| at / 1_000_000 >= since_seconds)
            && text.contains(&format!("Killed process {pid} "))
    }

    /// A process that was looked at: while this is held, no other one is taken for it.
    pub(in super::super) struct Watch(OwnedFd);

    impl Watch {
        /// Opens a descriptor that becomes readable when the process ends.
        pub(in super::super) fn open(pid: u32) -> io::Result<Self> {
            let pid = Pid::from_raw(i32::try_from(pid).map_err(io::Error::other)?)
                .ok_or_else(|| io::Error::other("no process has the id 0"))?;
            Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
        }

        /// Waits for the end of the process.
        #[expect(
            deprecated,
            reason = "the successor is unsafe and asks that the descriptor stay open, which an OwnedFd grants"
        )]
        pub(in super::super) async fn ended(self) -> io::Result<()> {
            use tokio::io::{Interest, unix::AsyncFd};
            AsyncFd::with_interest(self.0, Interest::READABLE)?
                .readable()
                .await?
                .retain_ready();
            Ok(())
        }
    }

    /// Makes this process the parent of what its descendants leave behind.
    pub(in super::super) fn adopt_orphans() {
        // Systems older than that have no sandbox either.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }

    /// Returns the children of a process, zombies included.
    pub(in super::super) fn children(parent: u32) -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_child = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.is_ok_and(|stat| parse_parent(&stat) == Some(parent))
        };
        pids.filter(is_child).collect()
    }

    /// Reads the parent out of `/proc/PID/stat`: the second field behind the name.
    fn parse_parent(stat: &str) -> Option<u32> {
        let fields = stat.rsplit_once(')')?.1;
        fields.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    /// Returns a path that starts this very program again, even when its file was replaced.
    pub(in super::super) fn reopened_executable() -> io::Result<PathBuf> {
        let own = PathBuf::from("/proc/self/exe");
        if own.is_symlink() {
            Ok(own)
        } else {
            let what = "there is no /proc here, by which processes are told apart: mount it";
            Err(io::Error::other(what))
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// Returns when a living process started, in seconds since 1970.
    pub(in super::super) fn start_time(pid: u32) -> Option<u64> {
        let text = ps(pid, "stat=,lstart=")?;
        let (state, started) = text.trim().split_once(char::is_whitespace)?;
        if state.starts_with('Z') {
            return None;
        }
        let started = jiff::civil::DateTime::strptime("%a %b %e %H:%M:%S %Y", started.trim());
        let seconds = started
            .ok()?
            .to_zoned(jiff::tz::TimeZone::UTC)
            .ok()?
            .timestamp();
        u64::try_from(seconds.as_second()).ok()
    }

    /// Returns whether a process has a controlling terminal.
    pub(in super::super) fn has_terminal(pid: u32) -> bool {
        ps(pid, "tty=").is_some_and(|tty| !tty.trim().trim_matches(['?', '-']).is_empty())
    }

    /// Returns the resident memory of a process.
    pub(in super::super) fn memory_bytes(pid: u32) -> Option<u64> {
        ps(pid, "rss=")?
            .trim()
            .parse::<u64>()
            .ok()
            .map(|kib| kib * 1024)
    }

    /// Returns the program of a process.
    pub(in super::super) fn program(pid: u32) -> Option<PathBuf> {
        Some(ps(pid, "comm=")?.trim().into())
    }

    /// The system takes a bound of the address space and does not keep it.
    pub(in super::super) const BOUNDS_MEMORY: bool = false;

    /// Returns nothing.
    pub(in super::super) fn address_space_max(_pid: u32) -> Option<u64> {
        None
    }

    /// Returns nothing: there are no control groups.
    pub(in super::super) fn group_memory_max(_pid: u32) -> Option<u64> {
        None
    }

    /// Says no: there are no control groups.
    pub(in super::super) fn counts_memory_below(_group: &Path) -> bool {
        false
    }

    /// Counts nothing: this system tells nobody.
    pub(in super::super) fn oom_kills() -> super::OomKills {
        super::OomKills::default()
    }

    /// Says no: this system tells nobody.
    pub(in super::super) fn was_ended_for_memory(_pid: u32) -> bool {
        false
    }

    /// A process that is watched; there is no such thing here, so that it is asked for instead.
    pub(in super::super) enum Watch {}

    impl Watch {
        /// Returns an error.
        pub(in super::super) fn open(_pid: u32) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        /// Waits for the end of the process.
        pub(in super::super) async fn ended(self) -> io::Result<()> {
            match self {}
        }
    }

    /// Does nothing: orphans are the first process's here.
    pub(in super::super) fn adopt_orphans() {}

    /// Returns none: orphans do not become this process's children here.
    pub(in super::super) fn children(_parent: u32) -> Vec<u32> {
        Vec::new()
    }

    /// Returns a new file without a name.
    pub(in super::super) fn unnamed_file() -> io::Result<std::fs::File> {
        tempfile::tempfile()
    }

    /// Returns the path of this program.
    pub(in super::super) fn reopened_executable() -> io::Result<PathBuf> {
        std::env::current_exe()
    }

    fn ps(pid: u32, columns: &str) -> Option<String> {
        let out = Command::new("ps")
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .args(["-o", columns, "-p", &pid.to_string()])
            .output()
            .ok()?;
        out.status
            .success()
            .then(|| String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::OomKills;
    use super::imp::{counted, parse_stat, parse_terminal, tells_of};

    #[test]
    fn the_systems_log_names_whom_it_has_ended() {
        let record = "3,512,71234567,-;Memory cgroup out of memory: Killed process 41 (python) total-vm:2087584kB, anon-rss:1048220kB";
        assert!(tells_of(record, 41, 60));
        assert!(!tells_of(record, 4, 60));
        assert!(!tells_of(record, 41, 72), "another one of this pid");
        assert!(!tells_of("3,512", 41, 0));
        assert_eq!(counted("oom 2\noom_kill 3\noom_group_kill 0\n"), Some(3));
        let kills = |group, system| OomKills { group, system };
        assert!(kills(Some(3), Some(9)).exceeds(kills(Some(2), Some(9))));
        assert!(!kills(Some(2), Some(9)).exceeds(kills(Some(2), Some(8))));
        assert!(kills(None, Some(9)).exceeds(kills(None, Some(8))));
        assert!(!kills(None, None).exceeds(kills(None, None)));
    }

    #[test]
    fn a_command_may_be_called_anything() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(parse_stat(&format!("9 (a) Z (b) {rest}")), Some(4711));
        assert_eq!(
            parse_stat(&format!("9 (a) {}", rest.replace('S', "Z"))),
            None
        );
        assert_eq!(parse_stat("9 (a"), None);
        let stat = |terminal: &str| format!("9 (a) Z (b) S 1 9 9 {terminal} 9 0");
        assert_eq!(parse_terminal(&stat("34816")), Some(true));
        assert_eq!(parse_terminal(&stat("0")), Some(false));
        assert_eq!(parse_terminal("9 (a) S 1 9"), None);
        assert_eq!(parse_stat("9 (a) S 1 2"), None);
    }
}

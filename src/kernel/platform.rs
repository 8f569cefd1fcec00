//! What each platform tells of a process. The only file of this module that names platforms.

pub(super) use imp::{
    BOUNDS_MEMORY, Watch, address_space_max, counts_memory_below, group_memory_max, memory_bytes,
    program, reopened_executable, start_time,
};

#[cfg(target_os = "linux")]
mod imp {
    use std::io;
    use std::os::fd::OwnedFd;
    use std::path::{Path, PathBuf};

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

    /// Returns a path that starts this very program again, even when its file was replaced.
    pub(in super::super) fn reopened_executable() -> io::Result<PathBuf> {
        Ok(PathBuf::from("/proc/self/exe"))
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
    use super::imp::parse_stat;

    #[test]
    fn a_command_may_be_called_anything() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(parse_stat(&format!("9 (a) Z (b) {rest}")), Some(4711));
        assert_eq!(
            parse_stat(&format!("9 (a) {}", rest.replace('S', "Z"))),
            None
        );
        assert_eq!(parse_stat("9 (a"), None);
        assert_eq!(parse_stat("9 (a) S 1 2"), None);
    }
}

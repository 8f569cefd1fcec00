//! The identity of a process: whether it is alive, when it ends, and signals that reach no other process.
//!
//! The system reuses pids, so a process is identified by its pid, its start time and the boot that
//! the start time counts from.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::{Pid, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};

pub use rustix::process::Signal;

use super::platform;
use crate::project::joined::JoinedFrontEnd;
use crate::project::live_editor::LiveEditor;
use crate::project::{Session, boot_id, pid_namespace};

/// The pause between two checks of a process on platforms without an event for its end.
const POLL: Duration = Duration::from_millis(100);

/// One process, never confused with a later one that has the same pid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// The start time, in the platform's unit.
    pub start_time: u64,
    /// The boot of the machine to which `start_time` refers.
    pub boot_id: String,
}

/// Why a signal was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    /// The process has ended; another process may have its pid now.
    #[error("process {0} has ended")]
    Gone(u32),
    /// The system refused.
    #[error("cannot signal process {pid}")]
    Refused {
        /// The process id.
        pid: u32,
        /// The error of the system.
        source: io::Error,
    },
}

impl Process {
    /// Returns the live process that has this pid now.
    pub fn of(pid: u32) -> Option<Self> {
        let start_time = platform::start_time(pid)?;
        Some(Self {
            pid,
            start_time,
            boot_id: boot_id().to_owned(),
        })
    }

    /// Returns whether the process has a controlling terminal, where a person may sit.
    pub fn has_terminal(&self) -> bool {
        platform::has_terminal(self.pid)
    }

    /// Returns this process.
    pub fn current() -> Self {
        let pid = std::process::id();
        let start_time = platform::start_time(pid).unwrap_or_default();
        Self {
            pid,
            start_time,
            boot_id: boot_id().to_owned(),
        }
    }

    /// Returns the kernel's process from the session's record.
    ///
    /// Returns `None` for a kernel that `nb` did not start: its pid may have been reused.
    pub fn recorded(session: &Session) -> Option<Self> {
        let process = session.process()?;
        Some(Self {
            pid: process.pid,
            start_time: process.start_time,
            boot_id: session.host()?.boot_id.clone(),
        })
    }

    /// Returns the proxy's process from the proxy's own record.
    pub fn joined(joined: &JoinedFrontEnd) -> Self {
        Self {
            pid: joined.pid,
            start_time: joined.start_time,
            boot_id: joined.boot_id.clone(),
        }
    }

    /// Says whether the `nb live` of a record runs. Of one in another container, or on another machine, only the age of the
    /// record is known.
    pub fn is_live_editor(editor: &LiveEditor) -> bool {
        editor.is_current(Timestamp::now())
            && (!is_here(editor) || Self::live_editor(editor).is_alive())
    }

    /// Says whether a signal has stopped the `nb live` of a record, which runs here.
    pub fn is_stopped_live_editor(editor: &LiveEditor) -> bool {
        Self::live_editor(editor).is_stopped()
    }

    fn live_editor(editor: &LiveEditor) -> Self {
        Self {
            pid: editor.pid,
            start_time: editor.start_time,
            boot_id: editor.boot_id.clone(),
        }
    }

    /// Says whether the `nb live` of a record runs on this machine, outside other containers.
    pub fn is_live_editor_here(editor: &LiveEditor) -> bool {
        is_here(editor) && Self::is_live_editor(editor)
    }

    /// Returns whether this very process is alive; a zombie is not.
    pub fn is_alive(&self) -> bool {
        self.boot_id == boot_id() && platform::start_time(self.pid) == Some(self.start_time)
    }

    /// Returns whether a signal such as SIGSTOP has stopped the process: it does nothing until SIGCONT.
    pub fn is_stopped(&self) -> bool {
        self.is_alive() && platform::is_stopped(self.pid)
    }

    /// Waits until the process has ended; returns at once if it already has.
    ///
    /// The future may be dropped.
    pub async fn death(&self) {
        let event = platform::death(self.pid, || self.is_alive()).await;
        while event.is_err() && self.is_alive() {
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits for the end; returns whether it came in time.
    pub async fn ended_within(&self, limit: Duration) -> bool {
        tokio::time::timeout(limit, self.death()).await.is_ok()
    }

    /// Returns one of its live children.
    pub fn first_child(&self) -> Option<Self> {
        platform::children(self.pid).into_iter().find_map(Self::of)
    }

    /// Returns its program, as it was called.
    pub fn program(&self) -> Option<PathBuf> {
        platform::program(self.pid)
    }

    /// Returns its working directory; `None` where the system does not show it.
    pub fn working_folder(&self) -> Option<PathBuf> {
        platform::working_folder(self.pid)
    }

    /// Returns the present paths of its open files; none where the system does not show them.
    pub fn open_files(&self) -> impl Iterator<Item = PathBuf> {
        platform::open_files(self.pid)
    }

    /// Returns its command line, the program first; `None` where the system does not show it.
    pub fn arguments(&self) -> impl Iterator<Item = OsString> {
        platform::arguments(self.pid)
    }

    /// Signals this process.
    pub fn signal(&self, signal: Signal) -> Result<(), SignalError> {
        self.send(|pid| kill_process(pid, signal))
    }

    /// Signals the process group that this process leads, as a kernel started by `nb` does.
    pub fn signal_group(&self, signal: Signal) -> Result<(), SignalError> {
        self.send(|pid| kill_process_group(pid, signal))
    }

    /// Returns the resident memory of the process in bytes.
    pub fn memory_bytes(&self) -> Option<u64> {
        self.is_alive()
            .then(|| platform::memory_bytes(self.pid))
            .flatten()
    }

    fn send(&self, kill: impl FnOnce(Pid) -> rustix::io::Result<()>) -> Result<(), SignalError> {
        // Between the check and the signal another process could get the pid only if this one ended, was
        // reaped and all other pids were used up within microseconds. Most systems have no call that rules
        // this out for process groups.
        let no_process = SignalError::Gone(self.pid);
        if !self.is_alive() {
            return Err(no_process);
        }
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Err(no_process);
        };
        match kill(pid) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::SRCH) => Err(no_process),
            Err(error) => Err(SignalError::Refused {
                pid: self.pid,
                source: error.into(),
            }),
        }
    }
}

/// Says whether the `nb live` of a record belongs to this boot of this machine, and to this container.
fn is_here(editor: &LiveEditor) -> bool {
    editor.boot_id == boot_id() && editor.pid_namespace == pid_namespace()
}

/// Returns the path of this very program, for a plan that starts it again.
pub fn own_program() -> io::Result<OsString> {
    Ok(platform::reopened_executable()?.into_os_string())
}

/// Returns the path at which this program was started. Another one may be there now.
pub fn own_path() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    // The system marks a file that was replaced or removed while it runs.
    let text = path
        .to_str()
        .and_then(|text| text.strip_suffix(" (deleted)"));
    Ok(text.map(PathBuf::from).unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn sleeper() -> std::process::Child {
        use std::os::unix::process::CommandExt;
        Command::new("sleep")
            .arg("1000")
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap()
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    }

    #[test]
    fn the_death_of_an_unreaped_process_is_noticed() {
        let mut child = sleeper();
        let process = Process::of(child.id()).unwrap();
        assert!(process.is_alive());
        assert!(process.memory_bytes().unwrap() > 0);
        process.signal_group(Signal::KILL).unwrap();
        assert!(runtime().block_on(process.ended_within(Duration::from_secs(10))));
        assert!(!process.is_alive(), "a zombie is dead");
        assert!(matches!(
            process.signal(Signal::TERM),
            Err(SignalError::Gone(_))
        ));
        child.wait().unwrap();
    }

    #[test]
    fn a_stopped_process_is_told_from_one_that_runs() {
        let mut child = sleeper();
        let process = Process::of(child.id()).unwrap();
        assert!(!process.is_stopped());
        for (signal, stops) in [(Signal::STOP, true), (Signal::CONT, false)] {
            process.signal(signal).unwrap();
            let end = std::time::Instant::now() + Duration::from_secs(60);
            while process.is_stopped() != stops {
                assert!(std::time::Instant::now() < end, "{signal:?}");
                std::thread::yield_now();
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process.is_stopped());
    }

    #[test]
    fn a_reused_pid_is_not_our_process() {
        let mut child = sleeper();
        let now = Process::of(child.id()).unwrap();
        let earlier = Process {
            start_time: now.start_time - 1,
            ..now.clone()
        };
        assert!(now.is_alive());
        let other_boot = Process {
            boot_id: "another".into(),
            ..now
        };
        for stranger in [earlier, other_boot] {
            assert!(!stranger.is_alive());
            assert!(matches!(
                stranger.signal_group(Signal::KILL),
                Err(SignalError::Gone(_))
            ));
            assert!(runtime().block_on(stranger.ended_within(Duration::from_secs(10))));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

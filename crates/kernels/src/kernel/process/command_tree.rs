//! A command with all processes that it starts: they can be ended together, also those that have left its session.
//!
//! The command runs below a supervisor of its own, which is another process of this program. On Linux the supervisor
//! gets the orphans among the command's descendants as its children, so none of them is lost by a second fork or a new
//! session. It ends them all when its starter closes the socket, or has ended. Other systems have no such adoption:
//! there the command's process group is ended.
//!
//! Kernels and tasks that `nb` itself starts in the command are left alone: they outlive the command that asked for
//! them. For their sake the supervisor is a child of init, so nothing that ends a process tree finds them through it.
//!
//! The supervisor's stdin is a socket: it reads the command and then waits for the socket's end; it writes that the
//! command has started, or why not, and how it ended.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, wait as wait_for_any,
};
use serde::{Deserialize, Serialize};

use super::platform;
use super::supervisor::close_stdio;

/// The first argument of a command's supervisor.
pub(super) const WORD: &str = "nb:command";

/// How long the supervisor tries to end processes, such as those that start others again and again.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two searches for processes that are left.
const END_POLL: Duration = Duration::from_millis(1);

/// A command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TreeCommand {
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its variables, in addition to those of this process.
    pub env: Vec<(String, String)>,
    /// Its working directory.
    pub folder: PathBuf,
}

/// A message of the supervisor, one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeReport {
    /// The command runs.
    Started,
    /// It cannot be started.
    Failed(String),
    /// It has ended.
    Ended {
        /// The exit code.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
}

/// Returns the process that starts the supervisor and leaves it behind, and the socket to the supervisor. Its stdout and
/// stderr become those of the command.
pub(super) fn supervisor(helper_word: &str) -> io::Result<(Command, UnixStream)> {
    let (own, other) = UnixStream::pair()?;
    let mut command = Command::new(platform::reopened_executable()?);
    command.arg0("nb").args([helper_word, WORD]);
    command.stdin(Stdio::from(OwnedFd::from(other)));
    Ok((command, own))
}

/// Runs the supervisor.
pub(super) fn supervise() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run() -> io::Result<()> {
    rustix::process::setsid()?;
    platform::adopt_orphans();
    let socket = io::stdin();
    let socket = UnixStream::from(rustix::io::fcntl_dupfd_cloexec(&socket, 3)?);
    let mut control = BufReader::new(socket.try_clone()?);
    let mut line = String::new();
    control.read_line(&mut line)?;
    let command: TreeCommand = serde_json::from_str(&line)?;
    let started = Command::new(&command.program)
        .args(&command.args)
        .envs(command.env)
        .current_dir(&command.folder)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn();
    // The output has ended when the command's processes have closed it.
    close_stdio()?;
    // A file system cannot be unmounted as long as a process has its working directory there.
    std::env::set_current_dir("/")?;
    let child = match started {
        Ok(child) => child.id(),
        Err(error) => return send(&socket, &TreeReport::Failed(error.to_string())),
    };
    send(&socket, &TreeReport::Started)?;
    let (ended, end) = channel();
    let is_reaped = Arc::new(AtomicBool::new(false));
    let is_reaped_there = is_reaped.clone();
    std::thread::spawn(move || {
        // Nothing more is sent: this is the end.
        let _ = io::copy(&mut control, &mut io::sink());
        end_all(child, &is_reaped_there, &end);
        std::process::exit(0);
    });
    loop {
        match wait_for_any(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().unsigned_abs() == child => {
                is_reaped.store(true, Ordering::Release);
                let report = TreeReport::Ended {
                    code: status.exit_status(),
                    signal: status.terminating_signal(),
                };
                // A starter that has ended closes the socket, too.
                let _ = send(&socket, &report);
                let _ = ended.send(());
            }
            Ok(_) | Err(Errno::INTR) => {}
            // Nothing is left.
            Err(_) if cfg!(target_os = "linux") => return Ok(()),
            // Orphans are not adopted here: the process group may have some.
            Err(_) => std::thread::park(),
        }
    }
}

fn send(mut socket: &UnixStream, report: &TreeReport) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    socket.write_all(&line)
}

/// Ends the command and what it has started. The other thread reaps the processes: an ended one's children become this
/// process's own.
fn end_all(child: u32, is_reaped: &AtomicBool, ended: &Receiver<()>) {
    let raw = |pid: u32| i32::try_from(pid).ok().and_then(Pid::from_raw);
    // Before the child is reaped, the group's number is not another one's. Where orphans are not adopted, there is
    // nothing but the group.
    if (!cfg!(target_os = "linux") || !is_reaped.load(Ordering::Acquire))
        && let Some(group) = raw(child)
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let deadline = Instant::now() + END_TIMEOUT;
    while Instant::now() < deadline {
        let children = platform::children(std::process::id());
        let mut others = children
            .into_iter()
            .filter(|pid| !is_of_nb(*pid))
            .peekable();
        if others.peek().is_none() {
            break;
        }
        for pid in others.filter_map(raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(END_POLL);
    }
    let _ = ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
}

/// Returns whether a process is one that `nb` itself has started to outlive its starter: a program of that name, which
/// may be another copy of it, with a first argument that only such a process has.
fn is_of_nb(pid: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_end_matches(" (deleted)");
    let word = platform::arguments(pid).nth(1).unwrap_or_default();
    ["nb", "nb-proxy"].contains(&name) && is_word_of_nb(&word)
}

fn is_word_of_nb(word: &OsStr) -> bool {
    word.as_bytes().starts_with(b"nb:") && word != WORD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_that_outlive_their_starter_are_left() {
        for word in ["nb:supervise", "nb:task", "nb:become", "nb:detach"] {
            assert!(is_word_of_nb(word.as_ref()), "{word}");
        }
        for word in ["exec", "", "nb:command", "x nb:task"] {
            assert!(!is_word_of_nb(word.as_ref()), "{word}");
        }
    }
}

//! Starting a process that is nobody's descendant.
//!
//! Editors and agents' harnesses kill by walking parent pids, by session and by process group. A
//! kernel must survive all three, so the program starts itself again as a short-lived helper,
//! which starts itself once more and ends; the second one, by then a child of init, makes a
//! session of its own and becomes the wanted program by exec. Where somebody is to know how the
//! program ends, one more lies between and stays: see [`super::keeper`]. The wanted program's pid
//! is on disk before its first instruction runs, so no crash between can lose it.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::keeper::{self, Keep};
use super::limits::{self, LimitsError};
use super::platform;
use super::process::Process;
use crate::project::{pid_namespace, save};

const HELPER: &str = "nb:detach";
const KEEPS: &str = "nb:keep";
const BECOMES: &str = "nb:become";

/// What is to be started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Variables to set, beside those of this process.
    pub set: Vec<(OsString, OsString)>,
    /// Variables to remove.
    pub remove: Vec<OsString>,
    /// The working directory.
    pub folder: PathBuf,
    /// Where stdout and stderr are appended; made with mode 0600.
    pub log: PathBuf,
    /// Where the process is recorded as JSON ([`Recorded`]) before the program begins.
    pub pid_file: PathBuf,
    /// A file without which the program must not begin: whoever removes it first has called the
    /// start off.
    pub needs: Option<PathBuf>,
    /// How many bytes of address space the program may have.
    pub address_space: Option<u64>,
    /// What the program's keeper does; without it there is none.
    pub keep: Option<Keep>,
    /// The keeper, once there is one.
    pub keeper: Option<Process>,
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    /// The helper could not be started or spoken to.
    #[error("cannot start the helper that detaches a process")]
    Helper(#[source] io::Error),
    /// The wanted program could not be started.
    #[error("cannot start {program}: {reason}")]
    Program {
        /// The program.
        program: String,
        /// What the system said.
        reason: String,
    },
    /// What it may use of the machine cannot be bounded.
    #[error("cannot bound what the kernel may use")]
    Limits {
        /// Why.
        source: LimitsError,
    },
}

/// The content of a pid file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// The process.
    #[serde(flatten)]
    pub process: Process,
    /// The namespace that its pid belongs to; empty where that is not known.
    #[serde(default)]
    pub pid_namespace: String,
    /// The process that waits for its end.
    #[serde(default)]
    pub keeper: Option<Process>,
}

#[derive(Serialize, Deserialize)]
enum Report {
    Becoming(Process),
    Failed(String),
}

/// Runs this process's part of a detached start, if that is what it was started for.
///
/// The first call of every `main`: it reads no other argument and no setting.
pub fn entry() -> Option<ExitCode> {
    let word = std::env::args_os().nth(1)?;
    if word == OsStr::new(HELPER) {
        Some(helper(std::env::args_os().nth(2).as_deref()))
    } else if word == OsStr::new(KEEPS) {
        Some(become_keeper())
    } else if word == OsStr::new(BECOMES) {
        Some(become_program())
    } else {
        super::sandbox::entry()
    }
}

/// Returns the path of this very program, for a plan that starts it again.
pub fn own_program() -> io::Result<OsString> {
    Ok(platform::reopened_executable()?.into_os_string())
}

/// Starts the program and returns its process once it runs.
///
/// Blocks for some milliseconds. The process that calls this may be killed at any moment: either
/// nothing was started or the pid file names what was.
pub fn start(plan: &Plan) -> Result<Process, DetachError> {
    let program = || {
        plan.argv
            .first()
            .map_or_else(String::new, |name| name.display().to_string())
    };
    let failed = |reason: String| DetachError::Program {
        program: program(),
        reason,
    };
    let mut helper = Command::new(platform::reopened_executable().map_err(DetachError::Helper)?)
        .arg(HELPER)
        .args(plan.keep.is_some().then_some(KEEPS))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(DetachError::Helper)?;
    let text = serde_json::to_vec(plan)
        .map_err(io::Error::other)
        .map_err(DetachError::Helper)?;
    let written = helper
        .stdin
        .take()
        .map_or(Ok(()), |mut stdin| stdin.write_all(&text));
    let mut reports = String::new();
    let read = helper
        .stdout
        .take()
        .map_or(Ok(0), |mut stdout| stdout.read_to_string(&mut reports));
    helper.wait().map_err(DetachError::Helper)?;
    written.and(read).map_err(DetachError::Helper)?;
    let mut started = None;
    for line in reports.lines() {
        match serde_json::from_str(line) {
            Ok(Report::Becoming(process)) => started = Some(process),
            Ok(Report::Failed(reason)) => return Err(failed(reason)),
            Err(error) => return Err(failed(error.to_string())),
        }
    }
    started.ok_or_else(|| failed("the helper ended without a word".to_owned()))
}

/// The first process: starts the second with its own stdin and stdout, and leaves it behind.
fn helper(keeps: Option<&OsStr>) -> ExitCode {
    // A lock or a pipe's end that the caller's shell left open must not live as long as a keeper.
    close_fds::set_fds_cloexec(3, &[]);
    let word = keeps.unwrap_or(OsStr::new(BECOMES));
    let started = platform::reopened_executable()
        .and_then(|program| Command::new(program).arg0("nb").arg(word).spawn());
    match started {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => report(&Report::Failed(error.to_string())),
    }
}

/// The second process, where the program has a keeper: starts the third and stays.
fn become_keeper() -> ExitCode {
    let kept = read_plan().and_then(|plan| {
        let keep = plan.keep.clone();
        let keep = keep.ok_or_else(|| io::Error::other("there is nothing to keep"))?;
        keeper::keep(plan, &keep, BECOMES)
    });
    match kept {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&Report::Failed(error.to_string())),
    }
}

fn read_plan() -> io::Result<Plan> {
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// The last process: becomes the wanted program.
fn become_program() -> ExitCode {
    let failure = match read_plan() {
        Ok(plan) => exec(&plan),
        Err(error) => error,
    };
    report(&Report::Failed(failure.to_string()))
}

/// Becomes the program; returns only why that failed.
fn exec(plan: &Plan) -> io::Error {
    // A lock or a pipe's end that the caller's shell left open must not live as long as a kernel.
    close_fds::set_fds_cloexec(3, &[]);
    if let Err(error) = rustix::process::setsid() {
        return error.into();
    }
    if let Err(error) = default_signals() {
        return error;
    }
    let prepared = prepare(plan);
    let Ok(mut command) = prepared else {
        return prepared
            .err()
            .unwrap_or_else(|| io::Error::other("nothing to start"));
    };
    let process = Process::current();
    let recorded = Recorded {
        process: process.clone(),
        pid_namespace: pid_namespace(),
        keeper: plan.keeper.clone(),
    };
    // Not synced: after a power cut no process is what it names.
    let recorded = serde_json::to_vec(&recorded).map_err(io::Error::other);
    if let Err(error) = recorded.and_then(|text| save::replace_unsynced(&plan.pid_file, &text)) {
        return error;
    }
    // Recorded first, looked second, as the one who calls it off removes first and looks for a
    // recorded process second: one of the two sees the other.
    if let Some(needed) = plan.needs.as_ref().filter(|needed| !needed.exists()) {
        let _ = std::fs::remove_file(&plan.pid_file);
        return io::Error::other(format!("{} is gone", needed.display()));
    }
    // Not before: what bounds the program bounds this one too.
    if let Some(bytes) = plan.address_space
        && let Err(error) = limits::bound_address_space(bytes)
    {
        let _ = std::fs::remove_file(&plan.pid_file);
        return error;
    }
    // Whoever asked may be gone by now; the start goes on all the same.
    report(&Report::Becoming(process));
    let error = command.exec();
    let _ = std::fs::remove_file(&plan.pid_file);
    error
}

fn prepare(plan: &Plan) -> io::Result<Command> {
    let (program, arguments) = plan
        .argv
        .split_first()
        .ok_or_else(|| io::Error::other("the command is empty"))?;
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&plan.log)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(plan.set.iter().map(|(name, value)| (name, value)))
        .current_dir(&plan.folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    for name in &plan.remove {
        command.env_remove(name);
    }
    Ok(command)
}

/// Lets the program start with default signals.
///
/// A shell starts background jobs with SIGINT ignored and `nohup` ignores SIGHUP; both pass
/// through exec, and a kernel that ignores SIGINT cannot be interrupted. A caught signal becomes
/// a default one at exec, so they are caught.
fn default_signals() -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

fn report(report: &Report) -> ExitCode {
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        let _ = io::stdout()
            .write_all(&line)
            .and_then(|()| io::stdout().flush());
    }
    match report {
        Report::Becoming(_) => ExitCode::SUCCESS,
        Report::Failed(_) => ExitCode::FAILURE,
    }
}

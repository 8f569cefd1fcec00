//! Starting a process that is nobody's descendant.
//!
//! Editors and agents' harnesses kill by walking parent pids, by session and by process group. A
//! kernel must survive all three, so this program starts itself as a short-lived helper, which
//! starts itself once more and ends; the second process, by then a child of init, makes a session
//! of its own and becomes the wanted program by exec. A supervised program has one more process in
//! between, which stays: its supervisor. The pid is on disk before the wanted program's
//! first instruction runs, so no crash in between can lose it. All these processes may be made
//! before the plan is known ([`PreforkedProcess`]). Where this very program is wanted, the second
//! process goes on as it without exec, which would take as long as a small cell.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::identity::Process;
use super::limits::{self, LimitsError};
use super::plan::{Executable, PidRecord, StartPlan};
use super::{platform, supervisor};
use crate::kernel::confine;
use crate::project::{beneath, pid_namespace};

const HELPER: &str = "nb:detach";
const SUPERVISES: &str = "nb:supervise";
const BECOMES: &str = "nb:become";

/// Why a detached process was not started.
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
    /// The kernel's memory cannot be bounded.
    #[error("cannot bound the kernel's memory")]
    Limits {
        /// Why.
        source: LimitsError,
    },
}

#[derive(Serialize, Deserialize)]
enum Report {
    Becoming(Process),
    Failed(String),
}

/// The part of a detached start that this process was started for.
#[derive(Debug)]
pub enum DetachEntry {
    /// A helper, whose work is done.
    Done(ExitCode),
    /// The program itself, with these arguments.
    Program(Vec<OsString>),
}

/// Runs this process's part of a detached start, if that is what it was started for.
///
/// The first call of every `main`: it reads no other argument and no setting.
pub fn entry() -> DetachEntry {
    let mut arguments = std::env::args_os().skip(1);
    let word = arguments.next().unwrap_or_default();
    if word == OsStr::new(HELPER) {
        DetachEntry::Done(helper(arguments))
    } else if word == OsStr::new(SUPERVISES) {
        DetachEntry::Done(become_supervisor())
    } else if word == OsStr::new(BECOMES) {
        become_it()
    } else if let Some(code) = confine::entry() {
        DetachEntry::Done(code)
    } else {
        DetachEntry::Program(std::env::args_os().skip(1).collect())
    }
}

/// Starts the program and returns its process once it runs.
///
/// Blocks for some milliseconds. The process that calls this may be killed at any moment: either
/// nothing was started or the pid file names what was.
pub fn start(plan: &StartPlan) -> Result<Process, DetachError> {
    PreforkedProcess::for_plan(plan)?.start(plan)
}

/// The processes of a detached start, made before its plan is known. They wait for the plan, and end
/// where this is dropped without one.
#[derive(Debug)]
pub struct PreforkedProcess {
    helper: Child,
}

impl PreforkedProcess {
    /// Makes the processes for a program that has a supervisor.
    pub fn supervised() -> Result<Self, DetachError> {
        Self::spawn(SUPERVISES, &[])
    }

    /// Makes the processes for a plan.
    pub fn for_plan(plan: &StartPlan) -> Result<Self, DetachError> {
        // Shown by ps.
        let shown = match &plan.executable {
            Executable::ThisProgram(arguments) => arguments.as_slice(),
            Executable::Program(_) => &[],
        };
        let word = plan.supervision.as_ref().map_or(BECOMES, |_| SUPERVISES);
        Self::spawn(word, shown)
    }

    fn spawn(word: &str, shown: &[OsString]) -> Result<Self, DetachError> {
        let program = platform::reopened_executable().map_err(DetachError::Helper)?;
        let mut helper = Command::new(program);
        helper.arg(HELPER).arg(word).args(shown);
        helper.stdin(Stdio::piped()).stdout(Stdio::piped());
        limits::tell_descriptors(&mut helper);
        let helper = helper.spawn().map_err(DetachError::Helper)?;
        Ok(Self { helper })
    }

    /// Starts the program as [`start`] does.
    pub fn start(mut self, plan: &StartPlan) -> Result<Process, DetachError> {
        let program = || {
            let name = match &plan.executable {
                Executable::Program(argv) => argv.first(),
                Executable::ThisProgram(_) => None,
            };
            name.map_or_else(|| "nb".to_owned(), |name| name.display().to_string())
        };
        let failed = |reason: String| DetachError::Program {
            program: program(),
            reason,
        };
        let text = serde_json::to_vec(plan)
            .map_err(io::Error::other)
            .map_err(DetachError::Helper)?;
        let written = match self.helper.stdin.take() {
            Some(mut stdin) => stdin.write_all(&text),
            None => Ok(()),
        };
        let mut reports = String::new();
        let read = match self.helper.stdout.take() {
            Some(mut stdout) => stdout.read_to_string(&mut reports),
            None => Ok(0),
        };
        self.helper.wait().map_err(DetachError::Helper)?;
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
}

impl Drop for PreforkedProcess {
    fn drop(&mut self) {
        // A closed stdin without a plan ends the waiting processes. The helper ended before them.
        drop(self.helper.stdin.take());
        let _ = self.helper.wait();
    }
}

/// The first process: starts the second with its own stdin and stdout, and leaves it behind.
fn helper(words: impl Iterator<Item = OsString>) -> ExitCode {
    // A lock or a pipe that the caller's shell left open must not live as long as a supervisor.
    close_fds::set_fds_cloexec(3, &[]);
    // Not in the next process: it may go on as this very program, which has handlers of its own.
    let started = default_signals()
        .and_then(|()| platform::reopened_executable())
        .and_then(|program| {
            let mut next = Command::new(program);
            limits::restore_descriptors(&mut next)?;
            next.arg0("nb").args(words).spawn()
        });
    match started {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => report(&Report::Failed(error.to_string())),
    }
}

/// The second process of a supervised start: starts the third and stays.
fn become_supervisor() -> ExitCode {
    match supervisor::supervise(read_plan, BECOMES) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&Report::Failed(error.to_string())),
    }
}

/// Waits for the plan; none where the start was given up.
fn read_plan() -> io::Result<Option<StartPlan>> {
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text)?;
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// The last process: becomes the wanted program.
fn become_it() -> DetachEntry {
    let became = read_plan().and_then(|plan| {
        let Some(plan) = plan else { return Ok(None) };
        match &plan.executable {
            Executable::Program(argv) => Err(exec(&plan, argv)),
            Executable::ThisProgram(arguments) => go_on(&plan).map(|()| Some(arguments.clone())),
        }
    });
    match became {
        Ok(Some(arguments)) => DetachEntry::Program(arguments),
        Ok(None) => DetachEntry::Done(ExitCode::SUCCESS),
        Err(error) => DetachEntry::Done(report(&Report::Failed(error.to_string()))),
    }
}

/// Becomes the program; returns only why that failed.
fn exec(plan: &StartPlan, argv: &[OsString]) -> io::Error {
    let become_it = || {
        leave()?;
        default_signals()?;
        let mut command = prepare(plan, argv)?;
        let process = begin(plan)?;
        // The start goes on even if the process that asked for it is gone.
        report(&Report::Becoming(process));
        let error = command.exec();
        let _ = beneath::remove_file(&plan.pid_file);
        Err(error)
    };
    match become_it() {
        Err(error) => error,
        Ok(()) => io::Error::other("it went on"),
    }
}

/// Goes on as this very program, in the state in which exec would have started it.
fn go_on(plan: &StartPlan) -> io::Result<()> {
    leave()?;
    let log = open_log(plan)?;
    let null = std::fs::File::open("/dev/null")?;
    std::env::set_current_dir(&plan.folder)?;
    let process = begin(plan)?;
    report(&Report::Becoming(process));
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stderr(&log)?;
    rustix::stdio::dup2_stdout(&log)?;
    Ok(())
}

/// Leaves the caller's session and closes its descriptors at exec.
fn leave() -> io::Result<()> {
    // A lock or a pipe that the caller's shell left open must not live as long as a kernel.
    close_fds::set_fds_cloexec(3, &[]);
    rustix::process::setsid()?;
    Ok(())
}

/// Writes the pid file; fails where the start was called off.
fn begin(plan: &StartPlan) -> io::Result<Process> {
    let process = Process::current();
    let recorded = PidRecord {
        process: process.clone(),
        pid_namespace: pid_namespace(),
        supervisor: plan.supervisor.clone(),
    };
    // Not synced: after a power cut no process is what it names.
    let text = serde_json::to_vec(&recorded).map_err(io::Error::other)?;
    beneath::replace_unsynced(&plan.pid_file, &text)?;
    let called_off = |error: io::Error| {
        let _ = beneath::remove_file(&plan.pid_file);
        error
    };
    // Write the pid file first, look for the needed file second. Whoever calls the start off removes
    // that file first and reads the pid file second, so one of the two sees the other.
    if let Some(needed) = plan.needs.as_ref().filter(|needed| !needed.exists()) {
        let gone = io::Error::other(format!("{} is gone", needed.display()));
        return Err(called_off(gone));
    }
    // Last, because the bound holds for this process too.
    if let Some(bytes) = plan.address_space {
        limits::bound_address_space(bytes).map_err(called_off)?;
    }
    Ok(process)
}

fn open_log(plan: &StartPlan) -> io::Result<std::fs::File> {
    beneath::append(&plan.log)
}

/// Returns an unnamed file that holds a text, to be read from its beginning.
fn unnamed_file(text: &str) -> io::Result<std::fs::File> {
    let mut file = platform::unnamed_file()?;
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

fn prepare(plan: &StartPlan, argv: &[OsString]) -> io::Result<Command> {
    let (program, arguments) = argv
        .split_first()
        .ok_or_else(|| io::Error::other("the command is empty"))?;
    let log = open_log(plan)?;
    let stdin = match &plan.input {
        Some(text) => unnamed_file(text)?.into(),
        None => Stdio::null(),
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .envs(plan.set.iter().map(|(name, value)| (name, value)))
        .current_dir(&plan.folder)
        .stdin(stdin)
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

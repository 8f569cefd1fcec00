//! Starts a process that becomes a child of init.
//!
//! Editors and agents' harnesses kill processes by parent pid, by session and by process group. A kernel must
//! survive all three. So this program starts itself as a short-lived helper, which starts itself once more
//! and ends; the second process, by then a child of init, makes a new session and becomes the wanted program
//! by exec. For a supervised program there is one more process in between, which stays: its supervisor. The
//! pid is on disk before the wanted program's first instruction runs, so no crash in between can lose it. All
//! these processes may be made before the plan is known ([`PreforkedProcess`]). If the wanted program is this
//! very program, the second process continues as it without exec, which would take as long as a small cell.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Seek, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::identity::Process;
use super::limits::{self, LimitsError};
use super::plan::{Executable, PidRecord, StartPlan};
use super::{command_tree, platform, supervisor};
use crate::kernel::confine;
use crate::project::{beneath, pid_namespace};

/// The first arguments of the processes of a detached start, which say what each process is.
const HELPER_WORD: &str = "nb:detach";
const SUPERVISOR_WORD: &str = "nb:supervise";
const PROGRAM_WORD: &str = "nb:become";

/// Why a detached process was not started.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    /// The helper could not be started, or did not communicate.
    #[error("cannot start the helper that detaches a process")]
    Helper(#[source] io::Error),
    /// The wanted program could not be started.
    #[error("cannot start {program}: {reason}")]
    Program {
        /// The program.
        program: String,
        /// The error of the system.
        reason: String,
    },
    /// The kernel's memory cannot be limited.
    #[error("cannot bound the kernel's memory")]
    Limits(#[from] LimitsError),
}

#[derive(Serialize, Deserialize)]
enum Report {
    Becoming(Process),
    Failed(String),
}

/// The part of a detached start that this process was started for.
#[derive(Debug)]
pub enum DetachEntry {
    /// This process was a helper, and its work is done.
    Done(ExitCode),
    /// This process is the program itself, with these arguments.
    Program(Vec<OsString>),
}

/// Runs this process's part of a detached start, if it was started for that.
///
/// Every `main` must call it first: it reads no other argument and no setting.
pub fn entry() -> DetachEntry {
    let mut arguments = std::env::args_os().skip(1);
    let word = arguments.next().unwrap_or_default();
    if word == OsStr::new(HELPER_WORD) {
        DetachEntry::Done(helper(arguments))
    } else if word == OsStr::new(SUPERVISOR_WORD) {
        DetachEntry::Done(become_supervisor())
    } else if word == OsStr::new(command_tree::WORD) {
        DetachEntry::Done(command_tree::supervise())
    } else if word == OsStr::new(PROGRAM_WORD) {
        become_program()
    } else if let Some(code) = confine::entry() {
        DetachEntry::Done(code)
    } else {
        DetachEntry::Program(std::env::args_os().skip(1).collect())
    }
}

/// Returns the supervisor of a command as a process to be started, and the socket to it: it gets a
/// [`TreeCommand`](command_tree::TreeCommand) as a line of JSON, and answers with lines of
/// [`TreeReport`](command_tree::TreeReport). When the socket is closed or shut down for writing, it ends the command
/// with all that it has started.
///
/// # Errors
/// There is no socket, or this program cannot start itself.
pub fn command_supervisor() -> io::Result<(Command, UnixStream)> {
    command_tree::supervisor(HELPER_WORD)
}

/// Starts the program and returns its process once it runs.
///
/// Blocks for some milliseconds. If the calling process is killed at any moment, either nothing was started
/// or the pid file names the process.
pub fn start(plan: &StartPlan) -> Result<Process, DetachError> {
    PreforkedProcess::for_plan(plan)?.start(plan)
}

/// The processes of a detached start, made before its plan is known. They wait for the plan, and end if this
/// is dropped without one.
#[derive(Debug)]
pub struct PreforkedProcess {
    helper: Child,
}

impl PreforkedProcess {
    /// Makes the processes for a program that has a supervisor.
    pub fn supervised() -> Result<Self, DetachError> {
        Self::spawn(SUPERVISOR_WORD, &[])
    }

    /// Makes the processes for a plan.
    pub fn for_plan(plan: &StartPlan) -> Result<Self, DetachError> {
        // `ps` shows these arguments.
        let shown = match &plan.executable {
            Executable::ThisProgram(arguments) => arguments.as_slice(),
            Executable::Program(_) => &[],
        };
        let word = plan
            .supervision
            .as_ref()
            .map_or(PROGRAM_WORD, |_| SUPERVISOR_WORD);
        Self::spawn(word, shown)
    }

    fn spawn(word: &str, shown: &[OsString]) -> Result<Self, DetachError> {
        let program = platform::reopened_executable().map_err(DetachError::Helper)?;
        let mut helper = Command::new(program);
        helper.arg(HELPER_WORD).arg(word).args(shown);
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
        let stdin = self.helper.stdin.take();
        // Only after the helper has ended is the next process a child of init. Until then it gets no plan,
        // and does nothing.
        self.helper.wait().map_err(DetachError::Helper)?;
        let written = stdin.map_or(Ok(()), |mut stdin| stdin.write_all(&text));
        let mut reports = String::new();
        let read = match self.helper.stdout.take() {
            Some(mut stdout) => stdout.read_to_string(&mut reports),
            None => Ok(0),
        };
        written.and(read).map_err(DetachError::Helper)?;
        let mut started = None;
        for line in reports.lines() {
            match serde_json::from_str(line) {
                Ok(Report::Becoming(process)) => started = Some(process),
                Ok(Report::Failed(reason)) => return Err(failed(reason)),
                Err(error) => return Err(failed(error.to_string())),
            }
        }
        started.ok_or_else(|| failed("the helper ended without a report".to_owned()))
    }
}

impl Drop for PreforkedProcess {
    fn drop(&mut self) {
        // A closed stdin without a plan ends the waiting processes. The helper has ended before them.
        drop(self.helper.stdin.take());
        let _ = self.helper.wait();
    }
}

/// The first process: starts the second with its own stdin and stdout, and leaves it behind.
fn helper(words: impl Iterator<Item = OsString>) -> ExitCode {
    // A lock or a pipe that the caller's shell left open must not stay open as long as a supervisor runs.
    close_fds::set_fds_cloexec(3, &[]);
    // Not done in the next process: it may go on as this very program, which has its own handlers.
    let start = || {
        default_signals()?;
        let mut next = Command::new(platform::reopened_executable()?);
        limits::restore_descriptors(&mut next)?;
        next.arg0("nb").args(words).spawn()
    };
    match start() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => report(&Report::Failed(error.to_string())),
    }
}

/// The second process of a supervised start: starts the third and stays.
fn become_supervisor() -> ExitCode {
    match supervisor::supervise(read_plan, PROGRAM_WORD) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&Report::Failed(error.to_string())),
    }
}

/// Waits for the plan; returns `None` if the start was given up.
fn read_plan() -> io::Result<Option<StartPlan>> {
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text)?;
    if text.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&text).map_err(io::Error::other)
}

/// The last process: becomes the planned program.
fn become_program() -> DetachEntry {
    let became = read_plan().and_then(|plan| {
        let Some(plan) = plan else {
            return Ok(DetachEntry::Done(ExitCode::SUCCESS));
        };
        match &plan.executable {
            Executable::Program(argv) => exec(&plan, argv).map(DetachEntry::Done),
            Executable::ThisProgram(arguments) => {
                continue_in_process(&plan).map(|()| DetachEntry::Program(arguments.clone()))
            }
        }
    });
    became.unwrap_or_else(|error| DetachEntry::Done(report(&Report::Failed(error.to_string()))))
}

/// Becomes the program; returns only if that failed. An error is one before the hand-over.
fn exec(plan: &StartPlan, argv: &[OsString]) -> io::Result<ExitCode> {
    detach_from_session()?;
    default_signals()?;
    let mut command = prepare(plan, argv)?;
    check_program(plan, command.get_program())?;
    let process = write_pid_file(plan)?;
    // The start continues even if the process that requested it has ended.
    report(&Report::Becoming(process));
    let error = command.exec();
    let _ = beneath::remove_file(&plan.pid_file);
    // The failed exec has made the kernel's log stderr.
    let program = command.get_program().display();
    let _ = writeln!(io::stderr(), "nb: cannot start {program}: {error}");
    Ok(ExitCode::FAILURE)
}

/// Fails if there is no such program, while the process that requested the start still listens. A name without a
/// folder is looked up by exec.
fn check_program(plan: &StartPlan, program: &OsStr) -> io::Result<()> {
    let path = Path::new(program);
    match path.components().count() {
        0 | 1 => Ok(()),
        _ => plan.folder.join(path).metadata().map(drop),
    }
}

/// Continues as this very program, in the state that exec would have given it.
fn continue_in_process(plan: &StartPlan) -> io::Result<()> {
    detach_from_session()?;
    let log = beneath::append(&plan.log)?;
    let null = std::fs::File::open("/dev/null")?;
    std::env::set_current_dir(&plan.folder)?;
    let process = write_pid_file(plan)?;
    report(&Report::Becoming(process));
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stderr(&log)?;
    rustix::stdio::dup2_stdout(&log)?;
    Ok(())
}

/// Leaves the caller's session, and makes its descriptors close at exec.
fn detach_from_session() -> io::Result<()> {
    // A lock or a pipe that the caller's shell left open must not stay open as long as a kernel runs.
    close_fds::set_fds_cloexec(3, &[]);
    rustix::process::setsid()?;
    Ok(())
}

/// Writes the pid file; fails if the start was cancelled.
fn write_pid_file(plan: &StartPlan) -> io::Result<Process> {
    let process = Process::current();
    let recorded = PidRecord {
        process: process.clone(),
        pid_namespace: pid_namespace(),
        supervisor: plan.supervisor.clone(),
    };
    // Not synced: after a power cut the process does not exist any more.
    let text = serde_json::to_vec(&recorded).map_err(io::Error::other)?;
    beneath::replace_unsynced(&plan.pid_file, &text)?;
    let cancel = |error: io::Error| {
        let _ = beneath::remove_file(&plan.pid_file);
        error
    };
    // The pid file is written first, the needed file checked second. A process that calls the start off
    // removes the needed file first and reads the pid file second, so one of the two notices the other.
    if let Some(needed) = plan.needs.as_ref().filter(|needed| !needed.exists()) {
        let cancelled = io::Error::other(format!("{} is gone", needed.display()));
        return Err(cancel(cancelled));
    }
    // Last, because the limit applies to this process, too.
    if let Some(bytes) = plan.address_space {
        limits::bound_address_space(bytes).map_err(cancel)?;
    }
    Ok(process)
}

/// Returns an unnamed file that contains a text, positioned at its start.
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
    let log = beneath::append(&plan.log)?;
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

/// Makes the program start with default signals.
///
/// A shell starts background jobs with SIGINT ignored, and `nohup` ignores SIGHUP. Ignored signals stay
/// ignored over exec, and a kernel that ignores SIGINT cannot be interrupted. A caught signal becomes a
/// default one at exec, so the signals are caught here.
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_gets_its_plan_once_it_is_a_child_of_init() {
        // A helper that ends slowly. The process that it leaves behind reports its parent once it has the
        // plan.
        let report = r#"cat <&3 >/dev/null; read _ _ _ parent _ </proc/$$/stat; echo "{\"Failed\":\"$parent\"}""#;
        let script = format!("exec 3<&0; sh -c '{report}' & sleep 0.3");
        let mut helper = Command::new("sh");
        helper.args(["-c", &script]);
        let helper = helper.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let helper = helper.unwrap();
        let pid = helper.id().to_string();
        let plan = StartPlan {
            executable: Executable::Program(vec!["kernel".into()]),
            set: Vec::new(),
            remove: Vec::new(),
            input: None,
            folder: "/".into(),
            log: "/dev/null".into(),
            pid_file: "/dev/null".into(),
            needs: None,
            address_space: None,
            supervision: None,
            supervisor: None,
        };
        let error = PreforkedProcess { helper }.start(&plan).unwrap_err();
        let DetachError::Program { reason, .. } = error else {
            panic!("{error}");
        };
        assert_ne!(reason, pid);
        assert!(reason.parse::<u32>().is_ok(), "{reason}");
    }
}

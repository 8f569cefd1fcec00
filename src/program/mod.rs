//! The entry of both programs: the tasks for which `task` starts a process, else the program's own `main`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::editing::transaction;
use crate::execution::recorder::{self, NextCell};
use crate::kernel::process::connection::KernelFiles;
use crate::kernel::process::detach::{self, DetachEntry};
use crate::lifecycle::open::{OpenOptions, ensure_kernel};
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::server_kernel::ServerKernels;
use crate::lifecycle::{death, idle, reconnect, restart};
use crate::project::{Project, Session, beneath};
use crate::task::causes::with_causes;
use crate::task::{Task, TaskReport, WORD};

/// Runs a program: the task for which `nb` has started this process, if there is one, else `main`. Every
/// binary's `main` calls this.
///
/// A program that presents kernels on servers passes its client of servers and the function that presents one, whose
/// arguments are those of [`Task::Bridge`]. `next` says which cell follows in a job that grows.
pub fn run(
    servers: &impl ServerKernels,
    bridge: fn(&Path, &str, &Path) -> ExitCode,
    next: NextCell,
    main: impl FnOnce() -> ExitCode,
) -> ExitCode {
    report_file_size_limit();
    let code = entry(servers, bridge, next).unwrap_or_else(main);
    transaction::settle();
    code
}

/// Makes a write beyond the limit of `ulimit -f` fail (`EFBIG`) where SIGXFSZ would end the process.
///
/// The signal is caught rather than ignored, so that programs executed from here get its default again.
fn report_file_size_limit() {
    // If this fails, such a write ends the process, as in most programs.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
}

/// Runs the task for which `nb` has started this process, if there is one.
fn entry(
    servers: &impl ServerKernels,
    bridge: fn(&Path, &str, &Path) -> ExitCode,
    next: NextCell,
) -> Option<ExitCode> {
    let arguments = match detach::entry() {
        DetachEntry::Done(code) => return Some(code),
        DetachEntry::Program(arguments) => arguments,
    };
    let mut arguments = arguments.into_iter();
    if arguments.next()? != OsStr::new(WORD) {
        return None;
    }
    let (Some(task), Some(report)) = (arguments.next(), arguments.next()) else {
        return Some(ExitCode::from(2));
    };
    Some(perform(servers, bridge, next, &task, Path::new(&report)))
}

fn perform(
    servers: &impl ServerKernels,
    bridge: fn(&Path, &str, &Path) -> ExitCode,
    next: NextCell,
    task: &OsStr,
    report: &Path,
) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let (Ok(task), Ok(runtime)) = (serde_json::from_slice(task.as_encoded_bytes()), runtime) else {
        return ExitCode::FAILURE;
    };
    match task {
        Task::Open {
            state_file,
            key,
            by,
            timeout_ms,
        } => {
            let done = runtime.block_on(async {
                let project = project_of(&state_file)?;
                let options = OpenOptions {
                    by,
                    timeout: Duration::from_millis(timeout_ms),
                    // Whether a person has chosen the kernel stays as it is recorded.
                    unchosen: true,
                    ..OpenOptions::default()
                };
                let notebook = project.notebook(&project.current_key(&key));
                ensure_kernel(servers, &project, &notebook, &options).await
            });
            write_report(report, done.map(|opened| opened.session))
        }
        Task::Restart {
            state_file,
            key,
            by,
            timeout_ms,
        } => {
            let done = runtime.block_on(async {
                let project = project_of(&state_file)?;
                let timeout = Duration::from_millis(timeout_ms);
                restart::perform(servers, &project, &key, &by, timeout).await
            });
            write_report(report, done)
        }
        Task::Bridge {
            state_file,
            key,
            connection_file,
        } => {
            drop(runtime);
            bridge(&state_file, &key, &connection_file)
        }
        Task::Ended {
            state_file,
            key,
            connection_file,
        } => {
            let process = KernelFiles::of(&connection_file).process();
            let (Ok(project), Some(process)) = (Project::of_state_file(&state_file), process)
            else {
                // The project is gone, or the command that ended the kernel has removed its files.
                return ExitCode::SUCCESS;
            };
            let key = project.current_key(&key);
            if reconnect::is_lost(&project, &key, &process) {
                let done = runtime.block_on(reconnect::after_a_loss(&project, &key, &process));
                return ExitCode::from(u8::from(done.is_err()));
            }
            match death::supervisor_reports(&project, &key, &process) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        Task::Unused {
            state_file,
            key,
            ends,
        } => {
            let Ok(project) = Project::of_state_file(&state_file) else {
                return ExitCode::FAILURE;
            };
            let key = project.current_key(&key);
            let report = runtime.block_on(idle::idle_report(&project, &key));
            if ends {
                let ended = runtime.block_on(idle::end_unused(servers, &project, &key, report));
                return ExitCode::from(u8::from(!ended));
            }
            match serde_json::to_string(&report) {
                Ok(text) => println!("{text}"),
                Err(_) => return ExitCode::FAILURE,
            }
            ExitCode::SUCCESS
        }
        Task::Record { .. } | Task::Resume { .. } => {
            let goes_on = matches!(task, Task::Resume { .. });
            let (Task::Record { state_file, id } | Task::Resume { state_file, id }) = task else {
                return ExitCode::FAILURE;
            };
            let done = runtime.block_on(async {
                let project = Project::of_state_file(&state_file)?;
                let folder = project.job(&id).map_err(std::io::Error::other)?;
                match goes_on {
                    true => recorder::resume(&project, &folder).await,
                    false => recorder::perform(&project, &folder, next).await,
                }
            });
            match done {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    // Stderr is the project's own log.
                    eprintln!("job {id} cannot be recorded: {}", with_causes(&error));
                    ExitCode::FAILURE
                }
            }
        }
    }
}

fn project_of(state_file: &Path) -> Result<Project, OpenError> {
    let project = Project::of_state_file(state_file);
    project.map_err(|error| OpenError::Internal(error.to_string()))
}

/// Writes the report of a task that starts or restarts a kernel. If nobody waits for it, `state.json` has the result.
fn write_report(report: &Path, done: Result<Session, OpenError>) -> ExitCode {
    let (answer, code) = match done {
        Ok(session) => (TaskReport::Done(Box::new(session)), ExitCode::SUCCESS),
        Err(error) => (failed(&error), ExitCode::FAILURE),
    };
    let _ = serde_json::to_vec(&answer).map(|text| beneath::replace(report, &text));
    code
}

fn failed(error: &OpenError) -> TaskReport {
    let message = with_causes(error);
    let lines = match error {
        OpenError::Died { lines, .. } => lines.clone(),
        _ => Vec::new(),
    };
    TaskReport::Failed {
        message,
        lines,
        slow: matches!(error, OpenError::Slow { .. }),
    }
}

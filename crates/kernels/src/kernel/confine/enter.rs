//! The processes between a detached start and a kernel in a sandbox.
//!
//! The first process makes the probes' targets, has every guarantee tried, writes the outcome and lets the
//! kernel start. Under Landlock it confines itself and becomes the kernel. Under bubblewrap it stays outside
//! and waits: inside, a second process confines itself further, runs the probes, and becomes the kernel when
//! the first process says so. If the first process is killed before that, no kernel is started.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use serde::{Deserialize, Serialize};

use super::guarantee::Guarantee;
use super::outcome::SandboxOutcome;
use super::probe::{self, ProbeResults, ProbeTargets, TargetAddresses};
use super::sandbox::{ENTER, Orders};
use super::view::{self, FilesystemView};
use super::{bubblewrap, landlock, privileges, seccomp};
use crate::kernel::environment::activate;
use crate::kernel::process::plan::PidRecord;
use crate::kernel::process::{Process, Signal, own_program};
use crate::project::{Mechanism, Missing, SandboxCheck, Strictness, pid_namespace, save};

const INSIDE_WORD: &str = "nb:inside";
const BYSTANDER_WORD: &str = "nb:bystander";
const GO: &str = "go\n";

/// The orders of the second process.
#[derive(Serialize, Deserialize)]
struct Inside {
    orders: Orders,
    addresses: TargetAddresses,
    variables: Vec<(OsString, OsString)>,
    /// Whether bubblewrap has already applied the filters for system calls.
    filtered: bool,
}

/// Runs this process's part of a start in a sandbox, if it was started for that.
pub(in crate::kernel) fn entry() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let word = arguments.next()?;
    if word == OsStr::new(ENTER) {
        Some(match serde_json::from_reader(io::stdin().lock()) {
            Ok(orders) => enter(&orders),
            Err(error) => log_failure(&error),
        })
    } else if word == OsStr::new(INSIDE_WORD) {
        Some(inside())
    } else if word == OsStr::new(BYSTANDER_WORD) {
        Some(bystander(arguments.next()))
    } else {
        None
    }
}

fn enter(orders: &Orders) -> ExitCode {
    // Opened before this process is confined and can no longer write there.
    let outcome = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&orders.outcome_file);
    let entered = outcome.and_then(|mut outcome| {
        let done = match orders.start.chosen.mechanism {
            Mechanism::Bubblewrap => by_bubblewrap(orders, &mut outcome),
            Mechanism::Landlock => by_landlock(orders, &mut outcome),
        };
        done.inspect_err(|error| {
            let failed = SandboxOutcome::Failed {
                chosen: orders.start.chosen.clone(),
                why: error.to_string(),
            };
            let _ = failed.write(&mut outcome);
        })
    });
    entered.unwrap_or_else(|error| log_failure(&error))
}

/// Writes the error to the kernel's log.
fn log_failure(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("nb: the sandbox was not made: {error}");
    ExitCode::FAILURE
}

/// Decides whether the kernel may start.
fn decide(
    orders: &Orders,
    results: ProbeResults,
    arrived: Option<Missing>,
    init: Option<Process>,
) -> SandboxOutcome {
    let best_effort = orders.start.sandbox.demand == Strictness::BestEffort;
    let ProbeResults {
        mut kept,
        mut missing,
    } = results;
    if let Some(arrived) = arrived {
        kept.retain(|promise| promise.words() != arrived.promise);
        missing.push(arrived);
    }
    // No kernel can run without its own folders.
    let unusable = missing
        .iter()
        .any(|missing| missing.promise == Guarantee::OwnFolders.words());
    if unusable || !(missing.is_empty() || best_effort) {
        return SandboxOutcome::Refused {
            chosen: orders.start.chosen.clone(),
            missing,
        };
    }
    SandboxOutcome::Entered {
        reached: SandboxCheck {
            mechanism: orders.start.chosen.mechanism,
            kept: kept.iter().map(|it| it.words().to_owned()).collect(),
            missing,
        },
        init,
    }
}

fn by_landlock(orders: &Orders, outcome: &mut File) -> io::Result<ExitCode> {
    let view = &orders.start.view;
    let temporary = view.temporary();
    let own = (&*orders.command.set, &*orders.command.own);
    let variables = view::variables(std::env::vars_os(), own, view, &temporary);
    let mut outside = ProbeTargets::make(&orders.outside())?;
    let mut bystander = Command::new(own_program()?)
        .arg(BYSTANDER_WORD)
        .arg(orders.outside())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let ended = |bystander: &mut Child| {
        drop(bystander.stdin.take());
        let _ = bystander.wait();
    };
    outside.is_process(bystander.id());
    let confined = landlock::apply(view)
        .map_err(io::Error::other)
        .and_then(|_| confine(view))
        .and_then(|()| filter(view, true));
    if let Err(error) = confined {
        ended(&mut bystander);
        return Err(error);
    }
    let results = probe::try_all(view, &outside.addresses);
    let arrived = outside.arrived();
    ended(&mut bystander);
    let decision = decide(orders, results, arrived, None);
    decision.write(outcome)?;
    if matches!(decision, SandboxOutcome::Refused { .. }) {
        return Ok(ExitCode::FAILURE);
    }
    let command = kernel(orders, variables, &temporary)?;
    Err({ command }.exec())
}

/// Drops processors and privileges, for this process and all processes that it starts.
fn confine(view: &FilesystemView) -> io::Result<()> {
    if let Some(count) = view.cpus {
        privileges::limit_cpus(count)?;
    }
    privileges::drop_privileges()
}

fn filter(view: &FilesystemView, no_namespaces: bool) -> io::Result<()> {
    seccomp::apply(options(view, no_namespaces)).map_err(io::Error::other)
}

fn options(view: &FilesystemView, no_namespaces: bool) -> seccomp::FilterOptions {
    seccomp::FilterOptions {
        no_namespaces,
        net: view.allow_net,
        cpus: view.cpus.is_some(),
    }
}

/// Returns the kernel's command; its output goes to this process's output. Runs the activation scripts, since
/// this process is in the sandbox and the kernel may start.
fn kernel(
    orders: &Orders,
    variables: Vec<(OsString, OsString)>,
    temporary: &Path,
) -> io::Result<Command> {
    let command = &orders.command;
    let variables = variables.into_iter().collect();
    let (variables, problem) = activate::run_inside(&command.scripts, variables, temporary);
    if let Some(problem) = problem {
        eprintln!("nb: {problem}");
    }
    let variables = variables.into_iter().collect();
    let variables = view::with_own(variables, &command.own, &orders.start.view, temporary);
    let (program, arguments) = command
        .argv
        .split_first()
        .ok_or_else(|| io::Error::other("the command is empty"))?;
    let mut kernel = Command::new(program);
    kernel.args(arguments).env_clear().envs(variables);
    kernel.stdin(Stdio::null());
    Ok(kernel)
}

/// Waits until stdin is closed, then removes the targets: the process that made them is confined by then and
/// cannot.
fn bystander(folder: Option<OsString>) -> ExitCode {
    let _ = io::stdin().read_to_end(&mut Vec::new());
    if let Some(folder) = folder {
        let _ = std::fs::remove_dir_all(folder);
    }
    ExitCode::SUCCESS
}

fn by_bubblewrap(orders: &Orders, outcome: &mut File) -> io::Result<ExitCode> {
    let view = &orders.start.view;
    let own = (&*orders.command.set, &*orders.command.own);
    let variables = view::variables(std::env::vars_os(), own, view, view.inner_temporary());
    let outside = ProbeTargets::make(&orders.outside())?;
    let program = bubblewrap::program();
    let program = program.ok_or_else(|| io::Error::other("bwrap is gone from PATH"))?;
    let features = bubblewrap::features(&program)?;
    if let Some(count) = view.cpus {
        // All processes inside inherit these processors; the filters forbid a change.
        privileges::limit_cpus(count)?;
    }
    // The namespace's first process gets the filters, too: it has the same user as the others.
    let filters = match features.filters {
        true => seccomp::files(options(view, false)).map_err(io::Error::other)?,
        false => Vec::new(),
    };
    let own = program_file(view)?.canonicalize()?;
    let opener = |path: &Path| {
        let opened = bubblewrap::open(path)?;
        Ok(features.descriptors.then_some(opened))
    };
    let arguments = bubblewrap::arguments(view, &own, filters, &opener)?;
    let mut wrap = Command::new(program)
        .args(&arguments.list)
        .args([bubblewrap::INNER_PROGRAM, INSIDE_WORD])
        // Processes inside can read its environment.
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    drop(arguments);
    let (Some(mut words), Some(answers)) = (wrap.stdin.take(), wrap.stdout.take()) else {
        return Err(io::Error::other("bwrap has no stdin or stdout"));
    };
    let task = Inside {
        orders: orders.clone(),
        addresses: outside.addresses.clone(),
        variables,
        filtered: features.filters,
    };
    let mut line = serde_json::to_vec(&task)?;
    line.push(b'\n');
    // An error is ignored: bwrap's own message in the log says more than a broken pipe.
    let _ = words.write_all(&line);
    let mut answer = String::new();
    BufReader::new(answers).read_line(&mut answer)?;
    let Ok(results) = serde_json::from_str::<Result<ProbeResults, String>>(&answer) else {
        let status = wrap.wait()?;
        return Err(io::Error::other(format!("bwrap ended with {status}")));
    };
    let results = results.map_err(io::Error::other)?;
    let arrived = outside.arrived();
    drop(outside);
    let pid = wrap.id();
    // bwrap's child is the namespace's first process, which starts the program.
    let init = Process::of(pid).and_then(|bwrap| bwrap.first_child());
    let (init, inner) = init
        .and_then(|init| init.first_child().map(|inner| (init, inner)))
        .ok_or_else(|| io::Error::other("bwrap's processes cannot be found in /proc"))?;
    let decision = decide(orders, results, arrived, Some(init.clone()));
    let may_begin = matches!(decision, SandboxOutcome::Entered { .. });
    if may_begin {
        let recorded = PidRecord {
            process: inner,
            pid_namespace: pid_namespace(),
            supervisor: parent(),
        };
        let recorded = serde_json::to_vec(&recorded)?;
        save::replace(&orders.pid_file, &recorded)?;
    }
    decision.write(outcome)?;
    if may_begin {
        words.write_all(GO.as_bytes())?;
    }
    drop(words);
    let status = wrap.wait()?;
    // Ends the processes that the kernel left running inside.
    let _ = init.signal(Signal::KILL);
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    let code = code.and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(u8::MAX)))
}

/// Returns the supervisor, which is this process's parent.
fn parent() -> Option<Process> {
    let parent = rustix::process::getppid()?;
    Process::of(parent.as_raw_nonzero().get().unsigned_abs())
}

/// Runs the second process: confines itself further, runs the probes, becomes the kernel.
fn inside() -> ExitCode {
    let mut words = BufReader::new(io::stdin());
    let mut line = String::new();
    let read = words.read_line(&mut line);
    let task = match read.and_then(|_| Ok(serde_json::from_str::<Inside>(&line)?)) {
        Ok(task) => task,
        Err(error) => return log_failure(&error),
    };
    let view = &task.orders.start.view;
    let confined = rustix::process::setsid()
        .map_err(io::Error::from)
        .and_then(|_| {
            let program = Path::new(bubblewrap::INNER_PROGRAM);
            landlock::apply_inside(view, program).map_err(io::Error::other)
        })
        .and_then(|_| privileges::drop_privileges())
        .and_then(|()| match task.filtered {
            true => Ok(()),
            false => filter(view, false),
        });
    let results = confined
        .map(|()| probe::try_all(view, &task.addresses))
        .map_err(|error| error.to_string());
    let answered = serde_json::to_vec(&results)
        .map_err(io::Error::from)
        .and_then(|mut answer| {
            answer.push(b'\n');
            io::stdout().write_all(&answer)?;
            io::stdout().flush()
        });
    let mut word = String::new();
    let begin = answered.and_then(|()| words.read_line(&mut word));
    if begin.is_err() || word != GO {
        return ExitCode::FAILURE;
    }
    let become_kernel = || -> io::Result<io::Error> {
        use std::os::fd::AsFd;
        let mut command = kernel(&task.orders, task.variables, view.inner_temporary())?;
        let log = io::stderr().as_fd().try_clone_to_owned()?;
        Ok(command.stdout(log).exec())
    };
    match become_kernel() {
        Ok(error) | Err(error) => log_failure(&error),
    }
}

/// Returns a file that holds this program, to be mounted.
fn program_file(view: &FilesystemView) -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    if path.exists() {
        return Ok(path);
    }
    // The file was replaced while the program runs, for example by an update.
    let copy = view.sockets.with_extension("program");
    std::fs::copy(own_program()?, &copy)?;
    Ok(copy)
}

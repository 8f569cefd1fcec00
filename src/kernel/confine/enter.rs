//! The processes between a detached start and a kernel in a sandbox.
//!
//! The first process makes the probes' targets, has every guarantee tried, writes down the outcome
//! and lets the kernel begin. Under Landlock it confines itself and becomes the kernel. Under
//! bubblewrap it stays outside and waits: inside, a second process confines itself further, runs the
//! probes, and becomes the kernel when it is told to. If the first process is killed before that,
//! nothing was started.

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
use super::probe::{self, ProbeTargets, TargetAddresses};
use super::sandbox::{ENTER, Orders};
use super::view::{self, FilesystemView};
use super::{bubblewrap, landlock, privileges, seccomp};
use crate::kernel::environment::activate;
use crate::kernel::process::plan::PidRecord;
use crate::kernel::process::{Process, Signal, own_program};
use crate::project::{Demand, Mechanism, Missing, Reached, pid_namespace, save};

const INSIDE: &str = "nb:inside";
const BYSTANDER: &str = "nb:bystander";
const GO: &str = "go\n";

/// The orders of the second process.
#[derive(Serialize, Deserialize)]
struct Inside {
    orders: Orders,
    addresses: TargetAddresses,
    variables: Vec<(OsString, OsString)>,
    /// Whether bubblewrap has filtered its system calls already.
    filtered: bool,
}

/// The results of the probes.
#[derive(Serialize, Deserialize)]
struct ProbeResults {
    kept: Vec<Guarantee>,
    missing: Vec<Missing>,
}

/// Runs this process's part of a start in a sandbox, if that is what it was started for.
pub(in crate::kernel) fn entry() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let word = arguments.next()?;
    if word == OsStr::new(ENTER) {
        Some(match serde_json::from_reader(io::stdin().lock()) {
            Ok(orders) => enter(&orders),
            Err(error) => told(&error),
        })
    } else if word == OsStr::new(INSIDE) {
        Some(inside())
    } else if word == OsStr::new(BYSTANDER) {
        Some(bystander(arguments.next()))
    } else {
        None
    }
}

fn enter(orders: &Orders) -> ExitCode {
    // Opened before this process is confined and cannot write there any more.
    let outcome = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&orders.outcome_file);
    let mut outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return told(&error),
    };
    let done = match orders.start.chosen.mechanism {
        Mechanism::Bubblewrap => by_bubblewrap(orders, &mut outcome),
        Mechanism::Landlock => by_landlock(orders, &mut outcome),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            let refused = SandboxOutcome::Failed {
                chosen: orders.start.chosen.clone(),
                why: error.to_string(),
            };
            let _ = refused.write(&mut outcome);
            told(&error)
        }
    }
}

/// Writes the error to the kernel's log.
fn told(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("nb: the sandbox was not made: {error}");
    ExitCode::FAILURE
}

/// Decides whether the kernel may begin.
fn decide(
    orders: &Orders,
    tried: ProbeResults,
    arrived: Option<Missing>,
    init: Option<Process>,
) -> SandboxOutcome {
    let best_effort = orders.start.sandbox.demand == Demand::BestEffort;
    let mut missing = tried.missing;
    let mut kept = tried.kept;
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
        reached: Reached {
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
        .arg(BYSTANDER)
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
    let (kept, missing) = probe::try_all(view, &outside.addresses);
    let arrived = outside.arrived();
    ended(&mut bystander);
    let decided = decide(orders, ProbeResults { kept, missing }, arrived, None);
    decided.write(outcome)?;
    if matches!(decided, SandboxOutcome::Refused { .. }) {
        return Ok(ExitCode::FAILURE);
    }
    let command = kernel(orders, variables, &temporary)?;
    Err({ command }.exec())
}

/// Drops processors and privileges, of this process and of all that it starts.
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

/// Returns the kernel's command; its output goes where this process's does. Runs the activation
/// scripts, as this process is in the sandbox and the kernel may begin.
fn kernel(
    orders: &Orders,
    variables: Vec<(OsString, OsString)>,
    temporary: &Path,
) -> io::Result<Command> {
    let (left, problem) = activate::run_inside(
        &orders.command.scripts,
        variables.into_iter().collect(),
        temporary,
    );
    if let Some(problem) = problem {
        eprintln!("nb: {problem}");
    }
    let variables = view::with_own(
        left.into_iter().collect(),
        &orders.command.own,
        &orders.start.view,
        temporary,
    );
    let (program, arguments) = orders
        .command
        .argv
        .split_first()
        .ok_or_else(|| io::Error::other("the command is empty"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(variables)
        .stdin(Stdio::null());
    Ok(command)
}

/// Waits until stdin is closed, then removes the targets: the process that made them is confined by
/// then.
fn bystander(folder: Option<OsString>) -> ExitCode {
    let _ = io::stdin().read_to_end(&mut Vec::new());
    if let Some(folder) = folder {
        let _ = std::fs::remove_dir_all(folder);
    }
    ExitCode::SUCCESS
}

fn by_bubblewrap(orders: &Orders, outcome: &mut File) -> io::Result<ExitCode> {
    let view = &orders.start.view;
    // Inside, temporary files lie in /tmp, because paths of sockets must be short.
    let own = (&*orders.command.set, &*orders.command.own);
    let variables = view::variables(std::env::vars_os(), own, view, Path::new("/tmp"));
    let outside = ProbeTargets::make(&orders.outside())?;
    let program = bubblewrap::program();
    let program = program.ok_or_else(|| io::Error::other("bwrap is gone from PATH"))?;
    let features = bubblewrap::features(&program)?;
    if let Some(count) = view.cpus {
        // All processes inside inherit these; the filters refuse to choose others.
        privileges::limit_cpus(count)?;
    }
    // The namespace's first process gets the filters too: it is of the same user as the others.
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
        .args([bubblewrap::INNER_PROGRAM, INSIDE])
        // Its environment can be read from inside.
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
    // An error is left alone: bwrap's own message in the log says more than a broken pipe.
    let _ = words.write_all(&line);
    let mut answer = String::new();
    BufReader::new(answers).read_line(&mut answer)?;
    let Ok(tried) = serde_json::from_str::<Result<ProbeResults, String>>(&answer) else {
        let status = wrap.wait()?;
        return Err(io::Error::other(format!("bwrap ended with {status}")));
    };
    let tried = tried.map_err(io::Error::other)?;
    let arrived = outside.arrived();
    drop(outside);
    let pid = wrap.id();
    // bwrap's child is the namespace's first process, and starts the program.
    let init = Process::of(pid).and_then(|bwrap| bwrap.first_child());
    let (init, inner) = init
        .and_then(|init| init.first_child().map(|inner| (init, inner)))
        .ok_or_else(|| io::Error::other("bwrap's processes cannot be found in /proc"))?;
    let decided = decide(orders, tried, arrived, Some(init.clone()));
    if matches!(decided, SandboxOutcome::Entered { .. }) {
        let recorded = PidRecord {
            process: inner,
            pid_namespace: pid_namespace(),
            supervisor: parent(),
        };
        let recorded = serde_json::to_vec(&recorded)?;
        save::replace(&orders.pid_file, &recorded)?;
    }
    decided.write(outcome)?;
    if matches!(decided, SandboxOutcome::Entered { .. }) {
        words.write_all(GO.as_bytes())?;
    }
    drop(words);
    let status = wrap.wait()?;
    // Ends what the kernel left running inside.
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
    let task = words
        .read_line(&mut line)
        .and_then(|_| Ok(serde_json::from_str::<Inside>(&line)?));
    let task = match task {
        Ok(task) => task,
        Err(error) => return told(&error),
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
    let tried = confined
        .map(|()| {
            let (kept, missing) = probe::try_all(view, &task.addresses);
            ProbeResults { kept, missing }
        })
        .map_err(|error| error.to_string());
    let answered = serde_json::to_vec(&tried)
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
        let mut command = kernel(&task.orders, task.variables, Path::new("/tmp"))?;
        let log = io::stderr().as_fd().try_clone_to_owned()?;
        Ok(command.stdout(log).exec())
    };
    match become_kernel() {
        Ok(error) | Err(error) => told(&error),
    }
}

/// Returns a file that holds this program, for it to be mounted.
fn program_file(view: &FilesystemView) -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    if path.exists() {
        return Ok(path);
    }
    // It was replaced while it runs, as by an update.
    let copy = view.sockets.with_extension("program");
    std::fs::copy(own_program()?, &copy)?;
    Ok(copy)
}

//! Starts a kernel's process, and reads its log.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::connection::KernelFiles;
use super::detach::{self, DetachError, PreforkedProcess};
use super::identity::Process;
use super::limits;
use super::plan::{Executable, StartPlan, Supervision};
use crate::kernel::confine::container::KernelContainer;
use crate::kernel::confine::sandbox::{self, SandboxError, SandboxedStart};
use crate::kernel::confine::view::PassedVariables;
use crate::kernel::environment::activate::{self, VariableChanges};
use crate::kernel::environment::trust::{self, Untrusted};
use crate::kernel::spec;
use crate::kernel::variables::Variables;
use crate::project::{RealSpec, ResourceLimits, beneath};

/// A variable set for every kernel, by which a proxy knows that it was started as a kernel.
pub const IN_KERNEL: &str = "NB_KERNEL";

/// The length beyond which a log is renamed to `.log.1` when a kernel starts.
const LOG_BYTES: u64 = 5 << 20;

/// A kernel to start: its spec, its files and its limits.
#[derive(Clone, Debug)]
pub struct KernelStart {
    /// Its spec.
    pub spec: RealSpec,
    /// Its connection file, which exists, and the files beside it.
    pub files: KernelFiles,
    /// The kernel's working directory.
    pub folder: PathBuf,
    /// The file for its stdout and stderr.
    pub log: PathBuf,
    /// The limits on its memory.
    pub limits: ResourceLimits,
    /// The sandbox in which it runs. The kernel's process is only known once it runs there, see
    /// [`sandbox::entered`].
    pub confined: Option<SandboxedStart>,
    /// The container in which it runs.
    pub contained: Option<KernelContainer>,
    /// Further variables for its environment, besides those of this process and of its spec.
    pub more: BTreeMap<String, String>,
    /// The supervisor's orders.
    pub supervision: Supervision,
    /// The arguments with which this very program presents a kernel that runs on a server. It is run in place of the
    /// spec's command.
    pub bridge: Option<Vec<OsString>>,
}

/// Why a kernel was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The process could not be started.
    #[error(transparent)]
    Detach(#[from] DetachError),
    /// A sandboxed kernel may have written a file that this kernel would run.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// The sandbox or the container could not be made.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

/// Checks beforehand that a kernel may be started outside a sandbox.
pub fn check_outside(
    spec: &RealSpec,
    folder: &Path,
    variables: &dyn Variables,
) -> Result<(), Untrusted> {
    trust::check_start(&spec::command(spec, Path::new("")), folder, variables)
}

/// A started kernel, which may not be ready yet.
#[derive(Debug)]
pub struct LaunchedKernel {
    /// Its process.
    pub process: Process,
    /// Why the variables of its environment's activation scripts are missing.
    pub problem: Option<String>,
}

/// Starts a kernel detached from this process, in the preforked process if there is one. The kernel is not
/// ready yet when this returns.
pub fn launch(
    start: &KernelStart,
    preforked: Option<PreforkedProcess>,
    variables: &dyn Variables,
) -> Result<LaunchedKernel, LaunchError> {
    if let Some(arguments) = &start.bridge {
        return launch_bridge(start, arguments.clone(), preforked);
    }
    let mut argv = spec::command(&start.spec, start.files.connection_file());
    let (change, scripts) = activation(start, &argv);
    if let Some(problem) = &change.problem {
        note(&start.log, problem);
    }
    let after = change.of(variables);
    if start.confined.is_none() && start.contained.is_none() {
        trust::check_start(&argv, &start.folder, &after)?;
    }
    // The spec's variables override the environment's. A spec may lie in a notebook's folder, so in a sandbox
    // it can only refer to variables that pass there anyway.
    let mut own = match start.confined {
        Some(_) => spec::environment(&start.spec, &PassedVariables::new(&after, &change)),
        None => spec::environment(&start.spec, &after),
    };
    // The user's variables override the spec's.
    own.extend(start.more.iter().map(|(name, value)| {
        let value = spec::substitute(value, &after);
        (OsString::from(name), OsString::from(value))
    }));
    own.push((IN_KERNEL.into(), "1".into()));
    let mut set: Vec<_> = change.set.clone().into_iter().collect();
    let mut input = None;
    if let Some(confined) = &start.confined {
        let inner = sandbox::SandboxedCommand {
            argv,
            set,
            own,
            scripts,
        };
        let wrapped = sandbox::wrap(inner, confined, &start.files)?;
        (argv, set) = (wrapped.argv, Vec::new());
        input = Some(wrapped.input);
    } else {
        set.extend(own);
    }
    let mut limits = start.limits;
    if let Some(contained) = &start.contained {
        let file = start.files.connection_file();
        let wrapped = contained.wrap(&argv, &set, limits, &start.folder, file);
        argv = wrapped.map_err(SandboxError::Folders)?;
        limits = ResourceLimits::default();
    }
    let bounded = limits::bounded(argv, limits).map_err(DetachError::from);
    let (argv, address_space) = bounded?;
    let plan = StartPlan {
        executable: Executable::Program(argv),
        set,
        // JPY_PARENT_PID: ipykernel ends when that process ends. JPY_SESSION_NAME and NB_LANGUAGE belong to
        // the front end that started this process. PYTHONEXECUTABLE, which Jupyter removes, too, names
        // another Python than the kernel's.
        remove: [
            "JPY_PARENT_PID",
            "JPY_SESSION_NAME",
            "NB_LANGUAGE",
            "PYTHONEXECUTABLE",
        ]
        .map(OsString::from)
        .into_iter()
        .chain(change.remove)
        .collect(),
        input,
        folder: start.folder.clone(),
        log: start.log.clone(),
        pid_file: start.files.pid_file(),
        needs: Some(start.files.connection_file().to_owned()),
        address_space,
        supervision: Some(start.supervision.clone()),
        supervisor: None,
    };
    let process = match preforked {
        Some(preforked) => preforked.start(&plan)?,
        None => detach::start(&plan)?,
    };
    Ok(LaunchedKernel {
        process,
        problem: change.problem,
    })
}

/// Starts the bridge to a kernel on a server.
fn launch_bridge(
    start: &KernelStart,
    arguments: Vec<OsString>,
    preforked: Option<PreforkedProcess>,
) -> Result<LaunchedKernel, LaunchError> {
    let plan = StartPlan {
        executable: Executable::ThisProgram(arguments),
        set: Vec::new(),
        remove: Vec::new(),
        input: None,
        folder: start.folder.clone(),
        log: start.log.clone(),
        pid_file: start.files.pid_file(),
        needs: Some(start.files.connection_file().to_owned()),
        address_space: None,
        supervision: Some(start.supervision.clone()),
        supervisor: None,
    };
    let process = match preforked {
        Some(preforked) => preforked.start(&plan)?,
        None => detach::start(&plan)?,
    };
    let problem = None;
    Ok(LaunchedKernel { process, problem })
}

/// Returns the variables that a kernel's environment changes, and the activation scripts to run inside the
/// kernel's sandbox; without a sandbox, runs the scripts here. The environment is the one in which the
/// program lies or, for a program that is found on `PATH`, the one in which its spec lies.
fn activation(start: &KernelStart, argv: &[OsString]) -> (VariableChanges, Vec<PathBuf>) {
    // The environment in an image is not visible here.
    if start.contained.is_some() {
        return (VariableChanges::default(), Vec::new());
    }
    let spec = &start.spec;
    let program = argv.first().map(Path::new);
    let around = program.and_then(activate::around);
    let is_bare = program.is_some_and(|program| program.components().count() == 1);
    let prefix = around
        .or_else(|| spec::prefix(spec).filter(|it| is_bare && it.join("conda-meta").is_dir()));
    let all = || std::env::vars_os().collect();
    match (prefix, &start.confined) {
        (None, _) => (VariableChanges::default(), Vec::new()),
        (Some(prefix), Some(_)) => activate::prepare(&prefix, &all()),
        (Some(prefix), None) => (activate::activate(&prefix, &all()), Vec::new()),
    }
}

/// Appends a line of `nb` to a kernel's log.
fn note(log: &Path, text: &str) {
    use std::io::Write;
    let file = beneath::append(log);
    // The kernel starts even if its log cannot be written.
    let _ = file.and_then(|mut file| writeln!(file, "nb: {text}"));
}

/// Renames a log that is too long; returns the offset at which a new kernel's lines begin.
pub fn begin_log(log: &Path) -> io::Result<u64> {
    if let Some(folder) = log.parent() {
        beneath::make_subfolder(folder)?;
    }
    match beneath::metadata(log) {
        Ok(found) if found.len() > LOG_BYTES => {
            beneath::rename(log, &log.with_extension("log.1"))?;
            Ok(0)
        }
        Ok(found) => Ok(found.len()),
        Err(_) => Ok(0),
    }
}

/// Returns the last lines that a log has from `start` on.
pub fn last_lines(log: &Path, start: u64, lines: usize) -> Vec<String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = beneath::open(log)?;
        let length = file.metadata()?.len();
        // The message of a kernel that cannot start is short: the last 64 KiB are enough.
        file.seek(SeekFrom::Start(start.max(length.saturating_sub(1 << 16))))?;
        let mut bytes = Vec::new();
        // The log may grow while it is read.
        file.take(1 << 20).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines_of_text = text.lines().filter(|line| !line.trim().is_empty());
    let mut last: Vec<_> = lines_of_text.rev().take(lines).map(str::to_owned).collect();
    last.reverse();
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_new_kernels_lines_are_shown() {
        let temp = tempfile::tempdir().unwrap();
        let log = temp.path().join("kernels/a.log");
        assert_eq!(begin_log(&log).unwrap(), 0);
        std::fs::write(&log, "old\n").unwrap();
        let start = begin_log(&log).unwrap();
        std::fs::write(&log, "old\n1\n\n2\n3\n").unwrap();
        assert_eq!(last_lines(&log, start, 2), ["2", "3"]);
        assert_eq!(last_lines(&log, start, 9), ["1", "2", "3"]);
        assert!(last_lines(&temp.path().join("none"), 0, 9).is_empty());
    }
}

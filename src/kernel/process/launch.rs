//! Starting a kernel's process, and reading what it left in its log.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::connection::KernelFiles;
use super::detach::{self, Ahead, DetachError};
use super::identity::Process;
use super::limits;
use super::plan::{Keep, Plan, What};
use crate::kernel::confine::container::Contained;
use crate::kernel::confine::sandbox::{self, Confined, SandboxError};
use crate::kernel::confine::view::Passing;
use crate::kernel::environment::activate::{self, Change};
use crate::kernel::environment::trust::{self, Untrusted};
use crate::kernel::spec;
use crate::kernel::variables::Variables;
use crate::project::{Limits, RealSpec, beneath};

/// Set in the environment of every kernel, so that a proxy knows that it was started as one.
pub const IN_KERNEL: &str = "NB_KERNEL";

/// A log that is longer than this when a kernel starts begins anew; the old one is kept once.
const LOG_BYTES: u64 = 5 << 20;

/// A kernel that is to be started.
#[derive(Clone, Debug)]
pub struct Start {
    /// Its spec.
    pub spec: RealSpec,
    /// Its connection file, which is there.
    pub files: KernelFiles,
    /// Its working directory.
    pub folder: PathBuf,
    /// Where its stdout and stderr go.
    pub log: PathBuf,
    /// What it may use of the machine.
    pub limits: Limits,
    /// The sandbox that it is to run in. Its process is then known only when it begins there, see
    /// [`sandbox::entered`].
    pub confined: Option<Confined>,
    /// The container that it is to run in.
    pub contained: Option<Contained>,
    /// Variables of its environment beside those of this process and of its spec.
    pub more: BTreeMap<String, String>,
    /// What its keeper does.
    pub keep: Keep,
}

/// Why a kernel was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The process could not be started.
    #[error(transparent)]
    Detach(#[from] DetachError),
    /// A sandboxed kernel may have changed what it would run.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// There can be no sandbox for it.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

/// Says beforehand whether a kernel may be started outside a sandbox.
pub fn check_outside(
    spec: &RealSpec,
    folder: &Path,
    variables: &dyn Variables,
) -> Result<(), Untrusted> {
    trust::check_start(&spec::command(spec, Path::new("")), folder, variables)
}

/// A kernel that was started.
#[derive(Debug)]
pub struct Launched {
    /// Its process.
    pub process: Process,
    /// Why what its environment's scripts would have set is missing.
    pub problem: Option<String>,
}

/// Starts a kernel that is nobody's descendant, by processes that were made for it where there are
/// some. It is not ready yet when this returns.
pub fn launch(
    start: &Start,
    ahead: Option<Ahead>,
    variables: &dyn Variables,
) -> Result<Launched, LaunchError> {
    let mut argv = spec::command(&start.spec, start.files.connection_file());
    let (change, scripts) = activation(start, &argv);
    if let Some(problem) = &change.problem {
        note(&start.log, problem);
    }
    let after = change.of(variables);
    if start.confined.is_none() && start.contained.is_none() {
        trust::check_start(&argv, &start.folder, &after)?;
    }
    // What the spec says is meant for the kernel alone, and wins. It may lie in a notebook's folder: it
    // brings none of the user's variables into a sandbox that would not pass by themselves.
    let mut own = match start.confined {
        Some(_) => spec::environment(&start.spec, &Passing::new(&after, &change)),
        None => spec::environment(&start.spec, &after),
    };
    // The user's own word comes after the spec's.
    own.extend(start.more.iter().map(|(name, value)| {
        let value = spec::substitute(value, &after);
        (OsString::from(name), OsString::from(value))
    }));
    own.push((IN_KERNEL.into(), "1".into()));
    let mut set: Vec<_> = change.set.clone().into_iter().collect();
    let (mut input, mut clears) = (None, false);
    if let Some(confined) = &start.confined {
        let inner = sandbox::Inner {
            argv,
            set,
            own,
            scripts,
        };
        let wrapped = sandbox::wrap(inner, confined, &start.files)?;
        (argv, set) = (wrapped.argv, wrapped.set);
        (input, clears) = (wrapped.input, wrapped.clears);
    } else {
        set.extend(own);
    }
    let mut limits = start.limits;
    if let Some(contained) = &start.contained {
        argv = contained
            .wrap(
                &argv,
                &set,
                limits,
                &start.folder,
                start.files.connection_file(),
            )
            .map_err(SandboxError::Folders)?;
        limits = Limits::default();
    }
    let bounded = limits::bounded(argv, limits);
    let (argv, address_space) = bounded.map_err(|source| DetachError::Limits { source })?;
    let plan = Plan {
        what: What::Program(argv),
        set,
        // A kernel that finds its parent gone ends; and neither it nor what it starts is the
        // session that a server may have told this process of.
        // Nor is the language of the spec that a front end chose its own. PYTHONEXECUTABLE, which
        // Jupyter removes too, names another Python than the one that is started.
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
        clears,
        input,
        folder: start.folder.clone(),
        log: start.log.clone(),
        pid_file: start.files.pid_file(),
        needs: Some(start.files.connection_file().to_owned()),
        address_space,
        keep: Some(start.keep.clone()),
        keeper: None,
    };
    let process = match ahead {
        Some(ahead) => ahead.start(&plan)?,
        None => detach::start(&plan)?,
    };
    Ok(Launched {
        process,
        problem: change.problem,
    })
}

/// Returns what is different in the environment that a kernel's program lies in, or that its spec
/// belongs to where the program is looked up on `PATH`; and the scripts that are to be run inside the
/// kernel's sandbox. Without one they are run here.
fn activation(start: &Start, argv: &[OsString]) -> (Change, Vec<PathBuf>) {
    // What an image holds is known inside alone.
    if start.contained.is_some() {
        return (Change::default(), Vec::new());
    }
    let spec = &start.spec;
    let program = argv.first().map(Path::new);
    let around = program.and_then(activate::around);
    let is_bare = program.is_some_and(|program| program.components().count() == 1);
    let prefix = around
        .or_else(|| spec::prefix(spec).filter(|it| is_bare && it.join("conda-meta").is_dir()));
    let all = || std::env::vars_os().collect();
    match (prefix, &start.confined) {
        (None, _) => (Change::default(), Vec::new()),
        (Some(prefix), Some(_)) => activate::prepare(&prefix, &all()),
        (Some(prefix), None) => (activate::activate(&prefix, &all()), Vec::new()),
    }
}

/// Writes a line of ours into a kernel's log.
fn note(log: &Path, text: &str) {
    use std::io::Write;
    let file = beneath::append(log);
    // The kernel starts whether or not it can be told there.
    let _ = file.and_then(|mut file| writeln!(file, "nb: {text}"));
}

/// Makes room in the log where needed; returns the length from which a new kernel's lines begin.
pub fn begin_log(log: &Path) -> io::Result<u64> {
    if let Some(folder) = log.parent() {
        beneath::make_folder(folder)?;
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
        // What a kernel says when it cannot start is short; a flood before it is not read.
        file.seek(SeekFrom::Start(start.max(length.saturating_sub(1 << 16))))?;
        let mut bytes = Vec::new();
        // It may grow meanwhile.
        file.take(1 << 20).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<_> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    all.iter()
        .skip(all.len().saturating_sub(lines))
        .map(|line| (*line).to_owned())
        .collect()
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

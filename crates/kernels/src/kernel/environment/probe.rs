//! Finds a Python, and finds out what it has installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::python::{self, Python};
use super::tools::ToolFolders;
use super::trust;
use crate::kernel::process::Process;
use crate::kernel::variables::Variables;

/// The code that an interpreter runs for this. It imports no package, so it takes milliseconds.
const PROBE_CODE: &str = "\
import importlib.util as u, json, os, sys, sysconfig
has = lambda name: u.find_spec(name) is not None
print(json.dumps({
    'executable': sys.executable,
    'prefix': sys.prefix,
    'ipykernel': has('ipykernel_launcher'),
    'pip': has('pip'),
    'environment': sys.prefix != sys.base_prefix,
    'managed': os.path.exists(os.path.join(sysconfig.get_path('stdlib'), 'EXTERNALLY-MANAGED')),
}))";

/// The code that lists the installed packages; of several with one name that which is imported counts.
const PACKAGES_CODE: &str = "\
import importlib.metadata as m, json, re
found = {}
for it in m.distributions():
    name = it.metadata['Name']
    if name: found.setdefault(re.sub('[-_.]+', '-', name).lower(), {'name': name, 'version': it.version or ''})
print(json.dumps([found[key] for key in sorted(found)]))";

/// An installed package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Package {
    /// Its name, as its author writes it.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Says that a program is not a usable Python.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{} is not a usable Python: {reason}", executable.display())]
pub struct NotPython {
    /// The program.
    pub executable: PathBuf,
    /// The program's error, or why it was not run.
    pub reason: String,
    /// Whether the program was run; see [`ProbePolicy`].
    pub was_run: bool,
}

/// The interpreters that may be run if their files do not tell enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbePolicy {
    /// All interpreters: the user has asked for a kernel outside a sandbox, which runs them anyway.
    #[default]
    Any,
    /// Only those of the system and of the user's own tools: nothing from a notebook's folder is run
    /// outside a sandbox.
    ToolsOnly,
}

/// Returns the interpreter that a process runs, by the path under which it was called.
pub fn of_process(process: &Process) -> Option<PathBuf> {
    let program = process.program()?;
    let name = program.file_name()?.to_str()?;
    let is_python = name.starts_with("python") && program.is_absolute() && program.is_file();
    is_python.then_some(program)
}

/// Returns what an interpreter has, from the files of its environment, else by running it. An interpreter
/// that a sandboxed kernel may have written is not run.
pub fn probe(
    executable: &Path,
    policy: ProbePolicy,
    variables: &dyn Variables,
) -> Result<Python, NotPython> {
    // Programs are run in another folder than the present one.
    let executable = &std::path::absolute(executable).unwrap_or_else(|_| executable.to_owned());
    let python = python::inspect(executable);
    if let Some(python) = python.as_ref().filter(|python| python.ipykernel) {
        return Ok(python.clone());
    }
    let unknown = |reason: String| NotPython {
        executable: executable.to_owned(),
        reason: format!("its files do not show what it has, and {reason}"),
        was_run: false,
    };
    let is_own = || ToolFolders::known(variables).hold_program(executable);
    match (trust::check_program(executable), python) {
        (Ok(()), _) if policy == ProbePolicy::Any || is_own() => {
            run(executable, PROBE_CODE, policy)
        }
        (_, Some(python)) => Ok(python),
        (Err(untrusted), None) => Err(unknown(untrusted.to_string())),
        (Ok(()), None) if !executable.exists() => Err(NotPython {
            executable: executable.to_owned(),
            reason: "it is not there".to_owned(),
            was_run: false,
        }),
        (Ok(()), None) => Err(unknown(
            "it may have come with the notebook's folder, so that it is not run to find out: name it with --python to start it".to_owned(),
        )),
    }
}

/// Returns the packages that an interpreter can import, by name. It is run for that, unless a sandboxed kernel may have
/// written it.
pub fn packages(executable: &Path) -> Result<Vec<Package>, NotPython> {
    trust::check_program(executable).map_err(|untrusted| NotPython {
        executable: executable.to_owned(),
        reason: untrusted.to_string(),
        was_run: false,
    })?;
    run(executable, PACKAGES_CODE, ProbePolicy::Any)
}

fn run<T: DeserializeOwned>(
    executable: &Path,
    code: &str,
    policy: ProbePolicy,
) -> Result<T, NotPython> {
    let unusable = |reason: String| NotPython {
        executable: executable.to_owned(),
        reason,
        was_run: true,
    };
    let out = Command::new(executable)
        .args(["-c", code])
        .envs(trusted_path(policy))
        // A module in the notebook's folder must not replace an installed one.
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| unusable(error.to_string()))?;
    serde_json::from_slice(&out.stdout).map_err(|_| {
        let stderr = String::from_utf8_lossy(&out.stderr);
        let last = stderr.lines().last().unwrap_or("it did not answer");
        unusable(last.to_owned())
    })
}

/// Returns an empty `PYTHONPATH` if the real one may contain a notebook's folder, or a folder that a
/// sandboxed kernel may have written: each start of Python runs a `sitecustomize.py` from there.
fn trusted_path(policy: ProbePolicy) -> Option<(&'static str, &'static str)> {
    let paths = std::env::var_os("PYTHONPATH")?;
    let mut paths = std::env::split_paths(&paths);
    let distrusted = paths.any(|path| trust::check("the module folder", &path).is_err());
    (distrusted || policy == ProbePolicy::ToolsOnly).then_some(("PYTHONPATH", ""))
}

/// Returns the first `python3` or `python` on `PATH`.
pub fn on_path(variables: &dyn Variables) -> Option<PathBuf> {
    let mut names = ["python3", "python"].map(Path::new).into_iter();
    names.find_map(|name| variables.programs(name).into_iter().next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::variables::ProcessVariables;

    #[test]
    fn a_program_that_is_no_python_says_why() {
        let probe = |path: &str| probe(Path::new(path), ProbePolicy::Any, &ProcessVariables);
        let error = probe("/bin/false").unwrap_err();
        assert!(error.to_string().contains("did not answer"), "{error}");
        assert!(probe("/nonexistent").is_err());
    }

    #[test]
    fn a_program_is_named_relative_to_the_present_folder() {
        let here = std::env::current_dir().unwrap();
        let up = here.components().skip(1).map(|_| "..");
        let relative: PathBuf = up.chain(["bin/false"]).collect();
        let error = probe(&relative, ProbePolicy::Any, &ProcessVariables).unwrap_err();
        assert!(error.to_string().contains("did not answer"), "{error}");
    }

    #[test]
    fn a_program_of_a_notebooks_folder_is_not_run_to_learn_what_it_has() {
        let temp = tempfile::tempdir().unwrap();
        let bin = temp.path().join(".venv/bin");
        std::fs::create_dir_all(&bin).unwrap();
        let (python, canary) = (bin.join("python"), temp.path().join("ran"));
        let text = format!("#!/bin/sh\ntouch {}\n", canary.display());
        let written = Command::new("sh")
            .args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""])
            .args([python.as_os_str(), text.as_ref()])
            .status();
        assert!(written.unwrap().success());
        let error = probe(&python, ProbePolicy::ToolsOnly, &ProcessVariables).unwrap_err();
        assert!(
            !error.was_run && error.to_string().contains("do not show"),
            "{error}"
        );
        // The same if its files show that it has no ipykernel.
        std::fs::write(bin.join("../pyvenv.cfg"), "home = /usr/bin\n").unwrap();
        let _ = probe(&python, ProbePolicy::ToolsOnly, &ProcessVariables);
        assert!(!canary.exists(), "it was run");
        let _ = probe(&python, ProbePolicy::Any, &ProcessVariables);
        assert!(canary.exists(), "the trap works");
    }
}

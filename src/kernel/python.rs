//! Finding a Python that can be a kernel.

mod files;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::paths::Variables;
use super::process::Process;
use super::tools::Tools;
use super::{platform, spec, trust};
use crate::project::{InterruptMode, RealSpec};

pub use files::base;

/// Asked of an interpreter; nothing is imported, so that it takes a few milliseconds.
const QUESTION: &str = "\
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

/// A Python interpreter and what it has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Python {
    /// `sys.executable`.
    pub executable: PathBuf,
    /// `sys.prefix`.
    pub prefix: PathBuf,
    /// Whether it can be a kernel.
    pub ipykernel: bool,
    pip: bool,
    environment: bool,
    managed: bool,
}

/// Says that a program is no usable Python.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{} is not a usable Python: {reason}", executable.display())]
pub struct NotPython {
    /// The program.
    pub executable: PathBuf,
    /// What it said.
    pub reason: String,
    /// Whether it was run: one of a notebook's folder is not, see [`Asking`].
    pub asked: bool,
}

/// Which interpreters may be run to learn what they have, beyond what their files tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asking {
    /// Any: the user has asked for a kernel outside a sandbox, which runs them anyway.
    #[default]
    Any,
    /// The system's and those of the user's own tools: nothing of a notebook's folder is run
    /// outside a sandbox.
    Own,
}

/// Returns the interpreter that a process is, by the path under which it was called.
pub fn of_process(process: &Process) -> Option<PathBuf> {
    let program = platform::program(process.pid)?;
    let name = program.file_name()?.to_str()?;
    let is_python = name.starts_with("python") && program.is_absolute() && program.is_file();
    is_python.then_some(program)
}

/// Returns what an interpreter has: as the files of its environment tell, else by asking it.
///
/// One that a sandboxed kernel may have put there is not asked.
pub fn probe(
    executable: &Path,
    asking: Asking,
    variables: &dyn Variables,
) -> Result<Python, NotPython> {
    let whole = std::path::absolute(executable);
    let seen = whole.as_ref().ok().and_then(|whole| files::look(whole));
    if let Some(python) = seen.as_ref().filter(|python| python.ipykernel) {
        return Ok(python.clone());
    }
    let untold = |reason: String| NotPython {
        executable: executable.to_owned(),
        reason: format!("its files do not tell what it has, and {reason}"),
        asked: false,
    };
    let is_own = || Tools::known(variables).hold_program(executable);
    match (trust::check_program(executable), seen) {
        (Ok(()), _) if asking == Asking::Any || is_own() => ask(executable, asking),
        (_, Some(python)) => Ok(python),
        (Err(untrusted), None) => Err(untold(untrusted.to_string())),
        (Ok(()), None) if !executable.exists() => Err(NotPython {
            executable: executable.to_owned(),
            reason: "it is not there".to_owned(),
            asked: false,
        }),
        (Ok(()), None) => Err(untold(
            "it may have come with the notebook's folder, so that it is not run to find out: name it with --python to start it".to_owned(),
        )),
    }
}

/// Returns the version of a package of an interpreter, where its environment's files tell it.
pub fn package_version(executable: &Path, package: &str) -> Option<String> {
    files::version(executable, package)
}

fn ask(executable: &Path, asking: Asking) -> Result<Python, NotPython> {
    let unusable = |reason: String| NotPython {
        executable: executable.to_owned(),
        reason,
        asked: true,
    };
    let out = Command::new(executable)
        .args(["-c", QUESTION])
        .envs(trusted_path(asking))
        // A module of the notebook's folder must not stand in for an installed one.
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| unusable(error.to_string()))?;
    serde_json::from_slice(&out.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&out.stderr);
        unusable(
            said.lines()
                .last()
                .unwrap_or("it did not answer")
                .to_owned(),
        )
    })
}

/// Returns `PYTHONPATH` as nothing, where it may name a notebook's folder or a sandboxed kernel may
/// have written what it names: a `sitecustomize.py` there is run by every start of Python.
fn trusted_path(asking: Asking) -> Option<(&'static str, &'static str)> {
    let paths = std::env::var_os("PYTHONPATH")?;
    let mut paths = std::env::split_paths(&paths);
    let distrusted = paths.any(|path| trust::check("the module folder", &path).is_err());
    (distrusted || asking == Asking::Own).then_some(("PYTHONPATH", ""))
}

/// The names of the interpreter of an environment.
const NAMES: [&str; 2] = ["bin/python", "bin/python3"];

/// Returns the interpreter of a folder that is an environment.
pub fn of_environment(folder: &Path) -> Option<PathBuf> {
    let mut named = NAMES.iter().map(|name| folder.join(name));
    named.find(|path| path.is_file())
}

/// Returns the interpreter of an environment that is a link to a program which is not there, and
/// where it leads.
pub fn dangling(folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut named = NAMES.iter().map(|name| folder.join(name));
    let link = named.find(|path| path.is_symlink() && !path.exists())?;
    let mut at = link.clone();
    // The last link of the chain: what it names was removed. As long as the system follows them.
    for _ in 0..40 {
        let Ok(target) = std::fs::read_link(&at) else {
            break;
        };
        at = at.parent().unwrap_or(Path::new("/")).join(target);
    }
    of_environment(folder).is_none().then_some((link, at))
}

/// Returns the first `python3` or `python` on `PATH`.
pub fn on_path(variables: &dyn Variables) -> Option<PathBuf> {
    let path = variables.get("PATH")?;
    ["python3", "python"].iter().find_map(|name| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
    })
}

impl Python {
    /// Returns an interpreter of which nothing was seen and which was not run, as one with
    /// ipykernel: its start in a sandbox shows whether it has one.
    pub fn unasked(executable: &Path) -> Self {
        let bin = executable.parent().filter(|bin| bin.ends_with("bin"));
        let prefix = bin.and_then(Path::parent).unwrap_or(Path::new("/"));
        Self {
            executable: executable.to_owned(),
            prefix: prefix.to_owned(),
            ipykernel: true,
            pip: false,
            environment: false,
            managed: false,
        }
    }

    /// Returns the kernelspec of this interpreter's ipykernel.
    ///
    /// The spec that ipykernel installed is taken for what else it says; the command always
    /// names this interpreter.
    pub fn kernelspec(&self) -> RealSpec {
        let folder = self.prefix.join("share/jupyter/kernels/python3");
        // One that a sandboxed kernel may have written cannot be read, and says nothing then.
        let executable = self.executable.to_string_lossy().into_owned();
        match spec::read(&folder) {
            Ok(mut installed) if !spec::is_proxy(&installed) && runs_ipykernel(&installed) => {
                if let Some(program) = installed.argv.first_mut() {
                    *program = executable;
                }
                installed
            }
            _ => RealSpec {
                name: "python3".to_owned(),
                display_name: "Python 3 (ipykernel)".to_owned(),
                argv: [
                    &executable,
                    "-m",
                    "ipykernel_launcher",
                    "-f",
                    "{connection_file}",
                ]
                .map(str::to_owned)
                .to_vec(),
                language: "python".to_owned(),
                interrupt_mode: InterruptMode::Signal,
                env: serde_json::Map::new(),
                resource_dir: None,
                other: serde_json::Map::new(),
            },
        }
    }

    /// Says whether pip is in it.
    pub fn has_pip(&self) -> bool {
        self.pip
    }

    /// Says whether it is a system's own, whose makers let nobody else put packages into it.
    pub fn takes_no_packages(&self) -> bool {
        !self.environment && (self.managed || !self.pip)
    }
}

fn runs_ipykernel(spec: &RealSpec) -> bool {
    spec.argv
        .iter()
        .any(|argument| argument.contains("ipykernel"))
}

/// Quotes a path for a shell where it needs that.
pub fn quote(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:@%,~".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::paths::ProcessVariables;

    #[test]
    fn a_program_that_is_no_python_says_why() {
        let probe = |path: &str| probe(Path::new(path), Asking::Any, &ProcessVariables);
        let error = probe("/bin/false").unwrap_err();
        assert!(error.to_string().contains("did not answer"), "{error}");
        assert!(probe("/nonexistent").is_err());
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
        let error = probe(&python, Asking::Own, &ProcessVariables).unwrap_err();
        assert!(
            !error.asked && error.to_string().contains("do not tell"),
            "{error}"
        );
        // Also where its files tell that it has no ipykernel.
        std::fs::write(bin.join("../pyvenv.cfg"), "home = /usr/bin\n").unwrap();
        let _ = probe(&python, Asking::Own, &ProcessVariables);
        assert!(!canary.exists(), "it was run");
        let _ = probe(&python, Asking::Any, &ProcessVariables);
        assert!(canary.exists(), "the trap works");
    }
}

//! Finding a Python that can be a kernel.

mod files;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::paths::Variables;
use super::process::Process;
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
pub fn probe(executable: &Path) -> Result<Python, NotPython> {
    let whole = std::path::absolute(executable);
    let seen = whole.ok().and_then(|whole| files::look(&whole));
    if let Some(python) = seen.as_ref().filter(|python| python.ipykernel) {
        return Ok(python.clone());
    }
    match (trust::check_program(executable), seen) {
        (Ok(()), _) => ask(executable),
        (Err(_), Some(python)) => Ok(python),
        (Err(untrusted), None) => Err(NotPython {
            executable: executable.to_owned(),
            reason: format!("what it is cannot be seen from its files, and {untrusted}"),
        }),
    }
}

/// Returns the version of an interpreter's ipykernel, where its environment's files tell it.
pub fn ipykernel_version(executable: &Path) -> Option<String> {
    files::version(executable, "ipykernel")
}

fn ask(executable: &Path) -> Result<Python, NotPython> {
    let unusable = |reason: String| NotPython {
        executable: executable.to_owned(),
        reason,
    };
    let out = Command::new(executable)
        .args(["-c", QUESTION])
        .envs(trusted_path())
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

/// Returns `PYTHONPATH` as nothing, where a sandboxed kernel may have written what it names.
fn trusted_path() -> Option<(&'static str, &'static str)> {
    let paths = std::env::var_os("PYTHONPATH")?;
    let mut paths = std::env::split_paths(&paths);
    let distrusted = paths.any(|path| trust::check("the module folder", &path).is_err());
    distrusted.then_some(("PYTHONPATH", ""))
}

/// Returns the interpreter of a folder that is an environment.
pub fn of_environment(folder: &Path) -> Option<PathBuf> {
    ["bin/python", "bin/python3"]
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.is_file())
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

    #[test]
    fn a_program_that_is_no_python_says_why() {
        let error = probe(Path::new("/bin/false")).unwrap_err();
        assert!(error.to_string().contains("did not answer"), "{error}");
        assert!(probe(Path::new("/nonexistent")).is_err());
    }
}

//! A Python with ipykernel for the demo: an existing one, else an environment in the user's cache.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::hint::shell::quote;
use crate::kernel::environment::install::InstallCommands;
use crate::kernel::environment::probe::{self, NotPython, ProbePolicy};
use crate::kernel::environment::python;
use crate::kernel::variables::Variables;
use crate::setup::install::{InstallError, install};

/// Why there is no Python for the demo.
#[derive(Debug, thiserror::Error)]
pub enum NoPython {
    /// The requested Python cannot be used.
    #[error(transparent)]
    Requested(#[from] NotPython),
    /// The requested Python has no ipykernel.
    #[error("{0} has no ipykernel")]
    NoIpykernel(PathBuf),
    /// There is no Python at all.
    #[error("there is no python3 on PATH")]
    None,
    /// The environment's folder cannot be used.
    #[error("cannot keep a Python environment in {folder}")]
    Cache {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The environment could not be created.
    #[error(transparent)]
    Install(#[from] InstallError),
}

impl NoPython {
    /// Returns the hint that says how to fix it.
    pub fn hint(&self) -> String {
        let alternative = "name a Python that has ipykernel: nb demo --python PATH";
        match self {
            Self::Requested(_) | Self::Cache { .. } => alternative.to_owned(),
            Self::NoIpykernel(python) => {
                format!("run: {} -m pip install ipykernel", quote(python))
            }
            Self::None => "install Python 3".to_owned(),
            Self::Install(_) => format!(
                "this needs Python's venv module (Debian, Ubuntu: python3-venv) and, once, the \
                 network; or {alternative}"
            ),
        }
    }
}

/// Returns a Python with ipykernel. If there is none, makes an environment as `nb open --install` does,
/// which blocks for as long as pip needs; `progress` is called before that.
pub(super) fn find(
    requested: Option<&Path>,
    variables: &dyn Variables,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, NoPython> {
    if let Some(path) = requested {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let python = probe::probe(&path, ProbePolicy::Any, variables)?;
        return if python.ipykernel {
            Ok(python.executable)
        } else {
            Err(NoPython::NoIpykernel(python.executable))
        };
    }
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .iter()
        .filter_map(|name| variables.path(name))
        .filter_map(|folder| python::of_environment(&folder));
    let on_path = probe::on_path(variables);
    let mut first_python = None;
    for candidate in active.chain(on_path) {
        if let Ok(python) = probe::probe(&candidate, ProbePolicy::Any, variables) {
            if python.ipykernel {
                return Ok(python.executable);
            }
            first_python.get_or_insert(python.executable);
        }
    }
    let base = first_python.ok_or(NoPython::None)?;
    private(&base, &cache(variables), variables, progress)
}

/// Returns the folder of the demo's environment.
fn cache(variables: &dyn Variables) -> PathBuf {
    variables
        .path("XDG_CACHE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| Some(variables.path("HOME")?.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("nb/demo")
}

fn private(
    base: &Path,
    folder: &Path,
    variables: &dyn Variables,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, NoPython> {
    let unusable = |source| NoPython::Cache {
        folder: folder.to_owned(),
        source,
    };
    std::fs::create_dir_all(folder).map_err(unusable)?;
    // Two demos at the same time share the environment.
    let lock = File::create(folder.join("lock")).map_err(unusable)?;
    if lock.try_lock().is_err() {
        progress("another demo makes the environment; waiting for it");
        lock.lock().map_err(unusable)?;
    }
    let commands = InstallCommands::into_new(base, folder);
    // An upgrade of the system's Python breaks the environment. ipykernel is installed last, so an
    // environment that has it is complete.
    let probed = probe::probe(&commands.python, ProbePolicy::Any, variables);
    if !probed.is_ok_and(|python| python.ipykernel) {
        progress(&format!(
            "no Python with ipykernel was found; making an environment, once, in {}",
            folder.display()
        ));
        install(&commands)?;
    }
    Ok(commands.python)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Writes a stand-in for an interpreter: it answers `-c`, and is a shell for everything else.
    fn stand_in(folder: &Path, ipykernel: bool, otherwise: &str) -> PathBuf {
        let path = folder.join("bin/python3");
        std::fs::create_dir_all(folder.join("bin")).expect("make a folder");
        let text = format!(
            "#!/bin/sh\nif [ \"$1\" = -c ]; then echo '{{\"executable\":\"{0}\",\"prefix\":\"{1}\",\
             \"ipykernel\":{ipykernel},\"pip\":true,\"environment\":false,\"managed\":true}}'; exit; fi\n\
             {otherwise}\n",
            path.display(),
            folder.display(),
        );
        std::fs::write(&path, text).expect("write the stand-in");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .expect("make it executable");
        path
    }

    #[test]
    fn a_python_that_has_ipykernel_is_taken() {
        let temp = tempfile::tempdir().expect("a folder");
        let has = stand_in(&temp.path().join("venv"), true, "exit 9");
        let venv = temp.path().join("venv");
        let variables = HashMap::from([("VIRTUAL_ENV", venv.to_str().expect("UTF-8"))]);
        assert_eq!(find(None, &variables, &mut |_| ()).expect("it has it"), has);
        assert_eq!(
            find(Some(&has), &HashMap::new(), &mut |_| ()).expect("it has it"),
            has
        );
        let lacks = stand_in(&temp.path().join("other"), false, "exit 9");
        let error = find(Some(&lacks), &HashMap::new(), &mut |_| ()).expect_err("it lacks it");
        assert!(error.hint().contains("pip install ipykernel"), "{error}");
    }

    #[test]
    fn an_environment_that_cannot_be_made_is_a_clear_error() {
        let temp = tempfile::tempdir().expect("a folder");
        stand_in(&temp.path().join("py"), false, "exit 1");
        let path = temp.path().join("py/bin");
        let home = temp.path().join("home");
        let variables = HashMap::from([
            ("PATH", path.to_str().expect("UTF-8")),
            ("HOME", home.to_str().expect("UTF-8")),
        ]);
        let error = find(None, &variables, &mut |_| ()).expect_err("no venv");
        assert!(error.to_string().contains("-m venv"), "{error}");
        assert!(error.hint().contains("python3-venv"), "{error}");
    }

    #[test]
    fn an_environment_is_made_once_and_again_where_it_was_interrupted() {
        let temp = tempfile::tempdir().expect("a folder");
        let [half, whole] = [false, true].map(|ipykernel| {
            let folder = temp.path().join(ipykernel.to_string());
            stand_in(&folder, ipykernel, "exit 0")
        });
        let folder = temp.path().join("cache");
        let mut lines = Vec::new();
        // Bases whose environments are copies of a stand-in above.
        let mut make = |from: &Path| {
            let copies = format!(
                "mkdir -p \"$3/bin\" && cp {} \"$3/bin/python\"",
                from.display()
            );
            let base = stand_in(&temp.path().join("py"), false, &copies);
            lines.clear();
            let environment = private(&base, &folder, &HashMap::new(), &mut |line| {
                lines.push(line.to_owned());
            });
            // A child that another test forks also holds the lock until it has executed its program.
            lines.retain(|line| !line.starts_with("another demo"));
            assert!(environment.expect("made").starts_with(&folder));
            lines.len()
        };
        assert_eq!(make(&half), 1);
        assert_eq!(make(&whole), 1);
        assert_eq!(make(&half), 0);
    }
}

//! A Python with ipykernel for the demo: one that is there, else a private environment.
//!
//! The private environment lies in the user's cache, named by a hash of what it holds. A lock
//! keeps two demos apart, and a mark written last says that it is whole, so that one that was
//! interrupted is made anew.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

use crate::kernel::paths::{ProcessVariables, Variables};
use crate::kernel::python::{self, Asking, NotPython};

const REQUIREMENTS: &str = include_str!("requirements.txt");

/// How much of pip's last words an error shows.
const LAST_WORDS: usize = 4;

/// Why there is no Python for the demo.
#[derive(Debug, thiserror::Error)]
pub enum NoPython {
    /// The one that was asked for cannot be used.
    #[error(transparent)]
    Asked(#[from] NotPython),
    /// The one that was asked for is no kernel.
    #[error("{0} has no ipykernel")]
    NoIpykernel(PathBuf),
    /// There is none at all.
    #[error("there is no python3 on PATH")]
    None,
    /// Nowhere to put the environment.
    #[error("cannot keep a Python environment in {folder}")]
    Cache {
        /// Where it was to be.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// `python -m venv` failed.
    #[error("{python} cannot make an environment: {said}")]
    NoVenv {
        /// The interpreter.
        python: PathBuf,
        /// Its last words.
        said: String,
    },
    /// `pip install` failed.
    #[error("pip could not install ipykernel: {said}")]
    Install {
        /// Its last words.
        said: String,
    },
}

impl NoPython {
    /// Returns what mends it.
    pub fn hint(&self) -> String {
        let instead = "name a Python that has ipykernel: nb demo --python PATH";
        match self {
            Self::Asked(_) | Self::Cache { .. } => instead.to_owned(),
            Self::NoIpykernel(python) => {
                format!("run: {} -m pip install ipykernel", python::quote(python))
            }
            Self::None => "install Python 3".to_owned(),
            Self::NoVenv { .. } => {
                format!("install Python's venv module (Debian, Ubuntu: python3-venv), or {instead}")
            }
            Self::Install { .. } => {
                format!("this needs Python 3.8 or later and, once, the network; or {instead}")
            }
        }
    }
}

/// Returns a Python with ipykernel; makes an environment where there is none. Blocks, the first
/// time for as long as pip needs; `progress` says what is going on.
pub(super) fn find(
    asked: Option<&Path>,
    variables: &dyn Variables,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, NoPython> {
    if let Some(path) = asked {
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let python = python::probe(&whole, Asking::Any, variables)?;
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
    let on_path = python::on_path(variables);
    let mut any = None;
    for candidate in active.chain(on_path) {
        if let Ok(python) = python::probe(&candidate, Asking::Any, variables) {
            if python.ipykernel {
                return Ok(python.executable);
            }
            any.get_or_insert(python.executable);
        }
    }
    let base = any.ok_or(NoPython::None)?;
    let cache = cache(variables);
    private(&base, &cache, progress)
}

/// Returns the folder of `nb`'s cache.
fn cache(variables: &dyn Variables) -> PathBuf {
    variables
        .path("XDG_CACHE_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| Some(variables.path("HOME")?.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("nb")
}

fn private(base: &Path, cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<PathBuf, NoPython> {
    let unusable = |source| NoPython::Cache {
        folder: cache.to_owned(),
        source,
    };
    std::fs::create_dir_all(cache).map_err(unusable)?;
    let lock = File::create(cache.join("demo-python.lock")).map_err(unusable)?;
    if lock.try_lock().is_err() {
        progress("another demo is making the environment; waiting for it");
        lock.lock().map_err(unusable)?;
    }
    let holds = hex::encode(Sha256::digest(REQUIREMENTS));
    let home = cache.join(format!("demo-python-{}", holds.get(..12).unwrap_or(&holds)));
    let python = home.join("bin/python");
    let whole = home.join("complete");
    // An upgrade of the system's Python breaks the environment; then it is made anew.
    let works = || {
        let probed = python::probe(&python, Asking::Any, &ProcessVariables);
        probed.is_ok_and(|python| python.ipykernel)
    };
    if whole.exists() && works() {
        return Ok(python);
    }
    if home.exists() {
        std::fs::remove_dir_all(&home).map_err(unusable)?;
    }
    progress(&format!(
        "no Python with ipykernel was found; making a private environment, once, in {}",
        home.display()
    ));
    let venv = Command::new(base)
        .args(["-m", "venv"])
        .arg(&home)
        .stdin(Stdio::null())
        .output()
        .map_err(unusable)?;
    if !venv.status.success() {
        return Err(NoPython::NoVenv {
            python: base.to_owned(),
            said: last_words(&[venv.stdout, venv.stderr].concat()),
        });
    }
    let wanted = home.join("requirements.txt");
    std::fs::write(&wanted, REQUIREMENTS).map_err(unusable)?;
    install(&python, &wanted, progress)?;
    std::fs::write(&whole, "").map_err(unusable)?;
    Ok(python)
}

fn install(python: &Path, wanted: &Path, progress: &mut dyn FnMut(&str)) -> Result<(), NoPython> {
    let failed = |error: io::Error| NoPython::Install {
        said: error.to_string(),
    };
    let errors = tempfile::tempfile().map_err(failed)?;
    let mut pip = Command::new(python)
        .args([
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "--no-input",
        ])
        .args([
            "--no-color",
            "--progress-bar",
            "off",
            "--retries",
            "2",
            "-r",
        ])
        .arg(wanted)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors.try_clone().map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    let mut collected = 0;
    if let Some(said) = pip.stdout.take() {
        for line in BufReader::new(said).lines().map_while(Result::ok) {
            if let Some(what) = line.strip_prefix("Collecting ") {
                collected += 1;
                let name = what
                    .split([' ', '=', '<', '>', ';', '('])
                    .next()
                    .unwrap_or(what);
                progress(&format!("pip: {collected} {name}"));
            } else if line.starts_with("Installing collected") {
                progress("pip: installing");
            }
        }
    }
    if pip.wait().map_err(failed)?.success() {
        return Ok(());
    }
    Err(NoPython::Install {
        said: last_words(&read_all(errors).map_err(failed)?),
    })
}

fn read_all(mut file: File) -> io::Result<Vec<u8>> {
    use std::io::{Read, Seek};
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the last lines that say something, in one.
fn last_words(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let lines: Vec<_> = said
        .lines()
        .map(str::trim)
        // pip's retries say the same as its last error, at length.
        .filter(|line| !line.is_empty() && !line.starts_with("WARNING"))
        .collect();
    let from = lines.len().saturating_sub(LAST_WORDS);
    lines.get(from..).unwrap_or_default().join("; ")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A stand-in for an interpreter: what it says to `-c`, and a shell for all else.
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
    fn no_venv_module_is_a_clear_error() {
        let temp = tempfile::tempdir().expect("a folder");
        let lacks = "echo 'ensurepip is not available' >&2; exit 1";
        stand_in(&temp.path().join("py"), false, lacks);
        let path = temp.path().join("py/bin");
        let home = temp.path().join("home");
        let variables = HashMap::from([
            ("PATH", path.to_str().expect("UTF-8")),
            ("HOME", home.to_str().expect("UTF-8")),
        ]);
        let error = find(None, &variables, &mut |_| ()).expect_err("no venv");
        assert!(matches!(error, NoPython::NoVenv { .. }), "{error}");
        assert!(error.to_string().contains("ensurepip"), "{error}");
        assert!(error.hint().contains("python3-venv"), "{error}");
    }

    #[test]
    fn an_environment_that_was_interrupted_is_made_anew() {
        let temp = tempfile::tempdir().expect("a folder");
        let source = temp.path().join("source");
        stand_in(&source, true, "echo 'Collecting ipykernel==7.4.0'; exit 0");
        // A base whose venv is a copy of the stand-in above.
        let makes = format!(
            "mkdir -p \"$3/bin\" && cp {}/bin/python3 \"$3/bin/python\"",
            source.display()
        );
        let base = stand_in(&temp.path().join("py"), false, &makes);
        let cache = temp.path().join("cache");
        let mut said = Vec::new();
        let made = private(&base, &cache, &mut |line| said.push(line.to_owned())).expect("made");
        assert!(
            said.iter().any(|line| line == "pip: 1 ipykernel"),
            "{said:?}"
        );
        let home = made.parent().and_then(Path::parent).expect("a home");

        said.clear();
        private(&base, &cache, &mut |line| said.push(line.to_owned())).expect("re-used");
        // A child that another test starts has the lock, too, until it has become its program.
        said.retain(|line| !line.starts_with("another demo"));
        assert!(said.is_empty(), "{said:?}");

        std::fs::remove_file(home.join("complete")).expect("take the mark away");
        std::fs::write(home.join("half"), "").expect("leave a rest");
        private(&base, &cache, &mut |_| ()).expect("made anew");
        assert!(!home.join("half").exists() && home.join("complete").exists());
    }

    #[test]
    fn pips_failure_is_told_in_its_last_words() {
        let temp = tempfile::tempdir().expect("a folder");
        let source = temp.path().join("source");
        stand_in(
            &source,
            true,
            "echo 'ERROR: No matching distribution' >&2; exit 1",
        );
        let makes = format!(
            "mkdir -p \"$3/bin\" && cp {}/bin/python3 \"$3/bin/python\"",
            source.display()
        );
        let base = stand_in(&temp.path().join("py"), false, &makes);
        let error = private(&base, &temp.path().join("cache"), &mut |_| ()).expect_err("offline");
        assert!(
            error.to_string().contains("No matching distribution"),
            "{error}"
        );
        assert!(error.hint().contains("network"), "{error}");
    }
}

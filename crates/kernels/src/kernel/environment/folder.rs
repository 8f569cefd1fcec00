//! An environment: a folder with its own Python, and the program that made it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::python;
use crate::kernel::foreign_file;

/// The program that made an environment and installs packages into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// `python -m venv`, with pip.
    Venv,
    /// uv.
    Uv,
    /// pixi.
    Pixi,
    /// Poetry.
    Poetry,
    /// conda, mamba or micromamba.
    Conda,
    /// No program: it is the system's own Python, not an environment.
    System,
}

impl Manager {
    /// Returns the manager's usual name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Venv => "venv",
            Self::Uv => "uv",
            Self::Pixi => "pixi",
            Self::Poetry => "poetry",
            Self::Conda => "conda",
            Self::System => "system",
        }
    }
}

/// An environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Its folder, which is the `sys.prefix` of its Python.
    pub prefix: PathBuf,
    /// The program that made it.
    pub manager: Manager,
    /// The folder of the project for which it was made, if the manager records one.
    pub project: Option<PathBuf>,
    /// How it was found, as text for messages.
    pub source: String,
}

impl Environment {
    /// Describes an environment, from its files.
    pub fn of(prefix: &Path, source: impl Into<String>) -> Self {
        let (manager, project) = manager_of(prefix);
        Self {
            prefix: prefix.to_owned(),
            manager,
            project,
            source: source.into(),
        }
    }

    /// Returns the environment's interpreter.
    pub fn executable(&self) -> Option<PathBuf> {
        python::of_environment(&self.prefix)
    }

    /// Returns the link in place of the interpreter and its missing target, if the Python from which the
    /// environment was made was removed or replaced.
    pub fn dangling(&self) -> Option<(PathBuf, PathBuf)> {
        python::dangling(&self.prefix)
    }

    /// Returns the name by which users know the environment.
    pub fn name(&self) -> String {
        let own = last_name(&self.prefix);
        match (self.manager, &self.project) {
            (Manager::Pixi, Some(project)) if own == "default" => last_name(project),
            (Manager::Pixi, Some(project)) => format!("{}:{own}", last_name(project)),
            (Manager::Conda, _) if is_base(&self.prefix) => "base".to_owned(),
            _ => own,
        }
    }
}

/// Returns the last part of a path, for people.
pub(in crate::kernel) fn last_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Returns whether a folder is an environment of venv or conda.
pub(in crate::kernel) fn is_environment(prefix: &Path) -> bool {
    prefix.join("pyvenv.cfg").is_file() || prefix.join("conda-meta").is_dir()
}

/// Returns whether a prefix is that of conda itself. micromamba's contains no programs of conda, but the
/// package cache that all its environments share.
pub(in crate::kernel) fn is_base(prefix: &Path) -> bool {
    let has = |folder: &str| prefix.join(folder).is_dir();
    has("conda-meta") && (has("condabin") || has("pkgs"))
}

/// Returns whether an environment belongs to this user or to root.
///
/// An environment of another user, for example in `/tmp` above a notebook, would run that user's code as this
/// user.
pub(super) fn is_trusted(prefix: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    std::fs::metadata(prefix).is_ok_and(|found| found.uid() == own || found.uid() == 0)
}

/// Reads from an environment's files which program made it, and for which project.
fn manager_of(prefix: &Path) -> (Manager, Option<PathBuf>) {
    if prefix.join("conda-meta").is_dir() {
        let envs = prefix.parent().filter(|envs| envs.ends_with(".pixi/envs"));
        let project = envs.and_then(|envs| Some(envs.parent()?.parent()?.to_owned()));
        return match project {
            Some(project) => (Manager::Pixi, Some(project)),
            None => (Manager::Conda, None),
        };
    }
    let Ok(made) = foreign_file::read_text(&prefix.join("pyvenv.cfg")) else {
        return (Manager::System, None);
    };
    let above = prefix.parent().filter(|_| prefix.ends_with(".venv"));
    let locked = |file: &str| above.is_some_and(|folder| folder.join(file).is_file());
    let project = || above.map(Path::to_owned);
    if locked("uv.lock") {
        (Manager::Uv, project())
    } else if locked("poetry.lock") {
        (Manager::Poetry, project())
    } else if made.lines().any(|line| line.starts_with("uv =")) {
        (Manager::Uv, None)
    } else {
        (Manager::Venv, None)
    }
}

//! Where Jupyter keeps its files, and the environment variables that say so.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Environment variables, real ones or a test's.
pub trait Variables {
    /// Returns a variable's value; an empty one counts as unset.
    fn get(&self, name: &str) -> Option<OsString>;

    /// Returns a variable that is a path.
    fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }
}

/// The variables of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessVariables;

impl Variables for ProcessVariables {
    fn get(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name).filter(|value| !value.is_empty())
    }
}

impl Variables for HashMap<&str, &str> {
    fn get(&self, name: &str) -> Option<OsString> {
        HashMap::get(self, name)
            .filter(|value| !value.is_empty())
            .map(OsString::from)
    }
}

/// Jupyter's folders for this user, by `jupyter_core`'s rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JupyterPaths {
    /// The entries of `JUPYTER_PATH`.
    extra: Vec<PathBuf>,
    /// The user's data folder; user-level specs are in its `kernels`.
    pub data_dir: PathBuf,
    /// Where clients look for connection files.
    pub runtime_dir: PathBuf,
}

/// Says that neither a home folder nor `JUPYTER_DATA_DIR` is known.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no home folder is known; set HOME or JUPYTER_DATA_DIR")]
pub struct NoHome;

impl JupyterPaths {
    /// Reads the folders from the environment.
    pub fn new(variables: &dyn Variables) -> Result<Self, NoHome> {
        let data_dir = match variables.path("JUPYTER_DATA_DIR") {
            Some(dir) => dir,
            None if cfg!(target_os = "macos") => home(variables)?.join("Library/Jupyter"),
            None => xdg_data(variables)?.join("jupyter"),
        };
        let runtime_dir = variables
            .path("JUPYTER_RUNTIME_DIR")
            .unwrap_or_else(|| data_dir.join("runtime"));
        let extra = variables
            .get("JUPYTER_PATH")
            .map(|list| {
                std::env::split_paths(&list)
                    .filter(|path| path.is_absolute())
                    .collect()
            })
            .unwrap_or_default();
        Ok(Self {
            extra,
            data_dir,
            runtime_dir,
        })
    }

    /// Returns the folders that hold kernelspec folders, the first that has a name wins.
    ///
    /// `prefix` is the `sys.prefix` of the Python that is in use: as in `jupyter_core`, an
    /// environment's specs come before the user's.
    pub fn spec_folders(&self, prefix: Option<&Path>) -> Vec<PathBuf> {
        let shared = prefix.map(|prefix| prefix.join("share/jupyter"));
        let system = ["/usr/local/share/jupyter", "/usr/share/jupyter"].map(PathBuf::from);
        let mut folders: Vec<PathBuf> = Vec::new();
        let all = self
            .extra
            .iter()
            .cloned()
            .chain(shared)
            .chain([self.data_dir.clone()]);
        for folder in all.chain(system).map(|folder| folder.join("kernels")) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        folders
    }
}

/// Returns the folder of `nb`'s own data: the copy of the executable that specs point to.
pub fn own_data_dir(variables: &dyn Variables) -> Result<PathBuf, NoHome> {
    Ok(xdg_data(variables)?.join("nb"))
}

fn xdg_data(variables: &dyn Variables) -> Result<PathBuf, NoHome> {
    match variables
        .path("XDG_DATA_HOME")
        .filter(|path| path.is_absolute())
    {
        Some(dir) => Ok(dir),
        None => Ok(home(variables)?.join(".local/share")),
    }
}

fn home(variables: &dyn Variables) -> Result<PathBuf, NoHome> {
    variables
        .path("HOME")
        .or_else(std::env::home_dir)
        .ok_or(NoHome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environments_specs_come_before_the_users() {
        let variables = HashMap::from([
            ("HOME", "/h"),
            ("JUPYTER_PATH", "/x:/y"),
            ("XDG_DATA_HOME", "/d"),
        ]);
        let paths = JupyterPaths {
            data_dir: "/d/jupyter".into(),
            ..JupyterPaths::new(&variables).unwrap()
        };
        let folders = paths.spec_folders(Some(Path::new("/venv")));
        let expected = [
            "/x/kernels",
            "/y/kernels",
            "/venv/share/jupyter/kernels",
            "/d/jupyter/kernels",
            "/usr/local/share/jupyter/kernels",
            "/usr/share/jupyter/kernels",
        ];
        assert_eq!(folders, expected.map(PathBuf::from));
        assert_eq!(own_data_dir(&variables).unwrap(), Path::new("/d/nb"));
    }

    #[test]
    fn jupyters_own_variables_win() {
        let variables = HashMap::from([("JUPYTER_DATA_DIR", "/j"), ("XDG_DATA_HOME", "/d")]);
        let paths = JupyterPaths::new(&variables).unwrap();
        assert_eq!(paths.data_dir, Path::new("/j"));
        assert_eq!(paths.runtime_dir, Path::new("/j/runtime"));
    }
}

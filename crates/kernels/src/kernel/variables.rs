//! Environment variables, and the user's folders to which they point.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Environment variables, real ones or a test's.
pub trait Variables: Sync {
    /// Returns a variable's value; an empty one counts as unset.
    fn get(&self, name: &str) -> Option<OsString>;

    /// Returns a variable that is a path.
    fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).map(PathBuf::from)
    }

    /// Returns the files of this name in the folders of `PATH`, in that order.
    fn programs(&self, name: &Path) -> Vec<PathBuf> {
        // Without PATH nothing is found: an empty list would mean the working directory.
        let Some(folders) = self.get("PATH") else {
            return Vec::new();
        };
        let files = std::env::split_paths(&folders).map(|folder| folder.join(name));
        // A relative folder is one of the working directory, which may be a stranger's.
        let files = files.filter(|file| file.is_absolute() && file.is_file());
        files.collect()
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

/// Says that neither a home folder nor `JUPYTER_DATA_DIR` is known.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no home folder is known; set HOME or JUPYTER_DATA_DIR")]
pub struct NoHome;

/// Returns the folder of `nb`'s own data, with the copy of the executable to which specs point.
pub fn own_data_dir(variables: &dyn Variables) -> Result<PathBuf, NoHome> {
    let data = match xdg_data_home(variables) {
        Some(dir) => dir,
        None => home(variables)?.join(".local/share"),
    };
    Ok(data.join("nb"))
}

pub(in crate::kernel) fn xdg_data_home(variables: &dyn Variables) -> Option<PathBuf> {
    let dir = variables.path("XDG_DATA_HOME");
    dir.filter(|path| path.is_absolute())
}

pub(in crate::kernel) fn home(variables: &dyn Variables) -> Result<PathBuf, NoHome> {
    variables
        .path("HOME")
        .or_else(std::env::home_dir)
        .ok_or(NoHome)
}

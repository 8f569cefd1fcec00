//! The environments that conda, mamba and micromamba know on this machine.

use std::path::{Path, PathBuf};

use super::folder::{Environment, is_base, is_trusted};
use crate::kernel::foreign_file;
use crate::kernel::variables::{Variables, home, xdg_data_home};

/// The folders into which installers put conda, in the home folder and in other places.
const ROOTS: [&str; 6] = [
    "miniforge3",
    "mambaforge",
    "miniconda3",
    "anaconda3",
    "micromamba",
    "/opt/conda",
];

/// Returns the environments that conda knows, by name; `base` is the last.
///
/// They belong to no project, so the user must name one.
pub fn known(variables: &dyn Variables) -> Vec<Environment> {
    let mut prefixes = Vec::new();
    for folder in environment_folders(variables) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        prefixes.extend(entries.map(|entry| entry.path()));
    }
    prefixes.extend(registered(variables));
    prefixes.extend(roots(variables));
    prefixes.retain(|prefix| {
        prefix.is_absolute() && prefix.join("conda-meta").is_dir() && is_trusted(prefix)
    });
    prefixes.sort_by_key(|prefix| {
        let name = prefix.file_name().map(ToOwned::to_owned);
        (is_base(prefix), name, prefix.clone())
    });
    prefixes.dedup();
    let known = prefixes.iter();
    known
        .map(|prefix| Environment::of(prefix, "known to conda"))
        .filter(|it| it.executable().is_some())
        .collect()
}

/// Returns every environment that conda, mamba or micromamba has made, from their own list.
fn registered(variables: &dyn Variables) -> Vec<PathBuf> {
    let Ok(home) = home(variables) else {
        return Vec::new();
    };
    let all = foreign_file::read_text(&home.join(".conda/environments.txt"));
    let all = all.unwrap_or_default();
    all.lines().map(|line| line.trim().into()).collect()
}

/// Returns conda's `base` if this shell has activated it.
pub fn active_base(variables: &dyn Variables) -> Option<PathBuf> {
    let prefix = variables.path("CONDA_PREFIX")?;
    is_base_of(&prefix, variables).then_some(prefix)
}

pub(super) fn is_base_of(prefix: &Path, variables: &dyn Variables) -> bool {
    let named = variables
        .get("CONDA_DEFAULT_ENV")
        .is_some_and(|name| name == "base");
    named || is_base(prefix) || variables.path("MAMBA_ROOT_PREFIX").as_deref() == Some(prefix)
}

/// Returns the folders that hold named environments.
pub(super) fn environment_folders(variables: &dyn Variables) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for name in ["CONDA_ENVS_DIRS", "CONDA_ENVS_PATH"] {
        let list = variables.get(name).unwrap_or_default();
        folders.extend(std::env::split_paths(&list).filter(|path| path.is_absolute()));
    }
    if let Ok(home) = home(variables) {
        folders.push(home.join(".conda/envs"));
    }
    folders.extend(roots(variables).iter().map(|root| root.join("envs")));
    folders
}

/// Returns the root prefixes of conda, mamba and micromamba.
pub(super) fn roots(variables: &dyn Variables) -> Vec<PathBuf> {
    let of_program = |name: &str| {
        let program = variables.path(name)?;
        Some(program.parent()?.parent()?.to_owned())
    };
    let mut roots: Vec<PathBuf> = [
        variables.path("MAMBA_ROOT_PREFIX"),
        of_program("CONDA_EXE"),
        active_base(variables),
    ]
    .into_iter()
    .flatten()
    .collect();
    if let Ok(home) = home(variables) {
        roots.extend(ROOTS.iter().map(|root| home.join(root)));
        // micromamba's default since version 2.
        let data = xdg_data_home(variables).unwrap_or_else(|| home.join(".local/share"));
        roots.push(data.join("mamba"));
    }
    roots
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn make(prefix: &Path) {
        std::fs::create_dir_all(prefix.join("conda-meta")).unwrap();
        std::fs::create_dir_all(prefix.join("bin")).unwrap();
        std::fs::write(prefix.join("bin/python"), "").unwrap();
    }

    #[test]
    fn every_place_is_looked_in_and_base_comes_last() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path();
        let variables = HashMap::from([("HOME", home.to_str().unwrap())]);
        assert!(
            known(&variables)
                .iter()
                .all(|it| it.prefix.starts_with("/opt"))
        );
        make(&home.join("miniforge3"));
        std::fs::create_dir_all(home.join("miniforge3/condabin")).unwrap();
        make(&home.join("miniforge3/envs/ml"));
        make(&home.join("far/b"));
        make(&home.join("shelf/a"));
        std::fs::create_dir_all(home.join(".conda")).unwrap();
        let all = format!(
            "{0}/far/b\n{0}/shelf/a\n{0}/gone\n\n{0}/miniforge3\n",
            home.display()
        );
        std::fs::write(home.join(".conda/environments.txt"), all).unwrap();
        let names: Vec<_> = known(&variables)
            .into_iter()
            .filter(|it| it.prefix.starts_with(home))
            .map(|it| it.name())
            .collect();
        assert_eq!(names, ["a", "b", "ml", "base"]);
    }
}

//! The folders of the system's programs and of the user's own tools, as opposed to programs in a notebook's
//! folder.
//!
//! A program there was installed on this machine. An environment in a notebook's folder may come from another
//! person, and so may the paths in its links and settings.

use std::path::{Component, Path, PathBuf};

use super::conda;
use crate::kernel::variables::{Variables, home, xdg_data_home};

/// The folders in which every system has its programs; users have no files of their own there.
pub(in crate::kernel) const SYSTEM: [&str; 9] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
];

/// The folders in which other package managers install programs.
const PACKAGED: [&str; 7] = [
    "/opt",
    "/snap",
    "/run/current-system",
    "/home/linuxbrew/.linuxbrew",
    "/Library",
    "/System",
    "/Applications",
];

/// The folders below the home folder in which tools put the Pythons and environments that they install.
const HOME: [&str; 20] = [
    ".pyenv",
    ".asdf/installs",
    ".local/share/mise/installs",
    ".local/share/rtx/installs",
    ".local/share/uv",
    ".local/share/hatch",
    ".local/share/pdm",
    ".local/share/pipx",
    ".local/share/virtualenv",
    ".local/share/virtualenvs",
    ".virtualenvs",
    ".local/pipx",
    ".rye/py",
    ".pixi/envs",
    ".cache/pypoetry/virtualenvs",
    ".cache/pixi",
    ".cache/rattler",
    ".cache/uv",
    ".linuxbrew",
    ".nix-profile",
];

/// Variables by which the user chooses another folder for a tool.
const NAMED: [&str; 7] = [
    "PYENV_ROOT",
    "UV_PYTHON_INSTALL_DIR",
    "UV_TOOL_DIR",
    "UV_CACHE_DIR",
    "WORKON_HOME",
    "MISE_DATA_DIR",
    "HOMEBREW_PREFIX",
];

/// The folders of the system's programs and of the user's own tools.
#[derive(Clone, Debug)]
pub struct ToolFolders {
    home: Option<PathBuf>,
    folders: Vec<PathBuf>,
}

impl ToolFolders {
    /// Returns the tool folders of this user.
    pub fn known(variables: &dyn Variables) -> Self {
        let home = home(variables).ok();
        let system = SYSTEM.iter().chain(&PACKAGED);
        let mut folders: Vec<PathBuf> = system.map(PathBuf::from).collect();
        let own = home.iter();
        folders.extend(own.flat_map(|home| HOME.map(|name| home.join(name))));
        folders.extend(NAMED.iter().filter_map(|name| variables.path(name)));
        folders.extend(xdg_data_home(variables).map(|data| data.join("uv")));
        folders.extend(conda::environment_folders(variables));
        folders.extend(conda::roots(variables));
        let real: Vec<_> = folders
            .iter()
            .filter_map(|it| it.canonicalize().ok())
            .collect();
        folders.extend(real);
        let real_home = home
            .as_deref()
            .map(|it| it.canonicalize().unwrap_or_else(|_| it.into()));
        // If a variable names the home folder or one above it, the tool's folder would include everything.
        let holds_home = |folder: &PathBuf| {
            let mut homes = home.iter().chain(&real_home);
            homes.any(|home| home.starts_with(folder))
        };
        folders.retain(|folder| folder.is_absolute() && !holds_home(folder));
        Self {
            home: real_home,
            folders,
        }
    }

    /// Returns whether a path lies in one of these folders.
    pub fn hold(&self, path: &Path) -> bool {
        let plain = path.components().all(|part| part != Component::ParentDir);
        plain && self.folders.iter().any(|folder| path.starts_with(folder))
    }

    /// Returns whether a program lies in one of these folders, by its name and by its real path.
    pub fn hold_program(&self, program: &Path) -> bool {
        let real = program.canonicalize();
        program.is_absolute() && self.hold(program) && real.is_ok_and(|real| self.hold(&real))
    }

    /// Returns the user's real home.
    pub fn home(&self) -> Option<&Path> {
        self.home.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_tools_folder_is_known_and_a_projects_is_not() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap();
        let far = home.join("far/pyenv");
        let variables = HashMap::from([
            ("HOME", home.to_str().unwrap()),
            ("PYENV_ROOT", far.to_str().unwrap()),
            // A folder that would include everything.
            ("WORKON_HOME", home.to_str().unwrap()),
        ]);
        let tools = ToolFolders::known(&variables);
        for path in [
            home.join(".pyenv/versions/3.12/bin/python"),
            home.join(".local/share/uv/python/x/bin/python3"),
            home.join("miniforge3/envs/ml/bin/python"),
            far.join("versions/3.12"),
            "/usr/bin/python3".into(),
            "/opt/python/3.12".into(),
        ] {
            assert!(tools.hold(&path), "{}", path.display());
        }
        for path in [
            home.join("project/.venv/bin/python"),
            home.join(".ssh/id_rsa"),
            home.join(".pyenv/../.ssh/id_rsa"),
            home.clone(),
            "/data/python".into(),
        ] {
            assert!(!tools.hold(&path), "{}", path.display());
        }
    }

    #[test]
    fn a_program_counts_where_its_links_lead_too() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap();
        let variables = HashMap::from([("HOME", home.to_str().unwrap())]);
        let tools = ToolFolders::known(&variables);
        let bin = home.join(".pyenv/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::create_dir_all(home.join("project")).unwrap();
        std::fs::write(home.join("project/trap"), "").unwrap();
        std::fs::write(bin.join("python"), "").unwrap();
        std::os::unix::fs::symlink(home.join("project/trap"), bin.join("trap")).unwrap();
        std::os::unix::fs::symlink(bin.join("python"), home.join("project/python")).unwrap();
        assert!(tools.hold_program(&bin.join("python")));
        assert!(!tools.hold_program(&bin.join("trap")));
        assert!(!tools.hold_program(&home.join("project/python")));
    }
}

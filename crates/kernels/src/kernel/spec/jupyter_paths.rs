//! The folders in which Jupyter keeps its files.

use std::ffi::OsString;
use std::path::PathBuf;

use super::prefix::Prefix;
use crate::kernel::variables::{NoHome, Variables, home, xdg_data_home};

/// Jupyter's folders for this user, by `jupyter_core`'s rules.
///
/// These are the rules of all versions 5.x. Version 4.x did not prefer environments by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JupyterPaths {
    /// The entries of `JUPYTER_PATH`.
    extra: Vec<PathBuf>,
    /// The user's data folder; user-level specs are in its `kernels`.
    pub data_dir: PathBuf,
    /// The folder in which clients search for connection files.
    pub runtime_dir: PathBuf,
    /// The folder into which `pip install --user` puts data files; Pythons outside environments search it.
    user_site: Option<PathBuf>,
    /// The machine's folders.
    system: Vec<PathBuf>,
    /// The value of `JUPYTER_PREFER_ENV_PATH`, if it is set.
    prefer_environment: Option<bool>,
    /// IPython's own folder, from before Jupyter was a separate project.
    ipython: Option<PathBuf>,
    /// The folders of this user's own configuration.
    config: Vec<PathBuf>,
}

impl JupyterPaths {
    /// Reads the folders from the environment.
    pub fn new(variables: &dyn Variables) -> Result<Self, NoHome> {
        let platform = is_set(variables, "JUPYTER_PLATFORM_DIRS").unwrap_or(false);
        // As in jupyter_core: on some systems the home folders are behind a symlink.
        let home = || {
            let home = home(variables)?;
            Ok(home.canonicalize().unwrap_or(home))
        };
        let is_mac = cfg!(target_os = "macos");
        let data_dir = match variables.path("JUPYTER_DATA_DIR") {
            Some(dir) => std::path::absolute(&dir).unwrap_or(dir),
            None if is_mac && platform => home()?.join("Library/Application Support/Jupyter"),
            None if is_mac => home()?.join("Library/Jupyter"),
            None => match xdg_data_home(variables) {
                Some(dir) => dir.join("jupyter"),
                None => home()?.join(".local/share/jupyter"),
            },
        };
        let runtime_dir = variables
            .path("JUPYTER_RUNTIME_DIR")
            .unwrap_or_else(|| data_dir.join("runtime"));
        // A relative entry would mean a different folder for each working directory, and that may be another
        // user's.
        let absolute = |list: OsString| -> Vec<PathBuf> {
            std::env::split_paths(&list)
                .filter(|path| path.is_absolute())
                .map(|path| path.components().collect())
                .collect()
        };
        let user_site = match variables.path("PYTHONUSERBASE") {
            _ if variables.get("PYTHONNOUSERSITE").is_some() => None,
            Some(base) => Some(base.join("share/jupyter")),
            None if is_mac => None,
            None => home().ok().map(|home| home.join(".local/share/jupyter")),
        };
        let usual = ["/usr/local/share/jupyter", "/usr/share/jupyter"].map(PathBuf::from);
        let system = match variables.get("XDG_DATA_DIRS").map(absolute) {
            _ if platform && is_mac => vec!["/Library/Application Support/Jupyter".into()],
            Some(folders) if platform => folders.iter().map(|it| it.join("jupyter")).collect(),
            _ => usual.to_vec(),
        };
        let ipython = variables.path("IPYTHONDIR");
        let mut config: Vec<_> = variables
            .get("JUPYTER_CONFIG_PATH")
            .map(absolute)
            .unwrap_or_default();
        if variables.get("JUPYTER_NO_CONFIG").is_none() {
            let own = variables.path("JUPYTER_CONFIG_DIR");
            config.extend(own.or_else(|| Some(home().ok()?.join(".jupyter"))));
            config.extend(home().ok().map(|home| home.join(".local/etc/jupyter")));
        }
        Ok(Self {
            extra: variables
                .get("JUPYTER_PATH")
                .map(absolute)
                .unwrap_or_default(),
            data_dir,
            runtime_dir,
            user_site,
            system,
            prefer_environment: is_set(variables, "JUPYTER_PREFER_ENV_PATH"),
            ipython: ipython.or_else(|| Some(home().ok()?.join(".ipython"))),
            config,
        })
    }

    /// Returns the folders that hold Jupyter's configuration, the one with the highest priority first.
    pub fn config_folders(&self, prefix: Option<&Prefix>) -> Vec<PathBuf> {
        let shared = prefix.map(|prefix| prefix.path.join("etc/jupyter"));
        let system = ["/usr/local/etc/jupyter", "/etc/jupyter"].map(PathBuf::from);
        let own = self.config.iter().cloned();
        own.chain(shared).chain(system).collect()
    }

    /// Returns the folders that hold kernelspec folders; of equal names the first folder's spec is used.
    ///
    /// `prefix` is the `sys.prefix` of the Python in use; `None` if there is none.
    pub fn spec_folders(&self, prefix: Option<&Prefix>) -> Vec<PathBuf> {
        let shared = prefix.map(|prefix| prefix.path.join("share/jupyter"));
        // A system's own Python has its specs in one of the machine's folders.
        let shared = shared.filter(|folder| !self.system.contains(folder));
        let has_user_site = prefix.is_none_or(|prefix| prefix.has_user_site);
        let user_site = self.user_site.clone().filter(|_| has_user_site);
        let user = [Some(self.data_dir.clone()), user_site];
        let is_environment = prefix.is_some_and(|prefix| prefix.is_environment);
        let (before, after) = if self.prefer_environment.unwrap_or(is_environment) {
            (shared, None)
        } else {
            (None, shared)
        };
        let all = self.extra.iter().cloned().chain(before);
        let all = all.chain(user.into_iter().flatten()).chain(after);
        let all = all.chain(self.system.iter().cloned());
        let mut folders: Vec<PathBuf> = Vec::new();
        for folder in all.chain(self.ipython.clone()) {
            let folder = folder.join("kernels");
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        folders
    }
}

/// Parses a switch as Jupyter does: everything except a word for "no" means yes.
fn is_set(variables: &dyn Variables, name: &str) -> Option<bool> {
    let value = variables.get(name)?;
    let value = value.to_string_lossy().to_ascii_lowercase();
    Some(!["no", "n", "false", "off", "0", "0.0"].contains(&&*value))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;

    use super::*;

    fn prefix(is_environment: bool) -> Prefix {
        Prefix {
            path: "/venv".into(),
            is_environment,
            has_user_site: !is_environment,
        }
    }

    #[cfg(not(target_os = "macos"))]
    fn folders(more: &[(&'static str, &'static str)], prefix: Option<&Prefix>) -> Vec<String> {
        let mut variables = HashMap::from([("HOME", "/h")]);
        variables.extend(more.iter().copied());
        let folders = JupyterPaths::new(&variables).unwrap().spec_folders(prefix);
        let words = folders.iter().map(|it| it.to_str().unwrap());
        words
            .map(|it| it.trim_end_matches("/kernels").to_owned())
            .collect()
    }

    #[cfg(not(target_os = "macos"))]
    #[test]
    fn an_environments_specs_come_before_the_users() {
        let system = ["/usr/local/share/jupyter", "/usr/share/jupyter"];
        let with = |before: &[&'static str]| [before, &system, &["/h/.ipython"]].concat();
        let more = [("JUPYTER_PATH", "/x:/y/::z"), ("XDG_DATA_HOME", "/d")];
        let (own, of_system) = (prefix(true), prefix(false));
        let venv = "/venv/share/jupyter";
        let (user, site) = ("/d/jupyter", "/h/.local/share/jupyter");
        assert_eq!(folders(&more, Some(&own)), with(&["/x", "/y", venv, user]));
        assert_eq!(
            folders(&more, Some(&of_system)),
            with(&["/x", "/y", user, site, venv])
        );
        assert_eq!(folders(&more, None), with(&["/x", "/y", user, site]));
        // The variable reverses the order.
        let prefers = |word| [("JUPYTER_PREFER_ENV_PATH", word)];
        assert_eq!(folders(&prefers("No"), Some(&own)), with(&[site, venv]));
        assert_eq!(
            folders(&prefers("1"), Some(&of_system)),
            with(&[venv, site])
        );
        // A system's own prefix is among the machine's folders.
        let usr = Prefix {
            path: "/usr".into(),
            ..of_system
        };
        assert_eq!(folders(&[], Some(&usr)), with(&[site]));
        assert_eq!(
            folders(&[("PYTHONUSERBASE", "/u")], Some(&usr)),
            with(&[site, "/u/share/jupyter"])
        );
    }

    #[cfg(not(target_os = "macos"))]
    #[test]
    fn platform_folders_count_where_they_are_asked_for() {
        let dirs = ("XDG_DATA_DIRS", "/a:b:/c");
        let platform = ("JUPYTER_PLATFORM_DIRS", "1");
        let set = [dirs, platform, ("IPYTHONDIR", "/i")];
        let expected = ["/h/.local/share/jupyter", "/a/jupyter", "/c/jupyter", "/i"];
        assert_eq!(folders(&set, None), expected);
        assert_eq!(folders(&[dirs], None)[1], "/usr/local/share/jupyter");
    }

    #[test]
    fn a_prefix_knows_its_kind() {
        let temp = tempfile::tempdir().unwrap();
        let venv = temp.path();
        assert!(!Prefix::of(venv).is_environment);
        assert!(Prefix::of(venv).has_user_site);
        std::fs::write(venv.join("pyvenv.cfg"), "home = /usr\n").unwrap();
        assert!(Prefix::of(venv).is_environment);
        assert!(!Prefix::of(venv).has_user_site);
        let shares = "include-system-site-packages = True\n";
        std::fs::write(venv.join("pyvenv.cfg"), shares).unwrap();
        assert!(Prefix::of(venv).has_user_site);
        let conda = temp.path().join("conda");
        std::fs::create_dir_all(conda.join("conda-meta")).unwrap();
        assert!(Prefix::of(&conda).is_environment);
        std::fs::create_dir(conda.join("condabin")).unwrap();
        assert!(!Prefix::of(&conda).is_environment, "base is none");
    }

    #[test]
    fn jupyters_own_variables_win() {
        let variables = HashMap::from([("JUPYTER_DATA_DIR", "/j"), ("XDG_DATA_HOME", "/d")]);
        let paths = JupyterPaths::new(&variables).unwrap();
        assert_eq!(paths.data_dir, Path::new("/j"));
        assert_eq!(paths.runtime_dir, Path::new("/j/runtime"));
    }
}

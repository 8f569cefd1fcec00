//! The `sys.prefix` of the Python whose kernelspecs apply to a folder.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::kernel::environment::folder::{Environment, is_base};
use crate::kernel::environment::probe::{self, ProbePolicy};
use crate::kernel::environment::{python, search};
use crate::kernel::foreign_file;
use crate::kernel::variables::Variables;

/// The `sys.prefix` of the Python in use, with the properties that Jupyter's rules need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The folder.
    pub path: PathBuf,
    /// Whether it is an environment of this user: its specs come before the user's.
    pub is_environment: bool,
    /// Whether it also uses the packages in the user's site folder.
    pub has_user_site: bool,
}

impl Prefix {
    /// Describes a prefix. A conda environment counts as active, since it is activated before a kernel is
    /// started in it; `base` does not.
    pub fn of(path: &Path) -> Self {
        let virtual_cfg = foreign_file::read_text(&path.join("pyvenv.cfg")).ok();
        let shares_packages = |text: &String| {
            let shares = python::setting(text, "include-system-site-packages");
            shares.is_some_and(|value| value.eq_ignore_ascii_case("true"))
        };
        let is_conda = path.join("conda-meta").is_dir() && !is_base(path);
        let own = rustix::process::geteuid().as_raw();
        let is_own = std::fs::metadata(path).is_ok_and(|found| found.uid() == own);
        Self {
            path: path.to_owned(),
            is_environment: (virtual_cfg.is_some() || is_conda) && is_own,
            has_user_site: virtual_cfg.as_ref().is_none_or(shares_packages),
        }
    }
}

/// Returns the `sys.prefix` whose kernelspecs apply to a folder, by Jupyter's rules.
pub fn prefix_in_use(folder: &Path, variables: &dyn Variables) -> Option<Prefix> {
    first_prefix(search::at_hand(folder, variables), variables)
}

/// Returns the `sys.prefix` of the first environment, else of the Python on `PATH`.
pub(super) fn first_prefix(
    environments: Vec<Environment>,
    variables: &dyn Variables,
) -> Option<Prefix> {
    let nearest = environments.into_iter().next().map(|it| it.prefix);
    let path = nearest.or_else(|| prefix_on_path(variables))?;
    Some(Prefix::of(&path))
}

pub(super) fn prefix_on_path(variables: &dyn Variables) -> Option<PathBuf> {
    let python = probe::on_path(variables)?;
    let python = probe::probe(&python, ProbePolicy::ToolsOnly, variables).ok()?;
    Some(python.prefix)
}

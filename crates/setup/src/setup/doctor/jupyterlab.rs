//! Checks whether the Jupyter servers of this user load nb's extension for JupyterLab.

use std::path::{Path, PathBuf};

use super::Check;
use crate::kernel::spec::jupyter_paths::JupyterPaths;
use crate::kernel::variables::Variables;
use crate::setup::jupyterlab_extension::{NAME, folder, version_in};
use crate::setup::serve::Level;

const ABOUT: &str = "jupyterlab";

const INSTALLS: &str = "nb serve --jupyterlab";

/// Checks the extension, where Jupyter was used.
pub(super) fn extension(variables: &dyn Variables) -> Option<Check> {
    let paths = JupyterPaths::new(variables).ok()?;
    if !paths.data_dir.is_dir() {
        return None;
    }
    let own = folder(&Level::User, variables).ok()?;
    // The wheel installs it beside the program.
    let program = std::env::current_exe().ok();
    let prefix = program.as_deref().and_then(|it| it.parent()?.parent());
    let prefixes = prefix
        .into_iter()
        .chain(["/usr/local", "/usr"].map(Path::new));
    let others = prefixes.map(|prefix| prefix.join("share/jupyter/labextensions").join(NAME));
    // A server loads the first one.
    let found = std::iter::once(own)
        .chain(others)
        .find_map(|folder| Some((version_in(&folder)?, folder)));
    Some(check(found))
}

fn check(found: Option<(String, PathBuf)>) -> Check {
    let own = env!("CARGO_PKG_VERSION");
    match found {
        Some((version, folder)) if version == own => {
            Check::good(ABOUT, format!("{NAME} {version} in {}", folder.display()))
        }
        Some((version, folder)) => {
            let place = folder.display();
            let text = format!("{NAME} in {place} is of version {version}, and this nb of {own}");
            Check::note(ABOUT, text, INSTALLS)
        }
        None => {
            let text = format!(
                "{NAME} is not installed: JupyterLab shows what others write after File > Reload Notebook from Disk, and loses the outputs of a tab that is closed"
            );
            Check::note(ABOUT, text, INSTALLS)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::setup::jupyterlab_extension::install;

    #[test]
    fn a_missing_and_an_older_extension_are_named_with_the_command() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_str().unwrap();
        let variables = HashMap::from([("HOME", home), ("JUPYTER_DATA_DIR", home)]);
        let text = || format!("{:?}", extension(&variables).unwrap());
        assert!(text().contains("is not installed") && text().contains(INSTALLS));
        let (folder, _) = install(&Level::User, &variables).unwrap();
        assert!(!text().contains(INSTALLS), "{}", text());
        let older = r#"{"name": "nb-live", "version": "0.0.1"}"#;
        std::fs::write(folder.join("package.json"), older).unwrap();
        assert!(text().contains("0.0.1") && text().contains(INSTALLS));
    }
}

//! The JupyterLab extension: two files in a folder in which every Jupyter server of the user looks for extensions.
//!
//! JupyterLab loads one script. It is put together here, from the extension's own files and those that it shares with the
//! extension of VS Code; each is a CommonJS module.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::program::install_file;
use super::serve::{Level, ServeError, kernels_dir};
use crate::kernel::variables::{NoHome, Variables};

/// The extension's name, which is the name of its folder.
pub const NAME: &str = "nb-live";

/// The modules of the script, with the last parts of the paths by which they require one another.
const MODULES: [(&str, &str); 8] = [
    ("activity", include_str!("../vscode/activity.js")),
    ("cells", include_str!("../vscode/cells.js")),
    ("live", include_str!("../vscode/live.js")),
    ("words", include_str!("../vscode/words.js")),
    ("comm", include_str!("../jupyterlab/comm.js")),
    ("tab", include_str!("../jupyterlab/tab.js")),
    ("extension", include_str!("../jupyterlab/extension.js")),
    ("entry", include_str!("../jupyterlab/entry.js")),
];

const PACKAGE: &str = include_str!("../jupyterlab/package.json");

/// Returns the extension's files, with their paths in its folder.
pub fn files() -> [(&'static str, String); 2] {
    [
        ("package.json", package()),
        ("static/remoteEntry.js", script()),
    ]
}

/// Installs the extension for the Jupyter servers that find the kernelspecs of this level. Returns its folder, and whether
/// anything had to be written.
///
/// # Errors
/// A file cannot be written.
pub fn install(level: &Level, variables: &dyn Variables) -> Result<(PathBuf, bool), ServeError> {
    let folder = folder(level, variables)?;
    let mut changed = false;
    // The description last, so that a server sees either no extension or a complete one.
    for (name, content) in files().iter().rev() {
        let path = folder.join(name);
        let installed = install_file(&path, content.as_bytes());
        changed |= installed.map_err(|source| ServeError::Install { path, source })?;
    }
    Ok((folder, changed))
}

/// Removes the extension of this level; returns its folder if it was there.
///
/// # Errors
/// The folder cannot be removed.
pub fn remove(level: &Level, variables: &dyn Variables) -> Result<Option<PathBuf>, ServeError> {
    let folder = folder(level, variables)?;
    if version_in(&folder).is_none() {
        return Ok(None);
    }
    match std::fs::remove_dir_all(&folder) {
        Ok(()) => Ok(Some(folder)),
        Err(source) => Err(ServeError::Remove {
            path: folder,
            source,
        }),
    }
}

/// Returns the folder of the extension at a level.
///
/// # Errors
/// There is no home folder.
pub fn folder(level: &Level, variables: &dyn Variables) -> Result<PathBuf, NoHome> {
    let kernels = kernels_dir(level, variables)?;
    Ok(kernels.with_file_name("labextensions").join(NAME))
}

/// Returns the version of the extension in a folder; `None` if it is not there.
pub fn version_in(folder: &Path) -> Option<String> {
    let package = std::fs::read(folder.join("package.json")).ok()?;
    let package: Value = serde_json::from_slice(&package).ok()?;
    (package["name"] == NAME).then(|| package["version"].as_str().map(str::to_owned))?
}

/// Returns `package.json` with this program's version.
fn package() -> String {
    let version = format!(r#""version": "{}""#, env!("CARGO_PKG_VERSION"));
    PACKAGE.replacen(r#""version": "0.0.0""#, &version, 1)
}

/// Returns the script: each module is a function, called when another one first requires it.
fn script() -> String {
    let mut script = String::from("(() => {\nconst modules = {\n");
    for (name, source) in MODULES {
        script += &format!("'{name}': (module, require) => {{\n{source}}},\n");
    }
    script += "};\nconst loaded = {};\nconst require = path => {\n  const name = path.split('/').at(-1);\n  loaded[name] ??= { exports: {} };\n";
    script += "  modules[name]?.(loaded[name], require);\n  delete modules[name];\n  return loaded[name].exports;\n};\n";
    script += "require('./entry');\n})();\n";
    script
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_extension_is_installed_once_and_removed_wholly() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_str().unwrap();
        let variables = HashMap::from([("HOME", home), ("JUPYTER_DATA_DIR", home)]);
        let (folder, changed) = install(&Level::User, &variables).unwrap();
        assert_eq!(folder, temp.path().join("labextensions/nb-live"));
        assert!(changed);
        assert!(!install(&Level::User, &variables).unwrap().1);
        assert_eq!(version_in(&folder).unwrap(), env!("CARGO_PKG_VERSION"));
        let package: Value =
            serde_json::from_slice(&std::fs::read(folder.join("package.json")).unwrap()).unwrap();
        let script = package["jupyterlab"]["_build"]["load"].as_str().unwrap();
        let bytes = std::fs::metadata(folder.join(script)).unwrap().len();
        assert!(bytes < 60_000, "{bytes} bytes");
        assert_eq!(
            remove(&Level::User, &variables).unwrap(),
            Some(folder.clone())
        );
        assert!(!folder.exists());
        assert_eq!(remove(&Level::User, &variables).unwrap(), None);
    }

    #[test]
    fn a_folder_of_another_extension_stays() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_str().unwrap();
        let variables = HashMap::from([("HOME", home), ("JUPYTER_DATA_DIR", home)]);
        let folder = folder(&Level::User, &variables).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("package.json"), r#"{"name": "other"}"#).unwrap();
        assert_eq!(remove(&Level::User, &variables).unwrap(), None);
        assert!(folder.exists());
    }
}

//! The kernelspec "nb shared kernel", by which front ends find `nb-proxy`.
//!
//! VS Code remembers a kernel by its spec's argv, so that must stay the same for ever: it points
//! to a copy of this program in `nb`'s own data folder, never to a build folder or an environment.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::kernel::detach::own_program;
use crate::kernel::paths::{JupyterPaths, NoHome, Variables, own_data_dir};
use crate::kernel::spec::{self, PROXY, SpecError};

const TEMPLATE: &str = include_str!("../../kernelspec/kernel.json");

const LOGOS: [(&str, &[u8]); 3] = [
    (
        "logo-32x32.png",
        include_bytes!("../../kernelspec/logo-32x32.png"),
    ),
    (
        "logo-64x64.png",
        include_bytes!("../../kernelspec/logo-64x64.png"),
    ),
    (
        "logo-svg.svg",
        include_bytes!("../../kernelspec/logo-svg.svg"),
    ),
];

/// Where the spec is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// For this user: every front end finds it.
    #[default]
    User,
    /// In an environment: `<prefix>/share/jupyter`.
    Prefix(PathBuf),
}

/// Why the spec could not be installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// No home folder.
    #[error(transparent)]
    NoHome(#[from] NoHome),
    /// A file could not be written.
    #[error("cannot install {}", path.display())]
    Install {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file could not be removed.
    #[error("cannot remove {}", path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder holds somebody else's spec.
    #[error("{} is a kernelspec of another program", folder.display())]
    NotOurs {
        /// The folder.
        folder: PathBuf,
    },
}

/// The installed spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The spec's folder.
    pub folder: PathBuf,
    /// The program that it starts.
    pub proxy: PathBuf,
    /// Whether anything had to be written.
    pub changed: bool,
}

/// What is known of the user's spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It is there and its program is this one.
    Good,
    /// There is none.
    Missing,
    /// It would not work, or starts an older program.
    Stale(String),
}

/// Installs the spec and the program that it starts. Doing it again changes nothing.
pub fn serve(level: &Level, variables: &dyn Variables) -> Result<Served, ServeError> {
    let folder = folder(level, variables)?;
    if !ours(&folder) && folder.join("kernel.json").exists() {
        return Err(ServeError::NotOurs { folder });
    }
    let proxy = proxy_path(variables)?;
    let mut changed = install_program(&proxy).map_err(|source| ServeError::Install {
        path: proxy.clone(),
        source,
    })?;
    let mut files: Vec<(&str, Vec<u8>)> = LOGOS
        .iter()
        .map(|(name, bytes)| (*name, bytes.to_vec()))
        .collect();
    // Last, so that a front end that looks meanwhile sees nothing or all.
    files.push(("kernel.json", kernel_json(&proxy)));
    for (name, content) in files {
        let path = folder.join(name);
        changed |=
            install_file(&path, &content).map_err(|source| ServeError::Install { path, source })?;
    }
    Ok(Served {
        folder,
        proxy,
        changed,
    })
}

/// Removes the spec; at the user's level also the program. Returns what was removed.
pub fn unserve(level: &Level, variables: &dyn Variables) -> Result<Vec<PathBuf>, ServeError> {
    let folder = folder(level, variables)?;
    let mut removed = Vec::new();
    let cannot = |path: &Path, source| ServeError::Remove {
        path: path.to_owned(),
        source,
    };
    if folder.exists() {
        if !ours(&folder) && folder.join("kernel.json").exists() {
            return Err(ServeError::NotOurs { folder });
        }
        std::fs::remove_dir_all(&folder).map_err(|source| cannot(&folder, source))?;
        removed.push(folder);
    }
    let proxy = proxy_path(variables)?;
    if *level == Level::User && proxy.exists() {
        std::fs::remove_file(&proxy).map_err(|source| cannot(&proxy, source))?;
        removed.push(proxy);
    }
    Ok(removed)
}

/// Looks whether the spec at a level works and is up to date.
pub fn health(level: &Level, variables: &dyn Variables) -> Result<Health, ServeError> {
    let folder = folder(level, variables)?;
    let path = folder.join("kernel.json");
    let Ok(found) = std::fs::read(&path) else {
        return Ok(Health::Missing);
    };
    let proxy = proxy_path(variables)?;
    let stale = |why: String| Ok(Health::Stale(why));
    if !ours(&folder) {
        return stale(format!("{} is not nb's", path.display()));
    }
    if !proxy.is_file() {
        return stale(format!("{} is gone", proxy.display()));
    }
    if found != kernel_json(&proxy) {
        return stale(format!("{} is of another version", path.display()));
    }
    match differs(&proxy) {
        Ok(false) => Ok(Health::Good),
        Ok(true) => stale(format!(
            "{} is another version than this nb",
            proxy.display()
        )),
        Err(error) => stale(format!("{} cannot be read: {error}", proxy.display())),
    }
}

/// Returns the program that installed specs start.
pub fn proxy_path(variables: &dyn Variables) -> Result<PathBuf, NoHome> {
    Ok(own_data_dir(variables)?.join("bin").join(PROXY))
}

fn folder(level: &Level, variables: &dyn Variables) -> Result<PathBuf, NoHome> {
    let data = match level {
        Level::User => JupyterPaths::new(variables)?.data_dir,
        Level::Prefix(prefix) => std::path::absolute(prefix)
            .unwrap_or_else(|_| prefix.clone())
            .join("share/jupyter"),
    };
    Ok(data.join("kernels").join(spec::SHARED))
}

/// Says whether the folder may be written: a file that is no spec at all serves nobody.
fn ours(folder: &Path) -> bool {
    match spec::read(folder) {
        Ok(spec) => spec::is_proxy(&spec),
        Err(error) => matches!(error, SpecError::Damaged { .. }),
    }
}

/// Returns the spec's text: the template with the program in the place of its first argument.
fn kernel_json(proxy: &Path) -> Vec<u8> {
    let mut spec: Value = serde_json::from_str(TEMPLATE).expect("the template is JSON");
    spec["argv"][0] = Value::String(proxy.to_string_lossy().into_owned());
    let mut text = serde_json::to_vec_pretty(&spec).expect("a JSON value can be written");
    text.push(b'\n');
    text
}

fn install_file(path: &Path, content: &[u8]) -> io::Result<bool> {
    if std::fs::read(path).is_ok_and(|found| found == content) {
        return Ok(false);
    }
    let mut staged = staged(path, 0o644)?;
    staged.write_all(content)?;
    staged.persist(path).map_err(|error| error.error)?;
    Ok(true)
}

/// Copies this program to `path` unless it is there already.
fn install_program(path: &Path) -> io::Result<bool> {
    if !differs(path).unwrap_or(true) {
        return Ok(false);
    }
    let mut own = File::open(own_program()?)?;
    let mut staged = staged(path, 0o755)?;
    io::copy(&mut own, staged.as_file_mut())?;
    staged.as_file().set_modified(own.metadata()?.modified()?)?;
    staged.as_file().sync_all()?;
    // A front end may be running the old one: it keeps it, the path names the new one.
    staged.persist(path).map_err(|error| error.error)?;
    Ok(true)
}

fn staged(path: &Path, mode: u32) -> io::Result<tempfile::NamedTempFile> {
    let folder = path
        .parent()
        .ok_or_else(|| io::Error::other("it has no folder"))?;
    std::fs::create_dir_all(folder)?;
    let staged = tempfile::Builder::new()
        .prefix(".nb-")
        .tempfile_in(folder)?;
    staged
        .as_file()
        .set_permissions(std::fs::Permissions::from_mode(mode))?;
    Ok(staged)
}

/// Says whether the program at `path` is another than this one.
///
/// The copy carries the original's time, so that mostly two looks suffice.
fn differs(path: &Path) -> io::Result<bool> {
    let own_path: OsString = own_program()?;
    let (mut own, mut copy) = (File::open(own_path)?, File::open(path)?);
    let (one, two) = (own.metadata()?, copy.metadata()?);
    if one.len() != two.len() || two.permissions().mode() & 0o111 == 0 {
        return Ok(true);
    }
    if one.modified()? == two.modified()? {
        return Ok(false);
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    own.read_to_end(&mut left)?;
    copy.read_to_end(&mut right)?;
    Ok(left != right)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn serving_twice_changes_nothing_and_a_lost_program_is_mended() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let level = Level::User;
        assert_eq!(health(&level, &variables).unwrap(), Health::Missing);
        let served = serve(&level, &variables).unwrap();
        assert!(served.changed);
        assert!(!serve(&level, &variables).unwrap().changed);
        assert_eq!(health(&level, &variables).unwrap(), Health::Good);

        let spec: Value =
            serde_json::from_slice(&std::fs::read(served.folder.join("kernel.json")).unwrap())
                .unwrap();
        let argv = [served.proxy.to_str().unwrap(), "-f", "{connection_file}"];
        assert_eq!(spec["argv"], serde_json::json!(argv));
        assert_eq!(spec["language"], "python");
        assert_eq!(spec["interrupt_mode"], "message");

        std::fs::remove_file(&served.proxy).unwrap();
        assert!(matches!(
            health(&level, &variables).unwrap(),
            Health::Stale(_)
        ));
        assert!(serve(&level, &variables).unwrap().changed);
        std::fs::write(&served.proxy, "older").unwrap();
        assert!(matches!(
            health(&level, &variables).unwrap(),
            Health::Stale(_)
        ));
        assert!(serve(&level, &variables).unwrap().changed);

        assert_eq!(
            unserve(&level, &variables).unwrap(),
            [served.folder, served.proxy]
        );
        assert!(unserve(&level, &variables).unwrap().is_empty());
    }

    #[test]
    fn another_programs_spec_is_left_alone() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let level = Level::Prefix(temp.path().join("env"));
        let folder = temp.path().join("env/share/jupyter/kernels/nb-shared");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("kernel.json"), r#"{"argv":["other"]}"#).unwrap();
        assert!(matches!(
            serve(&level, &variables),
            Err(ServeError::NotOurs { .. })
        ));
        assert!(matches!(
            unserve(&level, &variables),
            Err(ServeError::NotOurs { .. })
        ));
    }
}

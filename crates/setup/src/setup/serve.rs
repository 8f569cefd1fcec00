//! The kernelspecs "nb shared kernel", by which front ends find `nb-proxy`; one for each language.
//!
//! VS Code recognises a kernel by its spec's argv, so that must never change: it names a copy of
//! `nb-proxy` in `nb`'s own data folder, never one in a build folder or an environment.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::program::{
    has_chat, install_file, install_proxy, is_outdated, link_own, link_path, proxy_path,
};
use crate::kernel::spec::jupyter_paths::JupyterPaths;
use crate::kernel::spec::prefix::prefix_in_use;
use crate::kernel::spec::{self, SpecError};
use crate::kernel::variables::{NoHome, Variables, own_data_dir};

const TEMPLATE: &str = include_str!("../../../../kernelspec/kernel.json");

const LOGOS: [(&str, &[u8]); 3] = [
    (
        "logo-32x32.png",
        include_bytes!("../../../../kernelspec/logo-32x32.png"),
    ),
    (
        "logo-64x64.png",
        include_bytes!("../../../../kernelspec/logo-64x64.png"),
    ),
    (
        "logo-svg.svg",
        include_bytes!("../../../../kernelspec/logo-svg.svg"),
    ),
];

/// The place where kernelspecs are installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// For this user: every front end finds them.
    #[default]
    User,
    /// For the users of an environment: `<prefix>/share/jupyter`.
    Prefix(PathBuf),
    /// In a project's private folder, which front ends search if `JUPYTER_PATH` names it.
    Project(PathBuf),
}

/// Returns the line for a project's `.env` that makes VS Code find the project's kernelspecs. VS Code
/// reads this file from a workspace's folder, and searches the folders in its `JUPYTER_PATH`.
pub fn env_line(nb_folder: &Path) -> String {
    let folder = nb_folder.join("jupyter");
    let folder = folder.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "/._-+@,:~".contains(c);
    // A space or certain other characters would end the value.
    match folder.chars().all(plain) {
        true => format!("JUPYTER_PATH={folder}"),
        false => format!("JUPYTER_PATH=\"{folder}\""),
    }
}

/// Why a spec could not be installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There is no home folder.
    #[error(transparent)]
    NoHome(#[from] NoHome),
    /// A file could not be written.
    #[error("cannot install {}", path.display())]
    Install {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file could not be removed.
    #[error("cannot remove {}", path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The folder holds another program's spec.
    #[error("{} is a kernelspec of another program", folder.display())]
    NotOurs {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder belongs to a package.
    #[error("{} belongs to the Python package nb-proxy, whose removal removes it", folder.display())]
    Packaged {
        /// The folder.
        folder: PathBuf,
    },
}

/// The installed spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The spec's folder.
    pub folder: PathBuf,
    /// The name that people see.
    pub display_name: String,
    /// The program that it starts.
    pub proxy: PathBuf,
    /// Whether anything had to be written.
    pub changed: bool,
}

impl Served {
    /// Returns the spec's id in VS Code's Jupyter extension, as its `getKernelId` makes it (2026.6): name, program,
    /// interpreter, arguments. A kernelspec of `nb` has no interpreter, which is written as "/". The extension itself tells ids
    /// to publishers that it knows only.
    pub fn vscode_id(&self, language: &str) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        let (name, proxy) = (name.to_string_lossy(), self.proxy.to_string_lossy());
        let words = match language.eq_ignore_ascii_case("python") {
            true => String::new(),
            false => format!("{proxy}#-f#{{connection_file}}").to_lowercase(),
        };
        format!(".{name}.{proxy}./.{words}")
    }
}

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unserved {
    /// The folders and files that were removed.
    pub removed: Vec<PathBuf>,
    /// The remaining kernelspecs that start the program, which therefore stays.
    pub used_by: Vec<PathBuf>,
}

/// What is known of the installed specs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum Health {
    /// They are there and their program is this one.
    Good,
    /// There is none.
    Missing,
    /// One would not work, or starts an older program.
    Stale {
        /// Why.
        why: String,
    },
}

/// Installs the kernelspec for a language, and the program that it starts. Does nothing if both are
/// up to date, or a package has installed them; installed kernelspecs of other languages are updated.
pub fn serve(
    level: &Level,
    language: &str,
    variables: &dyn Variables,
) -> Result<Served, ServeError> {
    let kernels = kernels_dir(level, variables)?;
    let folder = kernels.join(spec::shared_name(language));
    if let Some(proxy) = packaged(&folder) {
        return Ok(Served {
            folder,
            display_name: spec::shared_display_name(language),
            proxy,
            changed: false,
        });
    }
    if !is_own_spec(&folder) && folder.join("kernel.json").exists() {
        return Err(ServeError::NotOurs { folder });
    }
    let proxy = proxy_path(variables)?;
    let mut changed = install_proxy(&proxy).map_err(|source| ServeError::Install {
        path: proxy.clone(),
        source,
    })?;
    make_link(variables)?;
    let installed = installed(&kernels).into_iter();
    let others = installed.filter(|(other, _)| *other != folder);
    let requested = [(folder.clone(), language.to_owned())];
    for (folder, language) in others.chain(requested) {
        changed |= install_spec(&folder, &kernel_json(&proxy, &language))?;
    }
    record_level(level, kernels, variables)?;
    Ok(Served {
        folder,
        display_name: spec::shared_display_name(language),
        proxy,
        changed,
    })
}

/// Makes the link by which installed kernelspecs find `nb`.
pub(super) fn make_link(variables: &dyn Variables) -> Result<PathBuf, ServeError> {
    let path = link_path(variables)?;
    match link_own(&path) {
        Ok(()) => Ok(path),
        Err(source) => Err(ServeError::Install { path, source }),
    }
}

/// Removes the link to `nb` if no known kernelspec needs it any more; returns its path if it was removed.
pub(super) fn remove_unused_link(variables: &dyn Variables) -> Result<Option<PathBuf>, ServeError> {
    let user = kernels_dir(&Level::User, variables)?;
    let mut folders = other_folders(variables)?.into_iter().chain([user]);
    if proxy_path(variables)?.exists() || folders.any(|kernels| has_chat(&kernels)) {
        return Ok(None);
    }
    let path = link_path(variables)?;
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(Some(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ServeError::Remove { path, source }),
    }
}

/// Writes the files of a kernelspec that are not up to date; returns whether there were any.
pub(super) fn install_spec(folder: &Path, kernel_json: &[u8]) -> Result<bool, ServeError> {
    // The last file, so that a front end sees either no kernelspec or a complete one.
    let files = LOGOS.into_iter().chain([("kernel.json", kernel_json)]);
    let mut changed = false;
    for (name, content) in files {
        let path = folder.join(name);
        let installed = install_file(&path, content);
        changed |= installed.map_err(|source| ServeError::Install { path, source })?;
    }
    Ok(changed)
}

/// Notes the folder of a level that is not the user's own: what is installed there uses the programs in the user's
/// data folder.
pub(super) fn record_level(
    level: &Level,
    kernels: PathBuf,
    variables: &dyn Variables,
) -> Result<(), ServeError> {
    let mut other_folders = other_folders(variables)?;
    if *level == Level::User || other_folders.contains(&kernels) {
        return Ok(());
    }
    other_folders.push(kernels);
    record_other_folders(&other_folders, variables)
}

/// Removes the kernelspecs of a level, for all languages, and the program if no known kernelspec
/// starts it any more.
pub fn unserve(level: &Level, variables: &dyn Variables) -> Result<Unserved, ServeError> {
    let kernels = kernels_dir(level, variables)?;
    let mut removed = Vec::new();
    let cannot = |path: &Path, source| ServeError::Remove {
        path: path.to_owned(),
        source,
    };
    let folder = kernels.join(spec::SHARED);
    if packaged(&folder).is_some() {
        return Err(ServeError::Packaged { folder });
    }
    if folder.join("kernel.json").exists() && !is_own_spec(&folder) {
        return Err(ServeError::NotOurs { folder });
    }
    for (folder, _) in installed(&kernels) {
        std::fs::remove_dir_all(&folder).map_err(|source| cannot(&folder, source))?;
        removed.push(folder);
    }
    let recorded = other_folders(variables)?;
    let mut used_by = recorded.clone();
    let mut existing = recorded.clone();
    existing.retain(|other| !installed(other).is_empty() || has_chat(other));
    if existing != recorded {
        record_other_folders(&existing, variables)?;
    }
    used_by.retain(|other| *other != kernels && !installed(other).is_empty());
    let for_user = installed(&kernels_dir(&Level::User, variables)?);
    let proxy = proxy_path(variables)?;
    if used_by.is_empty() && for_user.is_empty() && proxy.exists() {
        std::fs::remove_file(&proxy).map_err(|source| cannot(&proxy, source))?;
        removed.push(proxy);
    }
    removed.extend(remove_unused_link(variables)?);
    Ok(Unserved { removed, used_by })
}

/// Checks whether the kernelspecs at a level work and are up to date.
pub fn health(level: &Level, variables: &dyn Variables) -> Result<Health, ServeError> {
    let kernels = kernels_dir(level, variables)?;
    let python = kernels.join(spec::SHARED);
    let mut specs = installed(&kernels);
    // Another program's kernelspec with this name has to be reported.
    if python.join("kernel.json").exists() && !specs.iter().any(|(folder, _)| *folder == python) {
        specs.push((python, String::new()));
    }
    for (folder, language) in &specs {
        let health = health_of(folder, language, variables)?;
        if health != Health::Good {
            return Ok(health);
        }
    }
    Ok(match specs.is_empty() {
        true => Health::Missing,
        false => Health::Good,
    })
}

/// Checks whether the user's kernelspec for a language works and is up to date.
pub fn health_for(language: &str, variables: &dyn Variables) -> Result<Health, ServeError> {
    let folder = kernels_dir(&Level::User, variables)?.join(spec::shared_name(language));
    match health_of(&folder, language, variables)? {
        Health::Good => health(&Level::User, variables),
        other => Ok(other),
    }
}

fn health_of(
    folder: &Path,
    language: &str,
    variables: &dyn Variables,
) -> Result<Health, ServeError> {
    let path = folder.join("kernel.json");
    let Ok(content) = std::fs::read(&path) else {
        return Ok(Health::Missing);
    };
    if packaged(folder).is_some() {
        return Ok(Health::Good);
    }
    let proxy = proxy_path(variables)?;
    let stale = |why: String| Ok(Health::Stale { why });
    if !is_own_spec(folder) {
        return stale(format!("{} is not nb's", path.display()));
    }
    if !proxy.is_file() {
        return stale(format!("{} is gone", proxy.display()));
    }
    if content != kernel_json(&proxy, language) {
        return stale(format!("{} is of another version", path.display()));
    }
    match is_outdated(&proxy) {
        Ok(false) => Ok(Health::Good),
        Ok(true) => stale(format!(
            "{} is another version than this nb",
            proxy.display()
        )),
        Err(error) => stale(format!("{} cannot be read: {error}", proxy.display())),
    }
}

/// Returns the spelling of a language in an installed kernel's spec, and whether such a kernel is
/// installed.
pub fn spelled(language: &str, variables: &dyn Variables) -> (String, bool) {
    // No notebook is involved: the specs of an active environment and of `PATH` count.
    let prefix = prefix_in_use(Path::new("/"), variables);
    let folders = JupyterPaths::new(variables).map(|it| it.spec_folders(prefix.as_ref()));
    let specs = spec::list(&folders.unwrap_or_default()).into_iter();
    let mut languages = specs.map(|spec| spec.language);
    match languages.find(|spelling| spelling.eq_ignore_ascii_case(language)) {
        Some(spelling) => (spelling, true),
        None => (language.to_owned(), spec::is_python(language)),
    }
}

/// Returns the folder of the kernelspecs of a level.
pub fn kernels_dir(level: &Level, variables: &dyn Variables) -> Result<PathBuf, NoHome> {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let data = match level {
        Level::User => JupyterPaths::new(variables)?.data_dir,
        Level::Prefix(prefix) => absolute(prefix).join("share/jupyter"),
        Level::Project(dir) => absolute(dir).join("jupyter"),
    };
    Ok(data.join("kernels"))
}

/// Returns nb's kernelspecs in a folder, with their languages; a damaged one with nb's name counts
/// as nb's.
fn installed(kernels: &Path) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(kernels).into_iter().flatten().flatten();
    let mut specs: Vec<_> = entries
        .filter(|entry| spec::is_shared_name(&entry.file_name().to_string_lossy()))
        .map(|entry| entry.path())
        .filter(|folder| folder.join("kernel.json").exists() && is_own_spec(folder))
        .map(|folder| {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            let suffix = name.get(spec::SHARED.len() + 1..).unwrap_or("python");
            let language = spec::read(&folder).map_or(suffix.to_owned(), |spec| spec.language);
            (folder, language)
        })
        .collect();
    specs.sort();
    specs
}

/// Says whether a kernelspec's folder may be overwritten: it is nb's and no package's, or its file is damaged
/// and of no use.
fn is_own_spec(folder: &Path) -> bool {
    match spec::read(folder) {
        Ok(spec) => spec::starts_proxy(&spec) && packaged(folder).is_none(),
        Err(error) => matches!(error, SpecError::Damaged { .. }),
    }
}

/// Returns the program of a kernelspec that the Python package has installed, if the program exists. Such a
/// folder is left to the package: what the package installs again would change the arguments back.
fn packaged(folder: &Path) -> Option<PathBuf> {
    let proxy = spec::packaged_proxy(&spec::read(folder).ok()?)?;
    proxy.is_file().then_some(proxy)
}

/// Returns the folders of kernelspecs that were installed for an environment or a project.
///
/// All kernelspecs start the one program in `nb`'s own data folder, which must not be removed
/// before them.
pub(super) fn other_folders(variables: &dyn Variables) -> Result<Vec<PathBuf>, NoHome> {
    let text = std::fs::read(own_data_dir(variables)?.join(OTHER_FOLDERS)).ok();
    Ok(text
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default())
}

fn record_other_folders(folders: &[PathBuf], variables: &dyn Variables) -> Result<(), ServeError> {
    let path = own_data_dir(variables)?.join(OTHER_FOLDERS);
    let result = if folders.is_empty() {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    } else {
        let text = serde_json::to_vec(folders).map_err(io::Error::from);
        text.and_then(|text| install_file(&path, &text)).map(drop)
    };
    result.map_err(|source| ServeError::Install { path, source })
}

/// The file with the list of [`other_folders`], in `nb`'s own data folder.
const OTHER_FOLDERS: &str = "served.json";

/// Returns the content of `kernel.json`: the template with the program as its first argument.
///
/// The arguments are the same for all languages, since VS Code recognises a kernel by them.
fn kernel_json(proxy: &Path, language: &str) -> Vec<u8> {
    let mut spec: Value = serde_json::from_str(TEMPLATE).expect("the template is JSON");
    spec["argv"][0] = Value::String(proxy.to_string_lossy().into_owned());
    if !spec::is_python(language) {
        spec["display_name"] = spec::shared_display_name(language).into();
        spec["language"] = language.into();
        // Of another language's kernels it is not known.
        spec["metadata"] = serde_json::json!({});
        spec["env"] = serde_json::json!({ "NB_LANGUAGE": language });
    }
    let mut text = serde_json::to_vec_pretty(&spec).expect("a JSON value can be written");
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_id_in_vs_code_is_made_of_what_the_spec_has() {
        let served = |name: &str, proxy: &str| Served {
            folder: Path::new("/k").join(name),
            display_name: String::new(),
            proxy: proxy.into(),
            changed: false,
        };
        let id = served("nb-shared", "/d/nb-proxy").vscode_id("python");
        assert_eq!(id, ".nb-shared./d/nb-proxy./.");
        let id = served("nb-shared-r", "/D/nb-proxy").vscode_id("R");
        let expected = ".nb-shared-r./D/nb-proxy././d/nb-proxy#-f#{connection_file}";
        assert_eq!(id, expected);
    }

    #[test]
    fn serving_twice_changes_nothing_and_a_lost_program_is_mended() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let level = Level::User;
        assert_eq!(health(&level, &variables).unwrap(), Health::Missing);
        let served = serve(&level, "python", &variables).unwrap();
        assert!(served.changed);
        assert!(!serve(&level, "python", &variables).unwrap().changed);
        assert_eq!(health(&level, &variables).unwrap(), Health::Good);

        let spec: Value =
            serde_json::from_slice(&std::fs::read(served.folder.join("kernel.json")).unwrap())
                .unwrap();
        let argv = [served.proxy.to_str().unwrap(), "-f", "{connection_file}"];
        assert_eq!(spec["argv"], serde_json::json!(argv));
        assert_eq!(spec["language"], "python");
        assert_eq!(spec["interrupt_mode"], "message");
        // JupyterLab's debugger looks at nothing else.
        assert_eq!(spec["metadata"]["debugger"], true);

        std::fs::remove_file(&served.proxy).unwrap();
        assert!(matches!(
            health(&level, &variables).unwrap(),
            Health::Stale { .. }
        ));
        assert!(serve(&level, "python", &variables).unwrap().changed);
        std::fs::write(&served.proxy, "older").unwrap();
        assert!(matches!(
            health(&level, &variables).unwrap(),
            Health::Stale { .. }
        ));
        assert!(serve(&level, "python", &variables).unwrap().changed);

        let unserved = unserve(&level, &variables).unwrap();
        let link = served.proxy.with_file_name("nb");
        assert_eq!(unserved.removed, [served.folder, served.proxy, link]);
        assert_eq!(unserve(&level, &variables).unwrap(), Unserved::default());
    }

    #[test]
    fn each_language_has_its_spec_with_the_same_arguments() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let level = Level::User;
        let r = serve(&level, "R", &variables).unwrap();
        assert!(r.folder.ends_with("nb-shared-r"));
        assert_eq!(health(&level, &variables).unwrap(), Health::Good);
        let missing = health_for("python", &variables).unwrap();
        assert_eq!(missing, Health::Missing);
        let python = serve(&level, "python", &variables).unwrap();
        let spec = |served: &Served| -> Value {
            let text = std::fs::read(served.folder.join("kernel.json")).unwrap();
            serde_json::from_slice(&text).unwrap()
        };
        assert_eq!(spec(&r)["argv"], spec(&python)["argv"]);
        assert_eq!(spec(&r)["display_name"], "nb shared kernel (R)");
        assert_eq!(spec(&r)["language"], "R");
        assert_eq!(spec(&r)["env"]["NB_LANGUAGE"], "R");
        assert_eq!(spec(&python)["env"], Value::Null);

        // A kernelspec that is out of date is updated with the others.
        let mut older = spec(&r);
        older["display_name"] = "older".into();
        std::fs::write(r.folder.join("kernel.json"), older.to_string()).unwrap();
        let stale = health_for("python", &variables).unwrap();
        assert!(matches!(stale, Health::Stale { .. }), "{stale:?}");
        assert!(serve(&level, "python", &variables).unwrap().changed);
        assert!(!serve(&level, "R", &variables).unwrap().changed);
        let unserved = unserve(&level, &variables).unwrap();
        let link = r.proxy.with_file_name("nb");
        assert_eq!(unserved.removed, [python.folder, r.folder, r.proxy, link]);
    }

    #[test]
    fn the_program_stays_while_a_spec_elsewhere_starts_it() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let prefix = Level::Prefix(temp.path().join("env"));
        let project = Level::Project(temp.path().join("work/.nb"));
        for level in [&Level::User, &prefix, &project, &prefix] {
            serve(level, "python", &variables).unwrap();
        }
        let unserved = unserve(&Level::User, &variables).unwrap();
        assert_eq!(unserved.used_by.len(), 2);
        assert!(proxy_path(&variables).unwrap().exists());
        // A kernelspec that was deleted with its environment does not count.
        std::fs::remove_dir_all(temp.path().join("env")).unwrap();
        let unserved = unserve(&project, &variables).unwrap();
        assert!(unserved.used_by.is_empty());
        assert_eq!(unserved.removed.len(), 3);
        assert!(!proxy_path(&variables).unwrap().exists());
    }

    #[test]
    fn of_two_versions_the_later_program_stays() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let served = serve(&Level::User, "python", &variables).unwrap();
        // Written by another process: this one's file may still be open in a child that another test starts.
        let put = |version: &str| {
            let script = format!("#!/bin/sh\necho 'nb-proxy {version} (x)'\n");
            let written = std::process::Command::new("sh")
                .args([
                    "-c",
                    "rm \"$0\"; printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"",
                ])
                .args([served.proxy.as_os_str(), script.as_ref()])
                .status();
            assert!(written.unwrap().success());
        };
        put("99.0.0");
        assert_eq!(health(&Level::User, &variables).unwrap(), Health::Good);
        assert!(!serve(&Level::User, "python", &variables).unwrap().changed);
        put("0.0.9");
        let stale = health(&Level::User, &variables).unwrap();
        assert!(matches!(stale, Health::Stale { .. }), "{stale:?}");
        assert!(serve(&Level::User, "python", &variables).unwrap().changed);
    }

    #[test]
    fn the_spec_of_a_package_is_left_to_the_package() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let level = Level::Prefix(temp.path().join("env"));
        let folder = temp.path().join("env/share/jupyter/kernels/nb-shared");
        let program = temp.path().join("env/bin/nb-proxy");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        let text = include_str!(
            "../../../../kernelspec/wheel/data/share/jupyter/kernels/nb-shared/kernel.json"
        );
        std::fs::write(folder.join("kernel.json"), text).unwrap();
        std::fs::write(&program, "").unwrap();
        let served = serve(&level, "python", &variables).unwrap();
        assert_eq!((served.proxy, served.changed), (program.clone(), false));
        assert_eq!(health(&level, &variables).unwrap(), Health::Good);
        assert!(matches!(
            unserve(&level, &variables),
            Err(ServeError::Packaged { .. })
        ));
        // Another language's kernelspec beside it is nb's own.
        assert!(serve(&level, "R", &variables).unwrap().changed);
        let now = std::fs::read_to_string(folder.join("kernel.json")).unwrap();
        assert_eq!(now, text);
        // What a removed package has left behind is replaced.
        std::fs::remove_file(&program).unwrap();
        assert!(serve(&level, "python", &variables).unwrap().changed);
        assert_eq!(unserve(&level, &variables).unwrap().removed.len(), 4);
    }

    #[test]
    fn the_specs_of_packages_differ_from_this_one_in_their_command_alone() {
        let spec = |text: &str| -> Value {
            let mut spec: Value = serde_json::from_str(text).unwrap();
            let argv = spec["argv"].take();
            let rest = argv.as_array().unwrap().iter().rev().take(2).rev();
            assert!(rest.eq(["-f", "{connection_file}"].iter()));
            spec
        };
        for text in [
            include_str!(
                "../../../../kernelspec/wheel/data/share/jupyter/kernels/nb-shared/kernel.json"
            ),
            include_str!("../../../../kernelspec/deb/kernel.json"),
        ] {
            assert_eq!(spec(text), spec(TEMPLATE));
        }
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
            serve(&level, "python", &variables),
            Err(ServeError::NotOurs { .. })
        ));
        assert!(matches!(
            unserve(&level, &variables),
            Err(ServeError::NotOurs { .. })
        ));
    }
}

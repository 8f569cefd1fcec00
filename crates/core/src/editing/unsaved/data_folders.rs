//! The user data folders of VS Code and of the editors based on it.

use std::path::{Path, PathBuf};

use crate::kernel::variables::Variables;

/// How many subfolders of a folder are read at most.
const MOST_ENTRIES: usize = 1_000;

/// A folder of backups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DataFolder {
    /// The folder, which has a subfolder for each workspace.
    pub folder: PathBuf,
    /// The scheme of the URIs of this machine's files in it.
    pub scheme: &'static str,
}

/// Returns the folders of backups that exist.
///
/// The desktop's VS Code, its Insiders' version, VSCodium, Cursor, Windsurf and so on each have a
/// folder with their product's name in the folder for settings; those with a `Backups` count.
pub(super) fn of_user(variables: &dyn Variables) -> Vec<DataFolder> {
    let home = variables.path("HOME");
    let in_home = |name: &str| home.as_ref().map(|home| home.join(name));
    let mut settings: Vec<PathBuf> = Vec::new();
    settings.extend(variables.path("VSCODE_APPDATA"));
    if cfg!(target_os = "macos") {
        settings.extend(in_home("Library/Application Support"));
    } else {
        // An editor that was started from a dock does not have a shell's variables.
        settings.extend(variables.path("XDG_CONFIG_HOME"));
        settings.extend(in_home(".config"));
        let packages = in_home(".var/app").map(|apps| folders(&apps));
        let packages = packages.into_iter().flatten();
        settings.extend(packages.map(|package| package.join("config")));
    }
    settings.dedup();
    let portable = variables
        .path("VSCODE_PORTABLE")
        .map(|folder| folder.join("user-data"));
    let products = settings.iter().flat_map(|folder| folders(folder));
    let desktop = portable.into_iter().chain(products).map(|data| DataFolder {
        folder: data.join("Backups"),
        scheme: "file",
    });
    // Among the servers for browsers, only this one stores backups on the server; the others store
    // them in the browser.
    let data = variables
        .path("XDG_DATA_HOME")
        .or_else(|| in_home(".local/share"));
    let server = data.map(|data| DataFolder {
        folder: data.join("code-server/User/Backups"),
        scheme: "vscode-remote",
    });
    let all = desktop.chain(server);
    all.filter(|data_folder| data_folder.folder.is_dir())
        .collect()
}

/// Returns the user settings files of those editors.
pub(super) fn settings(variables: &dyn Variables) -> Vec<PathBuf> {
    let folders_of_data = of_user(variables).into_iter();
    let files = folders_of_data.filter_map(|data_folder| {
        let data = data_folder.folder.parent()?;
        let user = match data.ends_with("User") {
            true => data.to_owned(),
            false => data.join("User"),
        };
        Some(user.join("settings.json"))
    });
    files.collect()
}

/// Returns whether an editor with these settings does not save automatically, which is VS Code's default.
pub(super) fn saves_nothing(settings: &str) -> bool {
    let lines = settings.lines().map(str::trim_start);
    let mut lines = lines.filter(|line| !line.starts_with("//"));
    let value = lines.find_map(|line| line.split_once("\"files.autoSave\""));
    value.is_none_or(|(_, value)| value.contains("\"off\""))
}

/// Returns the folders in a folder.
pub(super) fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.take(MOST_ENTRIES).map(|entry| entry.path());
    paths.filter(|path| path.is_dir()).collect()
}

/// Returns the reason why a VS Code whose kernels run here may store its backups on another
/// machine.
pub(super) fn elsewhere(
    variables: &dyn Variables,
    is_file: &dyn Fn(&str) -> bool,
) -> Option<&'static str> {
    let has = |names: &[&str]| names.iter().any(|name| variables.get(name).is_some());
    if has(&["REMOTE_CONTAINERS", "CODESPACES"])
        || is_file("/.dockerenv")
        || is_file("/run/.containerenv")
    {
        Some("this is a container")
    } else if has(&["WSL_DISTRO_NAME"]) {
        Some("this is WSL")
    } else if has(&["SSH_CONNECTION", "SSH_CLIENT"]) {
        Some("this is an SSH session")
    } else if has(&["VSCODE_IPC_HOOK_CLI"]) {
        // Only terminals of VS Code's server have this.
        Some("VS Code runs elsewhere")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn every_product_with_backups_is_found() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path();
        let settings = match cfg!(target_os = "macos") {
            true => "Library/Application Support",
            false => ".config",
        };
        for product in ["Code", "Cursor"] {
            let backups = home.join(settings).join(product).join("Backups");
            std::fs::create_dir_all(backups).unwrap();
        }
        for other in ["portable/user-data/Backups", ".config/git"] {
            std::fs::create_dir_all(home.join(other)).unwrap();
        }
        let server = home.join(".local/share/code-server/User/Backups");
        std::fs::create_dir_all(server).unwrap();
        let (text, portable) = (home.to_str().unwrap(), home.join("portable"));
        let variables = HashMap::from([
            ("HOME", text),
            ("VSCODE_PORTABLE", portable.to_str().unwrap()),
        ]);
        let found = of_user(&variables);
        let mut found: Vec<_> = found
            .iter()
            .map(|data_folder| {
                let folder = data_folder.folder.strip_prefix(home).unwrap();
                (folder.to_str().unwrap(), data_folder.scheme)
            })
            .collect();
        found.sort_unstable();
        let code = format!("{settings}/Code/Backups");
        let cursor = format!("{settings}/Cursor/Backups");
        let mut expected = [
            (code.as_str(), "file"),
            (cursor.as_str(), "file"),
            ("portable/user-data/Backups", "file"),
            (".local/share/code-server/User/Backups", "vscode-remote"),
        ];
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_shell_on_another_machine_is_known() {
        let of = |name| elsewhere(&HashMap::from([(name, "x")]), &|_| false);
        assert_eq!(of("TERM"), None);
        assert_eq!(of("SSH_CONNECTION"), Some("this is an SSH session"));
        assert_eq!(of("CODESPACES"), Some("this is a container"));
        assert_eq!(of("VSCODE_IPC_HOOK_CLI"), Some("VS Code runs elsewhere"));
        let in_docker = elsewhere(&HashMap::new(), &|path| path == "/.dockerenv");
        assert_eq!(in_docker, Some("this is a container"));
    }

    #[test]
    fn an_editor_saves_by_itself_only_where_that_is_set() {
        assert!(saves_nothing(""));
        assert!(saves_nothing("{\n  \"files.autoSave\": \"off\",\n}"));
        assert!(saves_nothing(
            "{\n  // \"files.autoSave\": \"afterDelay\",\n}"
        ));
        assert!(!saves_nothing("{\n  \"files.autoSave\": \"afterDelay\"\n}"));
        let home = tempfile::tempdir().unwrap();
        let data = home.path().join(".config/Code");
        std::fs::create_dir_all(data.join("Backups")).unwrap();
        let home_text = home.path().to_str().unwrap();
        let variables = std::collections::HashMap::from([("HOME", home_text)]);
        assert_eq!(settings(&variables), [data.join("User/settings.json")]);
    }
}

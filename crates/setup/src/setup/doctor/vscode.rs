//! Checks whether nb's extension is in the editors of this machine that are made of VS Code's code, and works here.

use std::path::Path;

use super::Check;
use crate::kernel::process::Process;
use crate::kernel::variables::Variables;
use crate::project::Project;
use crate::setup::vscode_package::{ID, version};

/// The folders of extensions, in the home folder.
const FOLDERS: [&str; 7] = [
    ".vscode/extensions",
    ".vscode-insiders/extensions",
    ".vscode-oss/extensions",
    ".cursor/extensions",
    ".vscode-server/extensions",
    ".vscode-server-insiders/extensions",
    ".local/share/code-server/extensions",
];

const ABOUT: &str = "extension";

const INSTALLS: &str = "nb serve --vscode";

/// Checks each editor that has extensions; nothing where there is none.
pub(super) fn extension(notebook: &Path, variables: &dyn Variables) -> Vec<Check> {
    let Some(home) = variables.path("HOME") else {
        return Vec::new();
    };
    let folders = FOLDERS.iter().map(|folder| home.join(folder));
    let folders = folders.filter(|folder| folder.is_dir());
    folders.map(|folder| check(&folder, notebook)).collect()
}

fn check(folder: &Path, notebook: &Path) -> Check {
    let place = folder.display();
    let mut versions = versions(folder);
    if versions.iter().any(|it| it == version()) {
        let text = format!("{ID} {} in {place}; {}", version(), use_of(notebook));
        return Check::good(ABOUT, text);
    }
    versions.sort();
    match versions.pop() {
        Some(other) => {
            let text = format!(
                "{ID} in {place} is of version {other}, and this nb of {}",
                version()
            );
            Check::note(ABOUT, text, INSTALLS)
        }
        None => {
            let text = format!(
                "{ID} is not in {place}: what is typed in VS Code is known here once it is saved, and what others write comes to an unsaved tab once that is saved"
            );
            Check::note(ABOUT, text, INSTALLS)
        }
    }
}

/// Returns the versions of the extension that are in a folder.
fn versions(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let versions =
        names.filter_map(|name| Some(name.strip_prefix(ID)?.strip_prefix('-')?.to_owned()));
    versions.collect()
}

/// Says which notebooks of a notebook's project editors have open through it.
fn use_of(notebook: &Path) -> String {
    let project = Project::find(notebook);
    let mut open: Vec<String> = Vec::new();
    for editor in project.iter().flat_map(Project::live_editors) {
        if Process::is_live_editor(&editor) {
            open.extend(editor.notebooks.into_iter().map(|it| it.notebook));
        }
    }
    match open.is_empty() {
        true => "no window has a notebook of this folder open with it".to_owned(),
        false => format!("it has {} open", open.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::Verdict;
    use super::*;

    #[test]
    fn each_editor_is_named_with_the_version_of_its_extension() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().to_string_lossy().into_owned();
        let variables = HashMap::from([("HOME", home.as_str())]);
        let notebook = temp.path().join("t.ipynb");
        let checks = || extension(&notebook, &variables);
        assert_eq!(checks(), []);
        let make = |name: &str| std::fs::create_dir_all(temp.path().join(name)).unwrap();
        make(".vscode/extensions/other.extension-1.0.0");
        make(&format!(".vscode-server/extensions/{ID}-0.0.1"));
        let [desktop, server] = &checks()[..] else {
            panic!("{:?}", checks());
        };
        assert_eq!(
            (desktop.verdict, server.verdict),
            (Verdict::Note, Verdict::Note)
        );
        assert!(desktop.text.contains("is not in"), "{desktop:?}");
        assert!(server.text.contains("version 0.0.1"), "{server:?}");
        make(&format!(".vscode-server/extensions/{ID}-{}", version()));
        let server = &checks()[1];
        assert_eq!(server.verdict, Verdict::Good);
        assert!(
            server
                .text
                .ends_with("no window has a notebook of this folder open with it")
        );
    }
}

//! Which of the files that a notebook's cells name are on this machine and not on its kernel's server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use std::time::Duration;

use crate::editing::notebook_file::NotebookFile;
use crate::hint::shell::quote;
use crate::notebook::CellType;
use crate::project::{RemoteKernel, Session};
use crate::server::registry;
use crate::server::{ServerClient, ServerError, ServerKind};

/// How many files the server is asked for.
const FILES_MAX: usize = 20;

/// How long the server may take to answer for all of them.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns a note about the files that the notebook's cells name, that are here, and that the server does not have;
/// `None` if there are none, or it cannot be known. `key` is the notebook's path in its project, and `shown` as the user
/// has typed it.
pub async fn missing_on_server(session: &Session, key: &str, shown: &Path) -> Option<String> {
    let remote = session.as_remote()?;
    let notebook = session.notebook.clone();
    let named = tokio::task::spawn_blocking(move || files_of(&notebook));
    let named = named.await.ok().flatten()?;
    if named.is_empty() {
        return None;
    }
    let request = tokio::time::timeout(TIMEOUT, missing(remote, key, named));
    let (folder, missing) = request.await.ok()?.ok()?;
    let local_folder = shown.parent().unwrap_or(Path::new(""));
    note(&remote.server, &folder, local_folder, &missing)
}

/// Returns the note about files beneath a folder of this machine, and the commands that copy them.
fn note(
    server: &str,
    server_folder: &str,
    local_folder: &Path,
    missing: &[String],
) -> Option<String> {
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for path in missing {
        let (folder, _) = path.rsplit_once('/').unwrap_or_default();
        let files = groups.entry(folder).or_default();
        files.push(quote(&local_folder.join(path)));
    }
    let commands = groups.iter().map(|(folder, files)| {
        let folder = join(server_folder, folder);
        let slash = if folder.is_empty() { "" } else { "/" };
        let destination = format!("{server}:{folder}{slash}");
        format!(
            "nb cp {} {}",
            files.join(" "),
            quote(Path::new(&destination))
        )
    });
    let commands: Vec<_> = commands.collect();
    let finding = match missing {
        [] => return None,
        [file] => format!("cells name a file that {server} does not have: {file}"),
        files => format!(
            "cells name files that {server} does not have: {}",
            files.join(", ")
        ),
    };
    Some(format!("{finding}; to copy: {}", commands.join(" && ")))
}

/// Returns the path of a folder or file in a folder; either may be empty.
fn join(folder: &str, path: &str) -> String {
    match (folder, path) {
        ("", _) => path.to_owned(),
        (_, "") => folder.to_owned(),
        _ => format!("{folder}/{path}"),
    }
}

/// Returns the files beside a notebook that its code cells name.
fn files_of(notebook: &Path) -> Option<Vec<String>> {
    let document = NotebookFile::of(notebook).ok()?.read().ok()?;
    let folder = notebook.parent()?;
    let cells = document.cells().iter();
    let code = cells.filter(|cell| cell.cell_type() == CellType::Code);
    let mut named = BTreeSet::new();
    for cell in code {
        named.extend(relative_paths(&cell.source()).map(str::to_owned));
    }
    named.retain(|path| folder.join(path).is_file());
    Some(named.into_iter().take(FILES_MAX).collect())
}

/// Returns the texts in quotes that may be paths of files beneath a notebook's folder.
fn relative_paths(code: &str) -> impl Iterator<Item = &str> {
    let lines = code.lines().flat_map(|line| {
        let quoted = |quote: char| line.split(quote).skip(1).step_by(2);
        quoted('\'').chain(quoted('"'))
    });
    lines.filter(|text| {
        let parts = Path::new(text).components();
        !text.is_empty()
            && parts
                .into_iter()
                .all(|it| matches!(it, Component::Normal(_)))
    })
}

/// Returns the folder on the server in which the kernel began, and the files that are not in it.
async fn missing(
    remote: &RemoteKernel,
    key: &str,
    named: Vec<String>,
) -> Result<(String, Vec<String>), ServerError> {
    let client = ServerClient::open(registry::server(&remote.server)?).await?;
    if client.record().kind == ServerKind::Gateway {
        // It has no files.
        return Ok(Default::default());
    }
    // A server that does not have the notebook's folder starts the kernel in its own.
    let (folder, _) = key.rsplit_once('/').unwrap_or_default();
    let folder = match folder.is_empty() || client.entry(folder).await?.is_some() {
        true => folder,
        false => "",
    };
    let mut missing = Vec::new();
    for path in named {
        if client.entry(&join(folder, &path)).await?.is_none() {
            missing.push(path);
        }
    }
    Ok((folder.to_owned(), missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_path_is_found_in_quotes() {
        let code = "a = read_csv('data/a b.csv')\nopen(\"c.txt\"); x = '../up'; y = '/etc/passwd'; z = ''\n'open";
        let paths: Vec<_> = relative_paths(code).collect();
        assert_eq!(paths, ["data/a b.csv", "c.txt", "open"]);
    }

    #[test]
    fn the_commands_copy_files_into_their_folders() {
        let missing = ["a.csv", "b c.csv", "data/d.csv"].map(str::to_owned);
        let note_text = note("gpu", "", Path::new("work"), &missing).expect("a note");
        let expected = "cells name files that gpu does not have: a.csv, b c.csv, data/d.csv; to copy: \
            nb cp work/a.csv 'work/b c.csv' gpu: && nb cp work/data/d.csv gpu:data/";
        assert_eq!(note_text, expected);
        let note_text = note("gpu", "sub", Path::new(""), &missing[..1]).expect("a note");
        assert!(
            note_text.ends_with("does not have: a.csv; to copy: nb cp a.csv gpu:sub/"),
            "{note_text}"
        );
        assert_eq!(note("gpu", "", Path::new(""), &[]), None);
    }
}

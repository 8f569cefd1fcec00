//! The line in a project's `.env` by which VS Code finds the project's own kernelspecs.
//!
//! VS Code reads `.env` of the workspace's folder and looks for kernelspecs wherever its
//! `JUPYTER_PATH` says. What was done is remembered, so that exactly that can be undone.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::project::{Project, beneath};

/// What was found or done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The line was appended.
    Appended(String),
    /// It was there.
    There,
    /// There is one with another value, which is its user's to change.
    Other {
        /// The value that is there.
        found: String,
        /// What it should contain.
        wanted: PathBuf,
    },
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    file: PathBuf,
    /// What was appended, with a newline before it where the file's last line had none.
    text: String,
    made: bool,
}

/// Returns the project's `.env`.
pub fn file(project: &Project) -> PathBuf {
    project.root().join(".env")
}

/// Lets `.env` name the folder whose `kernels` holds the project's specs.
pub fn add(project: &Project) -> io::Result<Done> {
    let path = file(project);
    let wanted = folder(project);
    let (text, made) = match std::fs::read_to_string(&path) {
        Ok(text) => (text, false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (String::new(), true),
        Err(error) => return Err(error),
    };
    if let Some(found) = value(&text) {
        let has = std::env::split_paths(found).any(|entry| entry == wanted);
        let found = found.to_owned();
        return Ok(if has {
            Done::There
        } else {
            Done::Other { found, wanted }
        });
    }
    let line = line(&wanted);
    let newline = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let record = Record {
        file: path.clone(),
        text: format!("{newline}{line}\n"),
        made,
    };
    // Remembered first: what is undone without having been done changes nothing.
    project.make_folder("jupyter")?;
    beneath::replace(&record_file(project), &serde_json::to_vec(&record)?)?;
    let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
    file.write_all(record.text.as_bytes())?;
    Ok(Done::Appended(line))
}

/// Takes out of `.env` what [`add`] has put there; says whether that was still so.
pub fn remove(project: &Project) -> io::Result<bool> {
    let record_file = record_file(project);
    let Some(record) = beneath::read(&record_file, beneath::SMALL)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Record>(&bytes).ok())
    else {
        return Ok(false);
    };
    let undone = match std::fs::read_to_string(&record.file) {
        Ok(text) => match without(&text, &record.text) {
            Some(rest) if rest.is_empty() && record.made => {
                std::fs::remove_file(&record.file)?;
                true
            }
            Some(rest) => {
                // In place: the file stays whose it is, and whatever links to it.
                std::fs::write(&record.file, rest)?;
                true
            }
            None => false,
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    beneath::remove_file(&record_file)?;
    Ok(undone)
}

fn folder(project: &Project) -> PathBuf {
    project.dir().join("jupyter")
}

fn record_file(project: &Project) -> PathBuf {
    folder(project).join("dotenv.json")
}

/// Returns the value that the file gives to `JUPYTER_PATH`.
fn value(text: &str) -> Option<&str> {
    let mut lines = text.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
        let rest = line.strip_prefix("JUPYTER_PATH")?.trim_start();
        Some(rest.strip_prefix('=')?.trim().trim_matches(['"', '\'']))
    });
    lines.next_back()
}

/// Quoted where a space or a sign would end the value.
fn line(folder: &Path) -> String {
    let folder = folder.to_string_lossy();
    let plain = |c: char| c.is_alphanumeric() || "/._-+@,:~".contains(c);
    if folder.chars().all(plain) {
        format!("JUPYTER_PATH={folder}")
    } else {
        format!("JUPYTER_PATH=\"{folder}\"")
    }
}

/// Returns the text without what was appended, wherever that stands now.
fn without(text: &str, appended: &str) -> Option<String> {
    if let Some(rest) = text.strip_suffix(appended) {
        return Some(rest.to_owned());
    }
    // Others have written after it: then a newline before it belongs to the line before.
    let line = appended.trim_start_matches('\n');
    let at = text
        .match_indices(line)
        .map(|(at, _)| at)
        .find(|at| *at == 0 || text[..*at].ends_with('\n'))?;
    Some(format!("{}{}", &text[..at], &text[at + line.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(name: &str) -> (tempfile::TempDir, Project) {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        let project = Project::for_notebook(&folder.join("a.ipynb")).unwrap();
        (temp, project)
    }

    #[test]
    fn exactly_what_was_added_is_taken_away() {
        for before in [None, Some(""), Some("A=1\n"), Some("A=1"), Some("# x\n\n")] {
            let (_temp, project) = project("work");
            if let Some(before) = before {
                std::fs::write(file(&project), before).unwrap();
            }
            let Done::Appended(line) = add(&project).unwrap() else {
                panic!("it was not there");
            };
            let text = std::fs::read_to_string(file(&project)).unwrap();
            assert!(text.ends_with(&format!("{line}\n")), "{text:?}");
            assert_eq!(add(&project).unwrap(), Done::There);
            assert!(remove(&project).unwrap());
            let after = std::fs::read_to_string(file(&project)).ok();
            assert_eq!(after.as_deref(), before);
            assert!(!remove(&project).unwrap());
        }
    }

    #[test]
    fn what_others_wrote_stays() {
        let (_temp, project) = project("a b");
        std::fs::write(file(&project), "A=1").unwrap();
        add(&project).unwrap();
        let text = std::fs::read_to_string(file(&project)).unwrap();
        assert!(text.contains("JUPYTER_PATH=\"/"), "{text}");
        std::fs::write(file(&project), format!("{text}B=2\n")).unwrap();
        assert!(remove(&project).unwrap());
        let text = std::fs::read_to_string(file(&project)).unwrap();
        assert_eq!(text, "A=1\nB=2\n");

        for theirs in ["JUPYTER_PATH=/x:/y\n", " export JUPYTER_PATH = '/x:/y'\n"] {
            std::fs::write(file(&project), theirs).unwrap();
            let found = "/x:/y".to_owned();
            let wanted = folder(&project);
            assert_eq!(add(&project).unwrap(), Done::Other { found, wanted });
            assert!(!remove(&project).unwrap());
            assert_eq!(std::fs::read_to_string(file(&project)).unwrap(), theirs);
        }
        std::fs::write(file(&project), "#JUPYTER_PATH=/x\n").unwrap();
        assert!(matches!(add(&project).unwrap(), Done::Appended(_)));
    }
}

//! Finds the notebooks that the files and folders on a command line name.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use walkdir::{DirEntry, WalkDir};

/// The folders that are skipped: none of them holds a user's own notebooks.
const SKIPPED: [&str; 4] = [".git", ".nb", ".ipynb_checkpoints", "node_modules"];

/// The notebooks that a command line names.
#[derive(Debug, Default)]
pub struct Gathered {
    /// The notebooks without repetitions: those that were named, and those below a named folder,
    /// sorted by name.
    pub notebooks: Vec<FoundNotebook>,
    /// Errors of folders that could not be read.
    pub faults: Vec<String>,
    known: HashSet<PathBuf>,
}

/// One notebook of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundNotebook {
    /// Its path.
    pub path: PathBuf,
    /// Whether its own path was named, which may be any file; false for a notebook found below a
    /// named folder.
    pub is_named: bool,
}

/// Returns the notebooks that paths name. A folder stands for all notebooks below it, links not
/// followed.
///
/// # Errors
/// One of the paths does not exist.
pub fn gather(paths: &[PathBuf]) -> io::Result<Gathered> {
    let mut gathered = Gathered::default();
    for path in paths {
        let found = std::fs::metadata(path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        if found.is_dir() {
            gathered.take_folder(path);
        } else {
            gathered.take(path.clone(), true);
        }
    }
    Ok(gathered)
}

impl Gathered {
    fn take_folder(&mut self, folder: &Path) {
        let walk = WalkDir::new(folder).sort_by_file_name().into_iter();
        for entry in walk.filter_entry(|entry| entry.depth() == 0 || !is_skipped(entry)) {
            match entry {
                Ok(entry) if is_notebook(&entry) => {
                    let path = entry.into_path();
                    // `./a.ipynb` is shown as `a.ipynb`.
                    let plain = path.strip_prefix(".").map(Path::to_owned);
                    self.take(plain.unwrap_or(path), false);
                }
                Ok(_) => {}
                Err(error) => self.faults.push(error.to_string()),
            }
        }
    }

    fn take(&mut self, path: PathBuf, is_named: bool) {
        if self.known.insert(path.clone()) {
            self.notebooks.push(FoundNotebook { path, is_named });
        }
    }
}

fn is_skipped(entry: &DirEntry) -> bool {
    entry.file_type().is_dir() && SKIPPED.iter().any(|name| entry.file_name() == *name)
}

/// Returns whether an entry is a notebook file. A link is none, since it may lead to another
/// folder's notebook.
fn is_notebook(entry: &DirEntry) -> bool {
    let ending = entry.path().extension();
    ending.is_some_and(|ending| ending == "ipynb") && entry.file_type().is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_for_the_notebooks_below_it() {
        let temp = tempfile::tempdir().unwrap();
        for file in [
            "b.ipynb",
            "a/c.ipynb",
            "a/.ipynb_checkpoints/c-checkpoint.ipynb",
            ".git/x.ipynb",
            "node_modules/y.ipynb",
            "z.txt",
            ".hidden/d.ipynb",
        ] {
            let path = temp.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink(temp.path(), temp.path().join("a/loop")).unwrap();
        std::os::unix::fs::symlink("b.ipynb", temp.path().join("link.ipynb")).unwrap();
        let paths = [temp.path().join("b.ipynb"), temp.path().to_owned()];
        let gathered = gather(&paths).unwrap();
        let names: Vec<_> = gathered
            .notebooks
            .iter()
            .map(|found| {
                (
                    found
                        .path
                        .strip_prefix(temp.path())
                        .unwrap()
                        .to_str()
                        .unwrap(),
                    found.is_named,
                )
            })
            .collect();
        assert_eq!(
            names,
            [
                ("b.ipynb", true),
                (".hidden/d.ipynb", false),
                ("a/c.ipynb", false)
            ]
        );
        // A folder that is skipped below others is searched when it is named itself.
        let named = gather(&[temp.path().join(".git")]).unwrap();
        assert_eq!(named.notebooks.len(), 1);
        assert!(gather(&[temp.path().join("none")]).is_err());
    }
}

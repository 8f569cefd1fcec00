//! Finds the folder that is a notebook's project.
//!
//! It is the nearest folder with `.nb/` at or above the notebook, within its git work tree; else
//! the top of the work tree; else the notebook's own folder. It is never the home folder or `/`: a
//! `.nb/` there would take over all projects below. The working directory does not count, because
//! an editor's is the notebook's folder and an agent's is the repository, and both must find the
//! same project.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use super::real_path::real_path;
use super::written::{AllWritten, places};

/// The name of a project's private folder.
pub(super) const DIR: &str = ".nb";

/// The folders that can be the root of a notebook's project.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Roots {
    /// The folders whose `.nb/` is used if it exists, nearest first.
    pub(super) candidates: Vec<PathBuf>,
    /// The root if none of the candidates has a `.nb/`; `false` if `.nb/` must not be made there.
    pub(super) new_root: (PathBuf, bool),
}

/// Returns the possible roots for files in `folder`.
pub(super) fn roots(folder: &Path, home: Option<&Path>) -> Roots {
    let allowed = |candidate: &Path| {
        candidate.parent().is_some() && home.is_none_or(|home| home != candidate)
    };
    let top = folder.ancestors().find(|above| above.join(".git").exists());
    let candidates = folder
        .ancestors()
        .take_while(|above| top.is_none_or(|top| above.starts_with(top)))
        .filter(|above| allowed(above))
        .map(Path::to_owned)
        .collect();
    let new_root = match top {
        Some(top) if allowed(top) => (top.to_owned(), true),
        _ => (folder.to_owned(), allowed(folder)),
    };
    Roots {
        candidates,
        new_root,
    }
}

/// The folders of the projects on which this process works.
static WORKED_ON: RwLock<BTreeSet<PathBuf>> = RwLock::new(BTreeSet::new());

impl Roots {
    /// Records that this process works on the project.
    pub(super) fn record(&self) {
        let folders = self.folders();
        let is_known = |known: &BTreeSet<PathBuf>| folders.iter().all(|it| known.contains(it));
        if !is_known(&WORKED_ON.read().unwrap_or_else(PoisonError::into_inner)) {
            let mut known = WORKED_ON.write().unwrap_or_else(PoisonError::into_inner);
            known.extend(folders);
        }
    }

    /// Returns the folders that hold the project's files: the top of the work tree, and the nearest folder with `.nb`.
    fn folders(&self) -> Vec<PathBuf> {
        let (root, allowed) = &self.new_root;
        let mut with_nb = self.candidates.iter().filter(|it| it.join(DIR).is_dir());
        let top = allowed.then_some(root).into_iter();
        top.chain(with_nb.next()).cloned().collect()
    }
}

/// Returns the folders of the projects on which this process works: those of the notebooks that it was asked for, and
/// the one of the working directory.
pub fn project_folders() -> BTreeSet<PathBuf> {
    let known = WORKED_ON.read().unwrap_or_else(PoisonError::into_inner);
    let mut known = known.clone();
    if let Ok(here) = std::env::current_dir() {
        known.extend(roots(&here, home().as_deref()).folders());
    }
    known
}

/// Returns the real path of the home folder.
pub(super) fn home() -> Option<PathBuf> {
    let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty())?;
    Some(home.canonicalize().unwrap_or(home))
}

/// Returns the real path of a notebook or its folder, for reading, editing or running.
///
/// Fails if a sandboxed kernel can have put a link on the path: a command for the kernel's own
/// notebook would then go to another notebook, whose kernel runs without a sandbox.
pub fn notebook_path(path: &Path) -> io::Result<PathBuf> {
    real_notebook(path, AllWritten::known, real_path)
}

pub(super) fn real_notebook(
    path: &Path,
    known: impl FnOnce() -> AllWritten,
    real_path: impl FnOnce(&Path) -> io::Result<PathBuf>,
) -> io::Result<PathBuf> {
    let mut links = places(path);
    let walked = links.pop().unwrap_or_else(|| path.to_owned());
    // The folders must be there; macOS also knows the case of the letters.
    let real = real_path(&walked)?;
    if real != walked {
        // What was no link has become one.
        links.push(walked);
    }
    if links.is_empty() {
        return Ok(real);
    }
    match known().first_held(&links) {
        None => Ok(real),
        Some((link, written)) => Err(io::Error::other(format!(
            "{} is a link, which a sandboxed kernel of {} may have put there, as it was allowed to write {}: remove it, or say that you trust the folder: nb open NOTEBOOK --trust {}",
            link.display(),
            written.notebook.display(),
            written.folder.display(),
            written.folder.display(),
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_of_the_work_tree_is_wanted_and_nothing_above_it_counts() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().join("repo");
        let deep = top.join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::create_dir(top.join(".git")).unwrap();
        let found = roots(&deep, None);
        assert_eq!(found.candidates, [deep, top.join("a"), top.clone()]);
        assert_eq!(found.new_root, (top, true));
    }

    #[test]
    fn without_a_work_tree_the_notebooks_folder_is_wanted() {
        let temp = tempfile::tempdir().unwrap();
        let found = roots(temp.path(), None);
        assert_eq!(found.new_root, (temp.path().to_owned(), true));
        assert!(
            found
                .candidates
                .iter()
                .all(|folder| folder.parent().is_some())
        );
    }

    #[test]
    fn the_home_folder_is_never_a_project() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path();
        std::fs::create_dir(home.join(".git")).unwrap();
        std::fs::create_dir(home.join("work")).unwrap();
        let inside = roots(&home.join("work"), Some(home));
        assert_eq!(inside.new_root, (home.join("work"), true));
        assert!(!inside.candidates.contains(&home.to_owned()));
        assert_eq!(roots(home, Some(home)).new_root, (home.to_owned(), false));
    }

    #[test]
    fn a_notebook_that_does_not_exist_yet_has_a_real_path() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", temp.path().join("link")).unwrap();
        let path = real_path(&temp.path().join("link/new.ipynb")).unwrap();
        assert_eq!(
            path,
            temp.path().canonicalize().unwrap().join("real/new.ipynb")
        );
    }
}

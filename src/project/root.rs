//! Which folder is a notebook's project.
//!
//! The nearest folder with `.nb/` at or above the notebook, not above the top of its git work
//! tree; else that top; else the notebook's own folder. Never the home folder and never `/`: a
//! `.nb/` there would swallow every project below. The working directory does not count, because
//! an editor's is the notebook's folder and an agent's the repository, and they must agree.

use std::io;
use std::path::{Path, PathBuf};

use super::real_path::real_path;
use super::written::AllWritten;

/// The folder that holds a project's memory.
pub(super) const DIR: &str = ".nb";

/// What the folders at and above a notebook say about its project.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Roots {
    /// Folders whose `.nb/` would count, nearest first.
    pub(super) candidates: Vec<PathBuf>,
    /// Where the project is when none of them has one; `false` when `.nb/` may not be made there.
    pub(super) wanted: (PathBuf, bool),
}

/// Returns the possible roots for something that lies in `folder`.
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
    let wanted = match top {
        Some(top) if allowed(top) => (top.to_owned(), true),
        _ => (folder.to_owned(), allowed(folder)),
    };
    Roots { candidates, wanted }
}

/// Returns the real path of a notebook or its folder, for whoever reads, edits or runs it.
///
/// A sandboxed kernel that may write the notebook's folder may put a link there: what is meant for
/// its own cell would go to another notebook's kernel, which is in no sandbox.
pub fn notebook_path(path: &Path) -> io::Result<PathBuf> {
    let real = real_path(path)?;
    let named = std::path::absolute(path)?;
    if real == named {
        return Ok(real);
    }
    match AllWritten::known().leads(&named) {
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
        assert_eq!(found.wanted, (top, true));
    }

    #[test]
    fn without_a_work_tree_the_notebooks_folder_is_wanted() {
        let temp = tempfile::tempdir().unwrap();
        let found = roots(temp.path(), None);
        assert_eq!(found.wanted, (temp.path().to_owned(), true));
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
        assert_eq!(inside.wanted, (home.join("work"), true));
        assert!(!inside.candidates.contains(&home.to_owned()));
        assert_eq!(roots(home, Some(home)).wanted, (home.to_owned(), false));
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

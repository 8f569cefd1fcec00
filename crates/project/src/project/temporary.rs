//! Temporary projects: the state of kernels that end with the process that started them.
//!
//! Each has a folder on a shelf in the user's state folder, for files of its own, and a stand-in beside those of other
//! projects, for its state. So nothing is written into the project whose notebook it runs. The process holds the lock of
//! the folder; once the lock is free, the next command removes both.

use std::io;
use std::path::{Path, PathBuf};

use super::fresh::fresh_id;
use super::lock::Lock;
use super::remove::remove_tree;
use super::scratch;
use super::state_folder::{make_private, state_folder};
use super::written::{self, AllWritten};
use super::{Project, beneath, folder};

/// The lock file in the folder of a temporary project.
const LOCK: &str = "lock";

/// A temporary project. It is removed when this is dropped.
#[derive(Debug)]
pub struct TemporaryProject {
    project: Project,
    folder: PathBuf,
    /// Held as long as the owner runs.
    _lock: Option<Lock>,
}

impl TemporaryProject {
    /// Makes one. Its notebooks lie below `root`; with `None` below the folder `name` of its own, which is empty.
    pub fn make(root: Option<&Path>, name: &str) -> io::Result<Self> {
        let none = || io::Error::other("there is no home folder");
        make_private(&shelf().ok_or_else(none)?)?;
        // The real path of the shelf is known once it exists.
        let shelf = shelf().ok_or_else(none)?;
        let id = fresh_id();
        // A sweep sees the folder only once its lock is held.
        let hidden = shelf.join(format!(".{id}"));
        make_private(&hidden)?;
        let lock = Lock::wait(&hidden.join(LOCK))?;
        let folder = shelf.join(&id);
        beneath::rename(&hidden, &folder)?;
        let own = folder.join("files").join(name);
        let project = make_private(&own)
            .and_then(|()| Project::stand_in(&stand_in_name(&id), root.unwrap_or(&own)));
        match project {
            Ok(project) => Ok(Self {
                project,
                folder,
                _lock: Some(lock),
            }),
            Err(error) => {
                let _ = remove_tree(&folder);
                Err(error)
            }
        }
    }

    /// Returns the project.
    pub fn project(&self) -> &Project {
        &self.project
    }
}

impl Drop for TemporaryProject {
    fn drop(&mut self) {
        forget_written(&self.folder);
        for folder in [self.project.dir(), &self.folder] {
            if let Err(error) = remove_tree(folder) {
                tracing::warn!(%error, "{} could not be removed", folder.display());
            }
        }
    }
}

/// Says whether there are temporary projects, of processes that run or were killed.
pub fn is_any() -> bool {
    shelf().is_some_and(|shelf| !beneath::paths(&shelf).is_empty())
}

/// Removes the temporary projects of processes that were killed.
pub fn sweep() {
    let Some(shelf) = shelf() else { return };
    for folder in beneath::paths(&shelf) {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        let Ok(Some(_lock)) = Lock::attempt(&folder.join(LOCK)) else {
            continue;
        };
        if let Some(state) = folder::stand_in_named(&stand_in_name(&name)) {
            let is_its = |it: &PathBuf| {
                scratch::owner(it).is_some_and(|owner| owner.state_file.starts_with(&state))
            };
            for scratch in scratch::listed().into_iter().filter(is_its) {
                let _ = scratch::remove(&scratch);
            }
            let _ = remove_tree(&state);
        }
        forget_written(&folder);
        // Last: without it, nothing leads to the others.
        let _ = remove_tree(&folder);
    }
}

/// Forgets which parts of a folder that is about to be removed a sandboxed kernel could write.
fn forget_written(folder: &Path) {
    let known = AllWritten::known();
    let inner = known.entries().iter();
    for written in inner.filter(|it| it.folder.starts_with(folder)) {
        let _ = written::forget(written);
    }
}

/// Returns the folder with all of this user's temporary projects, as a real path.
fn shelf() -> Option<PathBuf> {
    let shelf = state_folder()?.join("temporary");
    Some(shelf.canonicalize().unwrap_or(shelf))
}

fn stand_in_name(id: &str) -> String {
    format!("temporary-{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_removed_with_its_owner_or_by_the_next_sweep() {
        let made = TemporaryProject::make(None, "copy").unwrap();
        let (root, dir) = (
            made.project().root().to_owned(),
            made.project().dir().to_owned(),
        );
        assert!(root.ends_with("copy") && root.is_dir() && !dir.starts_with(&root));
        // A detached process knows only the state file.
        made.project()
            .update(|state| state.kernel_pid = Some(1))
            .unwrap();
        let found = Project::of_state_file(&made.project().state_file()).unwrap();
        assert_eq!((found.root(), found.dir()), (&*root, &*dir));
        sweep();
        assert!(is_any() && root.is_dir() && dir.is_dir(), "its owner runs");
        let state_file = made.project().state_file();
        drop(made);
        assert!(!root.exists() && !dir.exists());
        // A detached process that is late makes nothing in its place.
        assert!(Project::of_state_file(&state_file).is_err());
        let elsewhere = tempfile::tempdir().unwrap();
        let mut killed = TemporaryProject::make(Some(elsewhere.path()), "copy").unwrap();
        assert_eq!(killed.project().root(), elsewhere.path());
        let (folder, dir) = (killed.folder.clone(), killed.project().dir().to_owned());
        killed._lock = None;
        sweep();
        assert!(!folder.exists() && !dir.exists() && elsewhere.path().exists());
    }
}

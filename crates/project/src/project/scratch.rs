//! The scratch folders of sandboxed kernels, which hold their HOME and TMPDIR.
//!
//! They are in the user's state folder, one for each start. The kernel may write the two folders
//! inside, never the scratch folder itself: a kernel that can write a folder can replace its entries by
//! links, and the next start would mount the targets. For the same reason they are not in the project,
//! which may come from another person.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::real_path::real_path;
use super::remove::remove_tree;
use super::state_folder::state_folder;

/// The session that a scratch folder belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The `state.json` of its project.
    pub state_file: PathBuf,
    /// Its session's key.
    pub key: String,
    /// Its notebook.
    pub notebook: PathBuf,
}

/// The file in a scratch folder that names its owner.
pub(super) const OWNER: &str = "owner.json";

/// The file that marks a scratch folder which stays after its kernel was shut down.
const KEPT: &str = "kept";

/// Returns the folder with all of this user's scratch folders, as a real path.
pub fn shelf() -> Option<PathBuf> {
    let shelf = state_folder()?.join("scratch");
    Some(real_path(&shelf).unwrap_or(shelf))
}

/// Says whether a path is that of a scratch folder; [`remove`] removes nothing else.
pub fn is_scratch(path: &Path) -> bool {
    let shelf = shelf();
    path.file_name().is_some() && shelf.is_some_and(|shelf| path.parent() == Some(&shelf))
}

/// Removes a scratch folder with anything that a kernel left in it; a missing one is not an error.
pub fn remove(scratch: &Path) -> io::Result<()> {
    match is_scratch(scratch) {
        true => remove_tree(scratch),
        false => Err(io::Error::other("it is not one of nb's scratch folders")),
    }
}

/// Lets a scratch folder stay when its kernel has been shut down and its session is forgotten.
pub fn keep(scratch: &Path) -> io::Result<()> {
    std::fs::write(scratch.join(KEPT), "")
}

/// Says whether a scratch folder stays.
pub fn is_kept(scratch: &Path) -> bool {
    scratch.join(KEPT).exists()
}

/// Returns the owner of a scratch folder; `None` if it was not recorded.
pub fn owner(scratch: &Path) -> Option<Owner> {
    serde_json::from_slice(&std::fs::read(scratch.join(OWNER)).ok()?).ok()
}

/// Returns this user's scratch folders.
pub fn listed() -> Vec<PathBuf> {
    let entries = shelf().map(std::fs::read_dir).into_iter().flatten();
    let entries = entries.flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_folder_of_the_shelf_is_one() {
        let shelf = shelf().unwrap();
        assert!(is_scratch(&shelf.join("a-1")));
        for path in [
            shelf.clone(),
            shelf.join("a-1/home"),
            shelf.join(".."),
            shelf.join("a/.."),
            PathBuf::from("/home/u/p/.nb/scratch/a-1"),
            PathBuf::new(),
        ] {
            assert!(!is_scratch(&path), "{path:?}");
            assert!(remove(&path).is_err(), "{path:?}");
        }
    }
}

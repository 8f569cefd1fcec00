//! The scratch folders of sandboxed kernels: their home and their temporary files.
//!
//! They lie in the user's state folder, one for each start. The kernel is given the two folders in
//! it and never the scratch folder itself: whoever may write a folder may put a link at the place
//! of what it holds, and that would be mounted at the next start. For the same reason none lies in
//! a project, which may come from somebody else.

use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::folder::{Project, short_name};
use super::remove::remove_tree;
use super::{registry, save};

/// Whose scratch folder it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The `state.json` of its project.
    pub state_file: PathBuf,
    /// Its session's key.
    pub key: String,
    /// Its notebook.
    pub notebook: PathBuf,
}

/// The file in a scratch folder that tells its owner.
const OWNER: &str = "owner.json";

/// The file in a scratch folder that says that it stays although its kernel was shut down.
const KEPT: &str = "kept";

/// Returns the folder that all of this user's scratch folders lie in, a real path.
pub fn shelf() -> Option<PathBuf> {
    let shelf = registry::state_folder()?.join("scratch");
    Some(super::real_path(&shelf).unwrap_or(shelf))
}

impl Project {
    /// Returns the path for the scratch folder of a session's next kernel; it is not there yet.
    pub fn fresh_scratch(&self, key: &str) -> io::Result<PathBuf> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("{}-{}", short_name(key), &id[..12]);
        let none = || io::Error::other("there is no home folder");
        let mut made = std::fs::DirBuilder::new();
        // Its real path is known when it is there.
        made.recursive(true)
            .mode(0o700)
            .create(shelf().ok_or_else(none)?)?;
        Ok(shelf().ok_or_else(none)?.join(name))
    }

    /// Makes a session's scratch folder with its two folders, where it is not there already.
    pub fn make_scratch(&self, key: &str, scratch: &Path) -> io::Result<()> {
        if !is_scratch(scratch) {
            return Err(io::Error::other("it is not one of nb's scratch folders"));
        }
        let mut made = std::fs::DirBuilder::new();
        made.recursive(true).mode(0o700);
        // Mounts are made below this one, so that nothing may be there already, not even a link.
        remove_tree(&scratch.join("tmp"))?;
        for name in ["home", "tmp"] {
            let folder = scratch.join(name);
            made.create(&folder)?;
            // The last kernel may have closed its own folder, which it can do to no one's else.
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
        }
        let owner = Owner {
            state_file: self.state_file(),
            key: key.to_owned(),
            notebook: self.notebook(key),
        };
        save::replace_unsynced(&scratch.join(OWNER), &serde_json::to_vec(&owner)?)
    }
}

/// Says whether a path is that of a scratch folder: nothing else is ever removed as one.
pub fn is_scratch(path: &Path) -> bool {
    let shelf = shelf();
    path.file_name().is_some() && shelf.is_some_and(|shelf| path.parent() == Some(&shelf))
}

/// Removes a scratch folder, whatever a kernel has left in it; what is not there is no error.
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

/// Returns whose scratch folder it is; none where that was never written.
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

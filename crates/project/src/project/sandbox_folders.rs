//! The scratch folders of a project's sandboxed kernels, and the folders that these kernels may
//! write.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Map;

use super::folder::Project;
use super::remove::remove_tree;
use super::save;
use super::scratch::{OWNER, Owner, is_scratch, shelf};
use super::state_folder::{make_private, short_name};
use super::written::{self, WritableFolder};

impl Project {
    /// Returns the path of the scratch folder for a session's next kernel; does not make it.
    pub fn fresh_scratch(&self, key: &str) -> io::Result<PathBuf> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("{}-{}", short_name(key), &id[..12]);
        let none = || io::Error::other("there is no home folder");
        // The real path of the shelf is known once it exists.
        make_private(&shelf().ok_or_else(none)?)?;
        Ok(shelf().ok_or_else(none)?.join(name))
    }

    /// Makes a session's scratch folder with its folders `home` and `tmp`, if they do not exist.
    pub fn make_scratch(&self, key: &str, scratch: &Path) -> io::Result<()> {
        if !is_scratch(scratch) {
            return Err(io::Error::other("it is not one of nb's scratch folders"));
        }
        // Mount points are made below `tmp`, so it must be empty and not a link.
        remove_tree(&scratch.join("tmp"))?;
        for name in ["home", "tmp"] {
            let folder = scratch.join(name);
            make_private(&folder)?;
            // The last kernel may have removed the permissions of its own folder, though of no
            // other.
            std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
        }
        let owner = Owner {
            state_file: self.state_file(),
            key: key.to_owned(),
            notebook: self.notebook(key),
        };
        save::replace_unsynced(&scratch.join(OWNER), &serde_json::to_vec(&owner)?)
    }

    /// Records that a session's kernel is about to get write access to a folder, which is a real
    /// path.
    ///
    /// # Errors
    /// It could not be recorded. The kernel must not be started then.
    pub fn remember_written(&self, key: &str, written: &Path) -> io::Result<()> {
        let folder =
            written::folder().ok_or_else(|| io::Error::other("there is no home folder"))?;
        self.remember_written_in(&folder, key, written)
    }

    pub(super) fn remember_written_in(
        &self,
        folder: &Path,
        key: &str,
        written: &Path,
    ) -> io::Result<()> {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let entry = WritableFolder {
            folder: written.to_owned(),
            hidden: real(self.dir()),
            state_file: self.state_file(),
            key: key.to_owned(),
            notebook: self.notebook(key),
            other: Map::new(),
        };
        written::remember_in(folder, &entry)
    }
}

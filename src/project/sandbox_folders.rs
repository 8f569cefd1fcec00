//! The folders of a project's sandboxed kernels: scratch folders, and those that they may write.

use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::Map;

use super::folder::Project;
use super::remove::remove_tree;
use super::save;
use super::scratch::{OWNER, Owner, is_scratch, shelf};
use super::state_folder::short_name;
use super::written::{self, Written};

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

    /// Remembers that a session's kernel is about to be let write a folder, which is a real path.
    ///
    /// # Errors
    /// Where that cannot be remembered the kernel must not be started.
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
        let entry = Written {
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

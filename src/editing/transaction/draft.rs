//! The new text in a file beside the notebook, on disk, before it goes into its place.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;

use super::text;
use crate::editing::file_stamp::FileStamp;
use crate::notebook::Document;

/// A file that is removed unless it is placed.
#[derive(Debug)]
pub(super) struct Draft {
    path: PathBuf,
    stamp: FileStamp,
    placed: bool,
}

/// Which step failed.
#[derive(Debug)]
pub(super) enum DraftError {
    /// No file could be made.
    Make(io::Error),
    /// It could not be filled.
    Fill(io::Error),
}

impl Draft {
    /// Writes a notebook's text into a new file that is like the notebook otherwise.
    pub(super) fn write(
        path: PathBuf,
        notebook: &Path,
        like: &Metadata,
        text: &Document,
    ) -> Result<Self, DraftError> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(DraftError::Make)?;
        let mut draft = Self {
            path,
            stamp: FileStamp::of(like),
            placed: false,
        };
        // Closed before it is placed: watchers would see the notebook being written afterwards.
        draft.stamp = fill(&file, notebook, like, text).map_err(DraftError::Fill)?;
        Ok(draft)
    }

    /// Returns the file's stamp.
    pub(super) fn stamp(&self) -> FileStamp {
        self.stamp
    }

    /// Gives it another name.
    pub(super) fn move_to(&mut self, path: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, path)?;
        path.clone_into(&mut self.path);
        Ok(())
    }

    /// Says that it has its place: it stays.
    pub(super) fn placed(mut self) {
        self.placed = true;
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.placed {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn fill(file: &File, notebook: &Path, like: &Metadata, text: &Document) -> io::Result<FileStamp> {
    text::write_to_disk(file, text)?;
    dress(file, notebook, like)?;
    file.sync_all()?;
    Ok(FileStamp::of(&file.metadata()?))
}

/// Gives a new file the mode, owner, access list and attributes of the notebook.
///
/// The other names of a notebook with hard links keep the old text: those that keep it on purpose
/// (backups made of links, package stores) would be changed behind their back otherwise, and no
/// write into the old file could be undone by a crash.
fn dress(file: &File, notebook: &Path, like: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    let mut mode = like.mode() & 0o7777;
    if own.uid() != like.uid() {
        // Root may edit another's notebook and must not take it from them; for others the
        // notebook becomes theirs, as with every program that saves by moving.
        let _ = fchown(file, Some(like.uid()), None);
    }
    if own.gid() != like.gid() && fchown(file, None, Some(like.gid())).is_err() {
        // Our own group has no right that everybody has not.
        mode = (mode & !0o070) | ((mode & 0o007) << 3);
    }
    let copied = copy_attributes(file, notebook);
    match file.set_permissions(Permissions::from_mode(mode)) {
        // File systems without modes of their own.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
            ) => {}
        done => done?,
    }
    // The mode is part of an access list: the list has the last word.
    if let Some(list) = copied {
        let _ = rustix::fs::fsetxattr(file, ACCESS_LIST, &list, XattrFlags::empty());
    }
    Ok(())
}

/// Copies the extended attributes as far as may be; returns the access list.
fn copy_attributes(file: &File, notebook: &Path) -> Option<Vec<u8>> {
    // What the folder gives to every new file.
    let _ = rustix::fs::fremovexattr(file, ACCESS_LIST);
    let size = rustix::fs::listxattr_query(notebook).ok()?;
    let mut names = vec![0; size];
    let used = rustix::fs::listxattr(notebook, &mut names[..]).ok()?;
    names.truncate(used);
    let mut list = None;
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        // Labels and capabilities are the system's to give.
        if name.starts_with(b"security.") || name.starts_with(b"trusted.") {
            continue;
        }
        let Ok(size) = rustix::fs::getxattr_query(notebook, name) else {
            continue;
        };
        let mut value = vec![0; size];
        let Ok(used) = rustix::fs::getxattr(notebook, name, &mut value[..]) else {
            continue;
        };
        value.truncate(used);
        if name == ACCESS_LIST.as_bytes() {
            list = Some(value);
        } else {
            let _ = rustix::fs::fsetxattr(file, name, &value, XattrFlags::empty());
        }
    }
    list
}

/// Where Linux keeps a file's access control list.
const ACCESS_LIST: &str = "system.posix_acl_access";

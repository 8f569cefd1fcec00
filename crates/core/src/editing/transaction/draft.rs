//! The draft: the new text in a file beside the notebook, synced before the exchange.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;

use super::error::SwapError;
use super::text;
use crate::editing::file_stamp::FileStamp;
use crate::notebook::Document;

/// A file that is removed on drop unless it became the notebook.
#[derive(Debug)]
pub(super) struct Draft {
    path: PathBuf,
    stamp: FileStamp,
    placed: bool,
}

impl Draft {
    /// Writes a text into a new file with the notebook's mode, owner and attributes.
    ///
    /// # Errors
    /// No file can be made there, or it cannot be written.
    pub(super) fn write(
        path: PathBuf,
        notebook: &Path,
        like: &Metadata,
        text: &Document,
    ) -> Result<Self, SwapError> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| match SwapError::of(error) {
                SwapError::Io(error) => SwapError::Folder(error),
                full => full,
            })?;
        let mut draft = Self {
            path,
            stamp: FileStamp::of(like),
            placed: false,
        };
        // The file is closed before it becomes the notebook: otherwise watchers would see a write
        // afterwards.
        draft.stamp = fill(&file, notebook, like, text).map_err(SwapError::of)?;
        Ok(draft)
    }

    /// Returns the file's stamp.
    pub(super) fn stamp(&self) -> FileStamp {
        self.stamp
    }

    /// Renames the file.
    pub(super) fn move_to(&mut self, path: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, path)?;
        path.clone_into(&mut self.path);
        Ok(())
    }

    /// Keeps the file, which has become the notebook.
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
    copy_metadata(file, notebook, like)?;
    file.sync_all()?;
    Ok(FileStamp::of(&file.metadata()?))
}

/// Gives a new file the mode, owner, access list and attributes of the notebook.
///
/// The other hard links of a notebook keep the old text: backups made of links and package stores need
/// that, and a write into the old file could be torn by a crash.
fn copy_metadata(file: &File, notebook: &Path, like: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    let mut mode = like.mode() & 0o7777;
    if own.uid() != like.uid() {
        // A notebook that root edits stays its owner's. One that another user edits becomes that user's, as
        // with every program that saves by renaming.
        let _ = fchown(file, Some(like.uid()), None);
    }
    if own.gid() != like.gid() && fchown(file, None, Some(like.gid())).is_err() {
        // The group of the new file is this process's own: it gets only the rights of others.
        mode = (mode & !0o070) | ((mode & 0o007) << 3);
    }
    let copied = copy_attributes(file, notebook);
    match file.set_permissions(Permissions::from_mode(mode)) {
        // The file system has no modes.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
            ) => {}
        done => done?,
    }
    // An access list contains the mode, so it is set last.
    if let Some(list) = copied {
        let _ = rustix::fs::fsetxattr(file, ACCESS_LIST, &list, XattrFlags::empty());
    }
    Ok(())
}

/// Copies the extended attributes, as far as permitted; returns the access list.
fn copy_attributes(file: &File, notebook: &Path) -> Option<Vec<u8>> {
    // The folder may set a default access list on every new file.
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
        // Only the system may set labels and capabilities.
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

/// The extended attribute in which Linux stores a file's access control list.
const ACCESS_LIST: &str = "system.posix_acl_access";

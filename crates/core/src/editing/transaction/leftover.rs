//! A swapped-out file, which stays until it is certain that no process writes into it any more.
//!
//! It is beside the notebook and has a name that describes it: `.nb-<notebook>-<id>-<draft's inode,
//! size, time>-<base's size, time>`. A file with the inode of its name is a draft that was never put
//! in place; a file with another inode was swapped out, and if its size or time are not the base's,
//! a program has saved into it. The base itself, which a merge needs, is stored in the project's
//! folder until then, where it also shows readers that there is something to finish. So the next
//! command can finish, whenever a command is killed.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::text;
use super::touch::NUDGE;
use crate::editing::file_stamp::FileStamp;
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::Document;
use crate::project::beneath;

/// The largest notebook, in bytes, whose base is always stored: storing a larger one would double
/// the time of an edit.
const LARGEST_STORED_BASE: u64 = 8 << 20;

/// The folder of the bases within the project's folder.
const FOLDER: &str = "unfinished";

/// A swapped-out file, or a draft that was to be put in place.
#[derive(Clone, Debug)]
pub(super) struct Leftover {
    pub(super) path: PathBuf,
    base_path: PathBuf,
    parts: Parts,
    /// The base's file, locked during the transaction. Where the lock of the notebook's writers cannot be
    /// had, as in a sandbox, this lock shows that the command still runs.
    alive: Option<Arc<File>>,
}

/// The parts of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    /// The mark of the notebook, see [`mark`].
    mark: String,
    /// A random id.
    id: String,
    /// The draft's inode, size and time; `None` while the draft is being written.
    draft: Option<(u64, u64, i128)>,
    /// The base's size and time.
    base: (u64, i128),
}

impl Leftover {
    /// Prepares names for a transaction, and stores the base.
    pub(super) fn prepare(notebook: &NotebookFile, base: &Document, stamp: &FileStamp) -> Self {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let parts = Parts {
            mark: mark(notebook),
            id: id.get(..12).unwrap_or(&id).to_owned(),
            draft: None,
            base: stamp.content(),
        };
        let mut leftover = Self::named(notebook, parts);
        let kept = (stamp.content().0 <= LARGEST_STORED_BASE).then_some(base);
        // The base is needed only if `nb` is killed: an edit succeeds without it.
        leftover.alive = leftover.keep_base(notebook, kept).ok().map(Arc::new);
        leftover
    }

    /// Returns whether the command of its transaction still runs.
    pub(super) fn is_alive(&self) -> bool {
        is_locked(&self.base_path)
    }

    fn named(notebook: &NotebookFile, parts: Parts) -> Self {
        let folder = notebook.real.parent().unwrap_or(Path::new("/"));
        let bases = notebook.project.dir().join(FOLDER);
        Self {
            path: folder.join(parts.name()),
            base_path: bases.join(format!("{}-{}", parts.mark, parts.id)),
            parts,
            alive: None,
        }
    }

    /// Returns the leftover with its names after the draft was written.
    pub(super) fn with_draft(&self, notebook: &NotebookFile, draft: &FileStamp) -> Self {
        let (size, modified) = draft.content();
        let mut parts = self.parts.clone();
        parts.draft = Some((draft.ino(), size, modified));
        Self {
            alive: self.alive.clone(),
            ..Self::named(notebook, parts)
        }
    }

    /// Returns the leftovers of a notebook, oldest first, and those of other notebooks in its
    /// folder.
    pub(super) fn all(notebook: &NotebookFile) -> io::Result<(Vec<Self>, Vec<Self>)> {
        let folder = notebook.real.parent().unwrap_or(Path::new("/"));
        let mut all = Vec::new();
        for entry in std::fs::read_dir(folder)?.flatten() {
            let name = entry.file_name();
            let parts = name.to_str().and_then(Parts::read);
            all.extend(parts.map(|parts| Self::named(notebook, parts)));
        }
        all.sort_by_key(|leftover| leftover.parts.draft.map(|(_, _, modified)| modified));
        let mark = mark(notebook);
        Ok(all
            .into_iter()
            .partition(|leftover| leftover.parts.mark == mark))
    }

    /// Returns whether there may be leftovers; only lists a folder of the project.
    pub(super) fn may_exist(notebook: &NotebookFile) -> bool {
        let mark = mark(notebook);
        let entries = beneath::list(&notebook.project.dir().join(FOLDER));
        entries.into_iter().flatten().flatten().any(|entry| {
            let name = entry.file_name();
            name.to_str().is_some_and(|name| name.starts_with(&mark))
        })
    }

    /// Removes the bases of a notebook that no leftover needs.
    pub(super) fn sweep(notebook: &NotebookFile, needed: &[Self]) {
        let mark = mark(notebook);
        let entries = beneath::list(&notebook.project.dir().join(FOLDER));
        for entry in entries.into_iter().flatten().flatten() {
            let mark = entry.file_name().to_string_lossy().starts_with(&mark);
            let path = entry.path();
            if mark && !is_locked(&path) && needed.iter().all(|it| it.base_path != path) {
                let _ = beneath::remove_file(&path);
            }
        }
    }

    /// Returns whether the file is the draft, which was never put in place.
    pub(super) fn is_draft(&self, found: &Metadata) -> bool {
        self.parts.draft.is_none_or(|(ino, ..)| ino == found.ino())
    }

    /// Returns whether the notebook is the file that this transaction put in place, possibly touched since.
    pub(super) fn has_placed(&self, notebook: &FileStamp) -> bool {
        let (size, modified) = notebook.content();
        let nudge = i128::try_from(NUDGE.as_nanos()).unwrap_or_default();
        let mut times = [modified, modified - nudge].into_iter();
        times.any(|modified| self.parts.draft == Some((notebook.ino(), size, modified)))
    }

    /// Returns whether the size and time are still those of the base.
    pub(super) fn is_as_base(&self, found: &FileStamp) -> bool {
        found.content() == self.parts.base
    }

    /// Returns the base, if it was stored.
    pub(super) fn base(&self) -> Option<Document> {
        let text = beneath::read(&self.base_path, beneath::LARGE).ok()?;
        let whole = text.len() as u64 == self.parts.base.0;
        Document::parse(text).ok().filter(|_| whole)
    }

    /// Stores the base, or an empty file in its place; returns the file, locked.
    pub(super) fn keep_base(
        &self,
        notebook: &NotebookFile,
        base: Option<&Document>,
    ) -> io::Result<File> {
        notebook.project.make_folder(FOLDER)?;
        let file = beneath::write(&self.base_path)?;
        file.set_len(0)?;
        let _ = file.try_lock();
        if let Some(base) = base {
            text::write(&file, base)?;
        }
        Ok(file)
    }

    /// Makes the merged text the base of the swapped-out file, which a process still has open for
    /// writing.
    pub(super) fn rebase(
        self,
        notebook: &NotebookFile,
        placed: &FileStamp,
        base: &Document,
        stamp: &FileStamp,
    ) {
        let (size, modified) = placed.content();
        let mut parts = self.parts.clone();
        parts.draft = Some((placed.ino(), size, modified));
        parts.base = stamp.content();
        let new = Self::named(notebook, parts);
        if new.keep_base(notebook, Some(base)).is_ok() {
            let _ = std::fs::rename(&self.path, &new.path);
        }
    }

    /// Removes the file and its base.
    pub(super) fn remove(self) {
        match std::fs::remove_file(&self.path) {
            // The next command finds the file by its base, so the base stays.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {}
            _ => {
                let _ = beneath::remove_file(&self.base_path);
            }
        }
    }

    /// Moves the file to the trash; returns its path there.
    pub(super) fn move_to_trash(self, notebook: &NotebookFile) -> io::Result<PathBuf> {
        let stem = notebook
            .real
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy();
        let trash = notebook.project.make_folder("trash")?;
        let path = trash.join(format!("{stem}-{}.ipynb", self.parts.id));
        // The rename fails if the project's folder is on another file system.
        if std::fs::rename(&self.path, &path).is_err() {
            let mut copy = beneath::create(&path)?;
            io::copy(&mut File::open(&self.path)?, &mut copy)?;
        }
        self.remove();
        Ok(path)
    }
}

impl Parts {
    fn name(&self) -> String {
        let Self {
            mark,
            id,
            draft,
            base,
        } = self;
        match draft {
            None => format!(".nb-{mark}-{id}.tmp"),
            Some((ino, size, modified)) => format!(
                ".nb-{mark}-{id}-{ino:x}.{size:x}.{modified:x}-{:x}.{:x}",
                base.0, base.1
            ),
        }
    }

    fn read(name: &str) -> Option<Self> {
        let hex = |text: &str, length: usize| {
            (text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit()))
                .then(|| text.to_owned())
        };
        let rest = name.strip_prefix(".nb-")?;
        if let Some(rest) = rest.strip_suffix(".tmp") {
            let (mark, id) = rest.split_once('-')?;
            return Some(Self {
                mark: hex(mark, 8)?,
                id: hex(id, 12)?,
                draft: None,
                base: (0, 0),
            });
        }
        let mut words = rest.split('-');
        let (mark, id) = (hex(words.next()?, 8)?, hex(words.next()?, 12)?);
        let number = |word: Option<&str>| u64::from_str_radix(word?, 16).ok();
        let time = |word: Option<&str>| i128::from_str_radix(word?, 16).ok();
        let mut draft = words.next()?.split('.');
        let draft = (
            number(draft.next())?,
            number(draft.next())?,
            time(draft.next())?,
        );
        let mut base = words.next()?.split('.');
        let base = (number(base.next())?, time(base.next())?);
        let draft = Some(draft);
        words.next().is_none().then_some(Self {
            mark,
            id,
            draft,
            base,
        })
    }
}

fn is_locked(path: &Path) -> bool {
    let lock = beneath::open(path).map(|file| file.try_lock());
    matches!(lock, Ok(Err(TryLockError::WouldBlock)))
}

/// Returns the hash of a notebook's file name, which stays when the folder is renamed.
fn mark(notebook: &NotebookFile) -> String {
    let name = notebook.real.file_name().unwrap_or_default();
    let mark = hex::encode(Sha256::digest(name.as_encoded_bytes()));
    mark.get(..8).unwrap_or(&mark).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leftovers_name_is_parsed_and_other_names_are_ignored() {
        let parts = Parts {
            mark: "0123abcd".into(),
            id: "0123456789ab".into(),
            draft: Some((17, 5_000_000, 1_790_000_000_123_456_789)),
            base: (4_999_999, -1),
        };
        assert_eq!(Parts::read(&parts.name()), None, "before 1970");
        for base in [(0, 0), (4_999_999, 1_790_000_000_000_000_000)] {
            let parts = Parts {
                base,
                ..parts.clone()
            };
            assert_eq!(Parts::read(&parts.name()), Some(parts));
        }
        let draft = Parts {
            draft: None,
            base: (0, 0),
            ..parts
        };
        assert_eq!(Parts::read(&draft.name()), Some(draft));
        for other in [
            ".nb-aB3xYz",
            ".nb",
            ".nb-x-y.tmp",
            ".nb-0123abcd-0123456789ab-1.2.3",
            "t.ipynb",
        ] {
            assert_eq!(Parts::read(other), None, "{other}");
        }
    }
}

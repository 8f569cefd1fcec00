//! A private copy of a folder, in which a notebook runs without changing the original.
//!
//! Small files are copied; larger ones, and all that no longer fit, are links to the originals. Whether a cell has changed
//! one of these is seen by their stamps. Environments are links, too: their programs find each other by their paths; and so
//! is the folder in which the copy lies. Left out are `nb`'s own folder, with the state and the keys of the project's kernels, caches, and a repository's `.git` that
//! is large or lies elsewhere.

use std::collections::VecDeque;
use std::fs::{DirEntry, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// How much is copied.
#[derive(Clone, Copy, Debug)]
pub struct CopyLimits {
    /// The largest file that is copied, in bytes.
    pub file_bytes: u64,
    /// The bytes of all files that are copied.
    pub bytes: u64,
    /// The number of files and folders.
    pub entries: usize,
}

impl Default for CopyLimits {
    fn default() -> Self {
        Self {
            file_bytes: 10 << 20,
            bytes: 200 << 20,
            entries: 20_000,
        }
    }
}

/// The largest `.git` that is copied, in bytes and in files.
const GIT_BYTES: u64 = 20 << 20;
const GIT_FILES: usize = 5000;

/// The names of what is never copied.
const LEFT_OUT: [&str; 3] = [".nb", "__pycache__", ".ipynb_checkpoints"];

/// A copy of a folder.
#[derive(Debug, Default)]
pub struct PrivateCopy {
    /// The files that are links to the originals, with what these were like when they were last looked at.
    links: Vec<(PathBuf, Option<FileState>)>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// What shows that a file was changed.
type FileState = (u64, u64, u64, i64, i64);

impl PrivateCopy {
    /// Copies the folder `from` into the empty folder `to`: first what is in its subfolder `near`, then what is around it.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn make(from: &Path, to: &Path, near: &Path, limits: CopyLimits) -> io::Result<Self> {
        let mut copying = Copying {
            from,
            to,
            left: limits,
            copy: Self::default(),
            linked_folders: Vec::new(),
        };
        std::fs::create_dir_all(to.join(near))?;
        for base in near.ancestors() {
            let mut folders = VecDeque::from([base.to_owned()]);
            while let Some(folder) = folders.pop_front() {
                copying.folder(&folder, &mut folders)?;
            }
        }
        if let Some(first) = copying.linked_folders.first() {
            let more = match copying.linked_folders.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            copying.copy.notes.push(format!(
                "there is too much to copy: {}{more} is the original, and what a cell writes there stays",
                first.display()
            ));
        }
        Ok(copying.copy)
    }

    /// Returns the originals behind links that have changed since the last call.
    pub fn changed_originals(&mut self) -> Vec<PathBuf> {
        let mut changed = Vec::new();
        for (path, known) in &mut self.links {
            let now = state(path);
            if *known != now {
                *known = now;
                changed.push(path.clone());
            }
        }
        changed
    }

    /// Says whether something in the copy leads to an original.
    pub fn has_links(&self) -> bool {
        !self.links.is_empty()
    }
}

fn state(path: &Path) -> Option<FileState> {
    let it = std::fs::metadata(path).ok()?;
    Some((it.dev(), it.ino(), it.len(), it.mtime(), it.mtime_nsec()))
}

/// A copy that is being made.
struct Copying<'a> {
    from: &'a Path,
    to: &'a Path,
    /// What may still be copied.
    left: CopyLimits,
    copy: PrivateCopy,
    /// Folders that are links since there was no room for them.
    linked_folders: Vec<PathBuf>,
}

impl Copying<'_> {
    /// Copies what is directly in a folder, and adds its subfolders to `next`.
    fn folder(&mut self, folder: &Path, next: &mut VecDeque<PathBuf>) -> io::Result<()> {
        // What cannot be read here, a cell cannot read there.
        let entries = std::fs::read_dir(self.from.join(folder));
        let mut entries: Vec<_> = entries.into_iter().flatten().flatten().collect();
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            let path = folder.join(&name);
            let is_left_out = LEFT_OUT.iter().any(|it| *name == **it);
            // A folder on the way to the notebook's exists already.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if is_left_out || self.to.join(&path).symlink_metadata().is_ok() {
                continue;
            }
            self.left.entries = self.left.entries.saturating_sub(1);
            let original = self.from.join(&path);
            if metadata.is_symlink() {
                self.link_like(&path)?;
            } else if metadata.is_dir() {
                if name == *".git" && !is_small(&original) {
                    let path = path.display();
                    let note =
                        format!("{path} is not copied: it is large, and git finds no repository");
                    self.copy.notes.push(note);
                } else if is_environment(&original) || self.to.starts_with(&original) {
                    symlink(&original, self.to.join(&path))?;
                } else if std::fs::read_dir(&original).map_or(0, Iterator::count)
                    > self.left.entries
                {
                    symlink(&original, self.to.join(&path))?;
                    self.linked_folders.push(path);
                } else {
                    std::fs::create_dir(self.to.join(&path))?;
                    next.push_back(path);
                }
            } else if metadata.is_file() && name != *".git" {
                self.file(&path, &metadata)?;
            }
        }
        Ok(())
    }

    /// Copies a file; links to one that is too large.
    fn file(&mut self, path: &Path, metadata: &Metadata) -> io::Result<()> {
        let (original, copied) = (self.from.join(path), self.to.join(path));
        if metadata.len() > self.left.file_bytes.min(self.left.bytes) {
            return self.link_to(&original, &copied);
        }
        let mut options = OpenOptions::new();
        // It may have become a link or a pipe in the meantime.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        options.read(true).custom_flags(flags.bits().cast_signed());
        let mut source = match options.open(&original) {
            Ok(source) => source,
            // A cell that reads it fails as it does in its own folder.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut target = File::create_new(&copied)?;
        let bytes = io::copy(
            &mut io::Read::take(&mut source, self.left.file_bytes),
            &mut target,
        )?;
        self.left.bytes = self.left.bytes.saturating_sub(bytes);
        target.set_permissions(metadata.permissions())?;
        target.set_modified(metadata.modified()?)
    }

    /// Makes a link like one of the folder: to the same place in the copy, or out of the folder.
    fn link_like(&mut self, path: &Path) -> io::Result<()> {
        let (original, copied) = (self.from.join(path), self.to.join(path));
        match original.canonicalize() {
            Ok(target) => match target.strip_prefix(self.from) {
                Ok(inner) => symlink(self.to.join(inner), copied),
                Err(_) => self.link_to(&target, &copied),
            },
            Err(_) => symlink(std::fs::read_link(original)?, copied),
        }
    }

    fn link_to(&mut self, original: &Path, copied: &Path) -> io::Result<()> {
        if original.is_file() {
            self.copy.links.push((original.to_owned(), state(original)));
        }
        symlink(original, copied)
    }
}

/// Says whether a folder is an environment, whose programs know their own paths.
fn is_environment(folder: &Path) -> bool {
    folder.ends_with("node_modules")
        || folder.join("pyvenv.cfg").is_file()
        || folder.join("conda-meta").is_dir()
}

/// Says whether a repository's folder is small enough to be copied.
fn is_small(git: &Path) -> bool {
    let (mut bytes, mut files) = (0, 0);
    for entry in walkdir::WalkDir::new(git).into_iter().flatten() {
        files += 1;
        bytes += entry.metadata().map_or(0, |it| it.len());
        if bytes > GIT_BYTES || files > GIT_FILES {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_notebook_reads_is_there_and_what_it_changes_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        let (from, to) = (top.join("from"), top.join("to"));
        for folder in [
            "deep/data",
            "other",
            ".nb",
            "env",
            "large",
            "deep/__pycache__",
        ] {
            std::fs::create_dir_all(from.join(folder)).unwrap();
        }
        for (name, text) in [
            ("deep/a.ipynb", "a"),
            ("deep/data/x.csv", "x"),
            ("deep/big.bin", "0123456789"),
            ("other/y.csv", "y"),
            (".nb/state.json", "{}"),
            ("env/pyvenv.cfg", ""),
            ("large/1", "1"),
            ("large/2", "2"),
            ("large/3", "3"),
            (".git", "gitdir: /elsewhere"),
        ] {
            std::fs::write(from.join(name), text).unwrap();
        }
        std::fs::write(top.join("outside"), "o").unwrap();
        symlink("data/x.csv", from.join("deep/inner")).unwrap();
        symlink(top.join("outside"), from.join("deep/outer")).unwrap();
        symlink("nowhere", from.join("deep/broken")).unwrap();
        std::fs::create_dir(&to).unwrap();
        let limits = CopyLimits {
            file_bytes: 5,
            bytes: 100,
            entries: 12,
        };
        let mut copy = PrivateCopy::make(&from, &to, Path::new("deep"), limits).unwrap();
        let read = |name: &str| std::fs::read_to_string(to.join(name)).ok();
        for name in ["deep/a.ipynb", "deep/data/x.csv", "other/y.csv"] {
            assert_eq!(
                read(name),
                std::fs::read_to_string(from.join(name)).ok(),
                "{name}"
            );
            assert!(!to.join(name).is_symlink(), "{name}");
        }
        assert_eq!(
            to.join("deep/inner").canonicalize().unwrap(),
            to.join("deep/data/x.csv")
        );
        assert_eq!(
            to.join("deep/broken").read_link().unwrap(),
            Path::new("nowhere")
        );
        for name in [".nb", ".git", "deep/__pycache__"] {
            assert!(to.join(name).symlink_metadata().is_err(), "{name}");
        }
        assert_eq!(to.join("env").read_link().unwrap(), from.join("env"));
        // There is no room for this folder.
        assert_eq!(to.join("large").read_link().unwrap(), from.join("large"));
        assert!(
            copy.notes[0].contains("large is the original"),
            "{:?}",
            copy.notes
        );
        assert!(copy.has_links() && copy.changed_originals().is_empty());
        std::fs::write(to.join("deep/a.ipynb"), "changed").unwrap();
        assert!(copy.changed_originals().is_empty(), "it is a copy");
        for (name, original) in [
            ("deep/big.bin", from.join("deep/big.bin")),
            ("deep/outer", top.join("outside")),
        ] {
            std::fs::write(to.join(name), "written through a link").unwrap();
            assert_eq!(copy.changed_originals(), [original]);
        }
        assert!(copy.changed_originals().is_empty());
    }

    #[test]
    fn a_copy_within_the_folder_is_not_copied_again() {
        let temp = tempfile::tempdir().unwrap();
        let from = temp.path().canonicalize().unwrap();
        let to = from.join("state/deep/to");
        std::fs::create_dir_all(&to).unwrap();
        std::fs::write(from.join("a.ipynb"), "a").unwrap();
        PrivateCopy::make(&from, &to, Path::new(""), CopyLimits::default()).unwrap();
        assert!(to.join("a.ipynb").is_file());
        assert_eq!(to.join("state").read_link().unwrap(), from.join("state"));
    }
}

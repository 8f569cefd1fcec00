//! Finds and reads a notebook's file, in the same way for every command.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::file_stamp::FileStamp;
use super::{content, history};
use crate::notebook::{Document, NotANotebook};
use crate::project::objects::Objects;
use crate::project::{Project, ProjectError, notebook_path};

/// How long a file that ends too early is read again: a program may be writing it in place.
pub(super) const HALF_WRITTEN: Duration = Duration::from_secs(2);

/// The time between two reads of such a file.
const PAUSE: Duration = Duration::from_millis(20);

/// A notebook's file, and its project.
#[derive(Clone, Debug)]
pub struct NotebookFile {
    /// The project.
    pub project: Project,
    /// The notebook's key in the project.
    pub key: String,
    /// The path that was given.
    pub path: PathBuf,
    /// The real path of the file.
    pub real: PathBuf,
    /// The stored versions of cells; set at the first request for one.
    stored_versions: OnceLock<Option<Objects>>,
}

/// Why a notebook could not be read.
#[derive(Debug, thiserror::Error)]
pub enum NotebookFileError {
    /// There is no such file.
    #[error("there is no notebook {}", path.display())]
    Missing {
        /// The notebook.
        path: PathBuf,
    },
    /// The path is a link that leads to no file.
    #[error("{} is a link to {}, which does not exist", path.display(), to.display())]
    Dangling {
        /// The link.
        path: PathBuf,
        /// Its target.
        to: PathBuf,
    },
    /// The path is not a regular file.
    #[error("{} is {kind}, not a notebook", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// Its kind, like "a folder".
        kind: &'static str,
    },
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The notebook.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is still empty after a wait.
    #[error("{} is empty: it is not a notebook, or the program that saved it was stopped halfway", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a notebook.
    #[error("cannot read {}", path.display())]
    NotANotebook {
        /// The file.
        path: PathBuf,
        /// The fault.
        source: NotANotebook,
    },
    /// The project's folder is unusable.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

fn real(path: &Path) -> Result<PathBuf, NotebookFileError> {
    check(path)?;
    let named = path.to_owned();
    notebook_path(path).map_err(|source| match source.kind() {
        io::ErrorKind::Other => NotebookFileError::Read {
            path: named,
            source,
        },
        _ => NotebookFileError::Missing { path: named },
    })
}

impl NotebookFile {
    /// Returns the file of a notebook. Makes the project's folder if there is none; if that is not
    /// possible, the notebook can be read all the same.
    ///
    /// # Errors
    /// There is no such file.
    pub fn of(path: &Path) -> Result<Self, NotebookFileError> {
        let real = real(path)?;
        let project = Project::for_reading(&real)?;
        Ok(Self::within(project, path, real))
    }

    /// Returns the file of a notebook that belongs to a project.
    pub(super) fn in_project(project: &Project, path: &Path) -> Result<Self, NotebookFileError> {
        Ok(Self::within(project.clone(), path, real(path)?))
    }

    /// Returns a notebook's file by its real path; there need not be one.
    pub fn at(project: &Project, real: &Path) -> Self {
        Self::within(project.clone(), real, real.to_owned())
    }

    fn within(project: Project, path: &Path, real: PathBuf) -> Self {
        Self {
            key: project.key(&real),
            project,
            path: path.to_owned(),
            real,
            stored_versions: OnceLock::new(),
        }
    }

    /// Returns the stored versions of cells, for reading; `None` if the user's settings say that no
    /// code is stored.
    pub(super) fn stored_versions(&self) -> Option<&Objects> {
        self.stored_versions
            .get_or_init(|| self.project.objects())
            .as_ref()
    }

    /// Reads the notebook. It waits for a program that is writing the file in place.
    ///
    /// # Errors
    /// The file cannot be read, or is not a notebook.
    pub fn read(&self) -> Result<Document, NotebookFileError> {
        Ok(self.read_stamped()?.0)
    }

    /// Reads the notebook and its stamp, which shows later whether the file has changed.
    pub(super) fn read_stamped(&self) -> Result<(Document, FileStamp), NotebookFileError> {
        let begun = Instant::now();
        loop {
            let error = match read(&self.real) {
                Ok(Some((text, stamp))) if !text.trim_ascii_start().is_empty() => {
                    match Document::parse(text) {
                        Ok(mut document) => {
                            history::recall_ids(self, &mut document);
                            return Ok((document, stamp));
                        }
                        Err(source) => {
                            let is_incomplete = source.cut_off;
                            let path = self.path.clone();
                            let error = NotebookFileError::NotANotebook { path, source };
                            if !is_incomplete {
                                return Err(error);
                            }
                            error
                        }
                    }
                }
                // The file was written while it was read.
                Ok(None) => NotebookFileError::Read {
                    path: self.path.clone(),
                    source: io::Error::other("a program writes it all the time"),
                },
                Ok(Some(_)) => NotebookFileError::Empty {
                    path: self.path.clone(),
                },
                // Some programs rename the old file before they save.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    NotebookFileError::Missing {
                        path: self.path.clone(),
                    }
                }
                Err(source) => {
                    let path = self.path.clone();
                    return Err(NotebookFileError::Read { path, source });
                }
            };
            if begun.elapsed() >= HALF_WRITTEN {
                return Err(error);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Reads a file's bytes and stamp; `None` if it was written during the read.
pub(super) fn read(path: &Path) -> io::Result<Option<(Bytes, FileStamp)>> {
    let mut file = File::open(path)?;
    let before = FileStamp::of(&file.metadata()?);
    let size = usize::try_from(before.content().0).unwrap_or_default();
    let text = content::read(&mut file, size)?;
    let after = FileStamp::of(&file.metadata()?);
    Ok(before.agrees(&after).then_some((text, before)))
}

/// Fails for a path that is not a regular file, and for an empty file, as Jupyter does. Waits while a program
/// is writing the file.
pub fn refuse_no_notebook(path: &Path) -> Result<(), NotebookFileError> {
    check(path)?;
    let begun = Instant::now();
    while is_empty(path) {
        if begun.elapsed() >= HALF_WRITTEN {
            let path = path.to_owned();
            return Err(NotebookFileError::Empty { path });
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Returns whether a file contains only white space.
fn is_empty(path: &Path) -> bool {
    /// Larger files count as not empty.
    const SMALL: u64 = 4096;
    let metadata = path.metadata();
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.len() <= SMALL)
        && std::fs::read(path).is_ok_and(|text| text.trim_ascii().is_empty())
}

/// Fails for a path that is not a regular file.
fn check(path: &Path) -> Result<(), NotebookFileError> {
    let path_ = || path.to_owned();
    let kind = match path.metadata() {
        Ok(metadata) if metadata.is_file() => return Ok(()),
        Ok(metadata) if metadata.is_dir() => "a folder",
        // Reading a pipe or a device may block for ever.
        Ok(_) => "no regular file",
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            "a link that leads back to itself"
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(match std::fs::read_link(path) {
                Ok(to) => NotebookFileError::Dangling { path: path_(), to },
                Err(_) => NotebookFileError::Missing { path: path_() },
            });
        }
        Err(source) => {
            let path = path_();
            return Err(NotebookFileError::Read { path, source });
        }
    };
    Err(NotebookFileError::NotAFile {
        path: path_(),
        kind,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_error_names_the_kind_of_a_path_that_is_no_file() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        let error = |name: &str| NotebookFile::of(&at(name)).unwrap_err().to_string();
        std::fs::create_dir(at("folder.ipynb")).unwrap();
        symlink("nowhere.ipynb", at("dangling.ipynb")).unwrap();
        symlink("loop.ipynb", at("loop.ipynb")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        assert!(error("none.ipynb").contains("there is no notebook"));
        assert!(error("folder.ipynb").contains("is a folder"));
        assert!(error("dangling.ipynb").contains("a link to nowhere.ipynb, which does not exist"));
        assert!(error("loop.ipynb").contains("leads back to itself"));
        assert!(error("file/x.ipynb").contains("cannot read"));
        // No folder was made for a missing notebook.
        assert!(!at(".nb").exists());
    }

    #[test]
    fn an_empty_file_and_half_a_notebook_are_waited_for() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("t.ipynb");
        std::fs::write(&path, "").unwrap();
        let notebook = NotebookFile::of(&path).unwrap();
        let text = crate::notebook::new_notebook("python3", "Python 3", "python");
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| notebook.read());
            std::fs::write(&path, &text[..20]).unwrap();
            std::fs::write(&path, &text).unwrap();
            assert_eq!(reads.join().unwrap().unwrap().to_bytes(), text.as_bytes());
        });
        std::fs::write(&path, "").unwrap();
        assert!(matches!(
            notebook.read(),
            Err(NotebookFileError::Empty { .. })
        ));
        std::fs::write(&path, &text[..20]).unwrap();
        let error = notebook.read().unwrap_err();
        assert!(matches!(error, NotebookFileError::NotANotebook { source, .. } if source.cut_off));
    }
}

//! A notebook's file, as every command on its cells finds and reads it.

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

/// How long a file that ends too early is read again: a program writes it in place.
pub(super) const HALF_WRITTEN: Duration = Duration::from_secs(2);

/// How often it is read meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// A notebook's file, and the project that remembers it.
#[derive(Clone, Debug)]
pub struct NotebookFile {
    /// The project; made where there was none.
    pub project: Project,
    /// The notebook's own key in the project.
    pub key: String,
    /// The path as it was named.
    pub path: PathBuf,
    /// The file itself, links followed.
    pub real: PathBuf,
    /// The kept versions, once one was asked for.
    kept: OnceLock<Option<Objects>>,
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
    /// It is a link that leads to no file.
    #[error("{} is a link to {}, which does not exist", path.display(), to.display())]
    Dangling {
        /// The link.
        path: PathBuf,
        /// What it names.
        to: PathBuf,
    },
    /// It is no file.
    #[error("{} is {what}, not a notebook", path.display())]
    NotAFile {
        /// What was named.
        path: PathBuf,
        /// What it is, as "a folder".
        what: &'static str,
    },
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The notebook.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing is in it, and stays so.
    #[error("{} is empty: it is no notebook, or the program that saved it was stopped halfway", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It is something else.
    #[error("cannot read {}", path.display())]
    NotANotebook {
        /// The file.
        path: PathBuf,
        /// Where one would have gone on otherwise.
        source: NotANotebook,
    },
    /// Its project's folder is unusable.
    #[error(transparent)]
    Project(#[from] ProjectError),
}

fn real(path: &Path) -> Result<PathBuf, NotebookFileError> {
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
    /// Returns the file of a notebook; its project's folder is made where there is none, if that is
    /// possible: reading needs none.
    ///
    /// # Errors
    /// There is no such file.
    pub fn of(path: &Path) -> Result<Self, NotebookFileError> {
        check(path)?;
        let real = real(path)?;
        let project = Project::for_reading(&real)?;
        Ok(Self::within(project, path, real))
    }

    /// Returns the file of a notebook that belongs to a project.
    pub(super) fn in_project(project: &Project, path: &Path) -> Result<Self, NotebookFileError> {
        check(path)?;
        let real = real(path)?;
        Ok(Self::within(project.clone(), path, real))
    }

    fn within(project: Project, path: &Path, real: PathBuf) -> Self {
        Self {
            key: project.key(&real),
            project,
            path: path.to_owned(),
            real,
            kept: OnceLock::new(),
        }
    }

    /// Returns the kept versions of cells, for reading; none where the user wants no code kept.
    pub(super) fn kept(&self) -> Option<&Objects> {
        self.kept.get_or_init(|| self.project.objects()).as_ref()
    }

    /// Reads the notebook. One that is half written by a program that writes in place is waited for.
    ///
    /// # Errors
    /// The file cannot be read, or is no notebook.
    pub fn read(&self) -> Result<Document, NotebookFileError> {
        Ok(self.read_stamped()?.0)
    }

    /// Reads the notebook, and what tells later whether it is still that.
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
                            let waits = source.cut_off;
                            let path = self.path.clone();
                            let error = NotebookFileError::NotANotebook { path, source };
                            if !waits {
                                return Err(error);
                            }
                            error
                        }
                    }
                }
                // Written while it was read.
                Ok(None) => NotebookFileError::Read {
                    path: self.path.clone(),
                    source: io::Error::other("a program writes it all the time"),
                },
                Ok(Some(_)) => NotebookFileError::Empty {
                    path: self.path.clone(),
                },
                // Some programs save by moving the old file away first.
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
            std::thread::sleep(LOOK);
        }
    }
}

/// Reads a file's bytes and stamp; nothing if it was written meanwhile.
pub(super) fn read(path: &Path) -> io::Result<Option<(Bytes, FileStamp)>> {
    let mut file = File::open(path)?;
    let before = FileStamp::of(&file.metadata()?);
    let size = usize::try_from(before.content().0).unwrap_or_default();
    let text = content::read(&mut file, size)?;
    let after = FileStamp::of(&file.metadata()?);
    Ok(before.agrees(&after).then_some((text, before)))
}

/// Refuses what is no file, and a file with nothing in it, as Jupyter does. One that a program writes
/// just then is waited for.
pub(crate) fn refuse_no_notebook(path: &Path) -> Result<(), NotebookFileError> {
    check(path)?;
    let begun = Instant::now();
    while is_empty(path) {
        if begun.elapsed() >= HALF_WRITTEN {
            let path = path.to_owned();
            return Err(NotebookFileError::Empty { path });
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Whether nothing but white space is in a file.
fn is_empty(path: &Path) -> bool {
    /// Nobody fills more with white space.
    const SMALL: u64 = 4096;
    let found = path.metadata();
    found.is_ok_and(|found| found.is_file() && found.len() <= SMALL)
        && std::fs::read(path).is_ok_and(|text| text.trim_ascii().is_empty())
}

/// Refuses what is no file, in words of its own.
fn check(path: &Path) -> Result<(), NotebookFileError> {
    let path_ = || path.to_owned();
    let found = match path.metadata() {
        Ok(found) if found.is_file() => return Ok(()),
        Ok(found) if found.is_dir() => "a folder",
        // A pipe would never end, a device perhaps neither.
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
        what: found,
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_no_file_is_said_in_words() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        let said = |name: &str| NotebookFile::of(&at(name)).unwrap_err().to_string();
        std::fs::create_dir(at("folder.ipynb")).unwrap();
        symlink("nowhere.ipynb", at("dangling.ipynb")).unwrap();
        symlink("loop.ipynb", at("loop.ipynb")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        assert!(said("none.ipynb").contains("there is no notebook"));
        assert!(said("folder.ipynb").contains("is a folder"));
        assert!(said("dangling.ipynb").contains("a link to nowhere.ipynb, which does not exist"));
        assert!(said("loop.ipynb").contains("leads back to itself"));
        assert!(said("file/x.ipynb").contains("cannot read"));
        // Nothing was made for what is not there.
        assert!(!at(".nb").exists());
    }

    #[test]
    fn an_empty_file_and_half_a_notebook_are_waited_for() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("t.ipynb");
        std::fs::write(&path, "").unwrap();
        let page = NotebookFile::of(&path).unwrap();
        let text = crate::notebook::new_notebook("python3", "Python 3", "python");
        std::thread::scope(|scope| {
            let reads = scope.spawn(|| page.read());
            std::fs::write(&path, &text[..20]).unwrap();
            std::fs::write(&path, &text).unwrap();
            assert_eq!(reads.join().unwrap().unwrap().to_bytes(), text.as_bytes());
        });
        std::fs::write(&path, "").unwrap();
        assert!(matches!(page.read(), Err(NotebookFileError::Empty { .. })));
        std::fs::write(&path, &text[..20]).unwrap();
        let error = page.read().unwrap_err();
        assert!(matches!(error, NotebookFileError::NotANotebook { source, .. } if source.cut_off));
    }
}

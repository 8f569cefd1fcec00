//! A notebook's file, as every command on its cells finds and reads it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::notebook::{Document, NotANotebook};
use crate::project::{Project, ProjectError, real_path};

/// How long a file that ends too early is read again: a program writes it in place.
const HALF_WRITTEN: Duration = Duration::from_secs(2);

/// How often it is read meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// A notebook's file, and the project that remembers it.
#[derive(Clone, Debug)]
pub struct Page {
    /// The project; made where there was none.
    pub project: Project,
    /// The notebook's own key in the project.
    pub key: String,
    /// The path as it was named.
    pub path: PathBuf,
    /// The file itself, links followed.
    pub real: PathBuf,
}

/// Why a notebook could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// There is no such file.
    #[error("there is no notebook {}", path.display())]
    Missing {
        /// The notebook.
        path: PathBuf,
    },
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The notebook.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
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

impl Page {
    /// Returns the page of a notebook; its project's folder is made where there is none.
    ///
    /// # Errors
    /// There is no such file, or no place for a project's folder.
    pub fn of(path: &Path) -> Result<Self, PageError> {
        let missing = || PageError::Missing {
            path: path.to_owned(),
        };
        let real = real_path(path).map_err(|_| missing())?;
        if !real.is_file() {
            return Err(missing());
        }
        let project = Project::for_notebook(&real)?;
        Ok(Self {
            key: project.key(&real),
            project,
            path: path.to_owned(),
            real,
        })
    }

    /// Reads the notebook. One that is half written by a program that writes in place is waited for.
    ///
    /// # Errors
    /// The file cannot be read, or is no notebook.
    pub fn read(&self) -> Result<Document, PageError> {
        let begun = Instant::now();
        loop {
            let text = std::fs::read(&self.real).map_err(|source| PageError::Read {
                path: self.path.clone(),
                source,
            })?;
            match Document::parse(text) {
                Ok(document) => return Ok(document),
                Err(fault) if fault.cut_off && begun.elapsed() < HALF_WRITTEN => {
                    std::thread::sleep(LOOK);
                }
                Err(source) => {
                    let path = self.path.clone();
                    return Err(PageError::NotANotebook { path, source });
                }
            }
        }
    }
}

//! Trusts a folder again that a sandboxed kernel was allowed to write.

use std::io;
use std::path::{Path, PathBuf};

use super::liveness::{Liveness, liveness};
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::project::written::{self, AllWritten, WritableFolder};
use crate::project::{Project, real_path};

/// Why a folder is not trusted again.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// No sandboxed kernel was allowed to write exactly this folder.
    #[error("no sandboxed kernel was allowed to write {}", folder.display())]
    Unknown {
        /// The folder.
        folder: PathBuf,
        /// The recorded folders.
        known: Vec<PathBuf>,
    },
    /// A sandboxed kernel that may write it still runs.
    #[error("{} is being written by the sandboxed kernel of {}, which runs", folder.display(), notebook.display())]
    Runs {
        /// The folder.
        folder: PathBuf,
        /// The kernel's notebook.
        notebook: PathBuf,
    },
    /// The record cannot be removed.
    #[error("cannot forget that a sandboxed kernel was allowed to write {}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl TrustError {
    /// Returns hints on how to fix it.
    pub fn hints(&self) -> Vec<Hint> {
        match self {
            Self::Unknown { known, .. } => {
                let known = known.iter();
                known.map(|it| hint!["--trust ", &**it]).collect()
            }
            Self::Runs { notebook, .. } => vec![nb(Verb::Shutdown).notebook(notebook).into()],
            Self::Io { .. } => Vec::new(),
        }
    }
}

/// Removes the record that sandboxed kernels were allowed to write a folder. Files in it may be
/// executed outside sandboxes again.
pub async fn trust_again(folder: &Path) -> Result<(), TrustError> {
    let folder = real_path(folder).unwrap_or_else(|_| folder.to_owned());
    let all = AllWritten::known();
    let of_folder = |it: &&WritableFolder| it.folder == folder;
    let entries: Vec<_> = all.entries().iter().filter(of_folder).collect();
    if entries.is_empty() {
        let mut known: Vec<_> = all.entries().iter().map(|it| it.folder.clone()).collect();
        known.dedup();
        return Err(TrustError::Unknown { folder, known });
    }
    for entry in &entries {
        if is_being_written(entry).await {
            let notebook = entry.notebook.clone();
            return Err(TrustError::Runs { folder, notebook });
        }
    }
    for entry in entries {
        written::forget(entry).map_err(|source| TrustError::Io {
            folder: folder.clone(),
            source,
        })?;
    }
    Ok(())
}

async fn is_being_written(entry: &WritableFolder) -> bool {
    let project = Project::of_state_file(&entry.state_file).ok();
    let state = project.and_then(|project| project.state().ok());
    let session = state.and_then(|state| state.sessions.get(&entry.key).cloned());
    match session {
        Some(session) if session.sandbox().is_some() => {
            !matches!(liveness(&session).await, Liveness::Dead)
        }
        _ => false,
    }
}

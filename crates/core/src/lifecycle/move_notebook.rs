//! Moves a notebook with its kernel and its history.
//!
//! The order, so that a crash at any moment loses neither the notebook nor its kernel:
//! 1. the locks of both sessions, then those of both notebooks' writers;
//! 2. the file is renamed. A crash here leaves what another program's rename leaves: the session has the old
//!    name, and the same command takes the file up again;
//! 3. `moved.json`, from which readers of all other records know the new name;
//! 4. `state.json`: the session gets the new name, in one write. A crash before that leaves it as in 2;
//! 5. the ledger, the log and the other files that are named after the notebook. Without them `nb` reads the
//!    notebook as if for the first time.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::all_kernels::still_runs;
use super::liveness::liveness;
use super::open_error::OpenError;
use super::start::LockedSession;
use crate::activity::participants::joined_to;
use crate::editing::history;
use crate::editing::notebook_file::{NotebookFile, NotebookFileError};
use crate::editing::transaction::{RenameError, rename};
use crate::editing::unsaved::{self, Unsaved};
use crate::project::event::{Event, EventKind};
use crate::project::{Project, ProjectError, notebook_path};

/// The result of a move.
#[derive(Clone, Debug)]
pub struct MovedNotebook {
    /// The project.
    pub project: Project,
    /// The notebook's key before.
    pub from: String,
    /// Its key now.
    pub to: String,
    /// Whether another program had renamed the file before.
    pub was_renamed: bool,
    /// The process of its kernel, if one runs.
    pub kernel_pid: Option<u32>,
    /// Whether its kernel runs.
    pub kernel_runs: bool,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Why a notebook was not moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// There is no such notebook.
    #[error("there is no notebook {}", .0.display())]
    Missing(PathBuf),
    /// It is a link.
    #[error("{} is a link to {}", path.display(), to.display())]
    Link {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        to: PathBuf,
    },
    /// The new name is not that of a notebook.
    #[error("{} is no name of a notebook: it ends in .ipynb", .0.display())]
    Name(PathBuf),
    /// The new folder does not exist.
    #[error("there is no folder {}", .0.display())]
    NoFolder(PathBuf),
    /// It has this name already.
    #[error("{} has this name already", .0.display())]
    Same(PathBuf),
    /// The new path is in another project.
    #[error("{} would be in another project than {}: its kernel and history stay in theirs", to.display(), from.display())]
    OtherProject {
        /// The notebook.
        from: PathBuf,
        /// Its new path.
        to: PathBuf,
    },
    /// A kernel runs for a notebook with the new name.
    #[error("{} has a kernel of its own", .0.display())]
    HasKernel(PathBuf),
    /// The file with the new name is another notebook.
    #[error("{} does not have the cells of {}, which is gone", to.display(), from.display())]
    Another {
        /// The notebook.
        from: PathBuf,
        /// Its new path.
        to: PathBuf,
    },
    /// The file could not be renamed.
    #[error(transparent)]
    Rename(#[from] RenameError),
    /// A notebook cannot be read.
    #[error(transparent)]
    File(#[from] NotebookFileError),
    /// A kernel's session cannot be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The project's folder is unusable.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// A path cannot be used.
    #[error("cannot use {}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Moves a notebook: its file, its kernel's session and its history. If another program has renamed the file,
/// only the session and the history are moved.
///
/// # Errors
/// [`MoveError`]; nothing was moved then, except as [`RenameError::Record`] says.
pub async fn move_notebook(
    from: &Path,
    to: &Path,
    by: &str,
    timeout: Duration,
) -> Result<MovedNotebook, MoveError> {
    let path_error = |path: &Path| {
        let path = path.to_owned();
        move |source| MoveError::Path { path, source }
    };
    if let Ok(link) = std::fs::read_link(from) {
        let (path, to) = (from.to_owned(), link);
        return Err(MoveError::Link { path, to });
    }
    let target = match (to.is_dir(), from.file_name()) {
        (true, Some(name)) => to.join(name),
        _ => to.to_owned(),
    };
    if target.extension().is_none_or(|it| it != "ipynb") {
        return Err(MoveError::Name(target));
    }
    let folder = target.parent().filter(|it| !it.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(MoveError::NoFolder(folder.to_owned()));
    }
    let new = notebook_path(&target).map_err(path_error(&target))?;
    let old = match notebook_path(from) {
        // Another program may have renamed its folder.
        Err(error) if error.kind() == io::ErrorKind::NotFound => std::path::absolute(from),
        path => path,
    }
    .map_err(path_error(from))?;
    let project = match Project::find(&old) {
        Some(project) => project,
        None if old.exists() => Project::for_notebook(&old)?,
        None => Project::find(&new).ok_or_else(|| MoveError::Missing(from.to_owned()))?,
    };
    let new_project = Project::find(&new);
    if new_project.is_none_or(|it| it.state_file() != project.state_file()) {
        let from = from.to_owned();
        return Err(MoveError::OtherProject { from, to: target });
    }
    let keys = (project.key(&old), project.key(&new));
    if keys.0 == keys.1 {
        return Err(MoveError::Same(target));
    }
    let was_renamed = !old.exists();
    let new_exists = new.symlink_metadata().is_ok();
    match (was_renamed, new_exists) {
        (true, false) => return Err(MoveError::Missing(from.to_owned())),
        (true, true) => check_renamed(&project, &keys, from, &target)?,
        (false, true) => return Err(RenameError::Exists(target).into()),
        (false, false) => {}
    }
    let moved = move_in(&project, keys, (&old, &new), was_renamed, timeout).await?;
    let from = moved.from.clone();
    project.record(&[Event {
        by: Some(by.to_owned()),
        ..Event::now(&moved.to, EventKind::Moved { from })
    }]);
    Ok(moved)
}

/// Checks that a file which is there, and was not moved by `nb`, is the notebook that is gone.
fn check_renamed(
    project: &Project,
    keys: &(String, String),
    from: &Path,
    target: &Path,
) -> Result<(), MoveError> {
    let document = NotebookFile::of(target)?.read()?;
    let state = project.state().map_err(OpenError::from)?;
    match history::resembles(project, &keys.0, &document) {
        Some(true) => Ok(()),
        Some(false) => Err(MoveError::Another {
            from: from.to_owned(),
            to: target.to_owned(),
        }),
        None if state.sessions.contains_key(&keys.0) => Ok(()),
        None if project.current_key(&keys.0) == keys.1 => Err(MoveError::Same(target.to_owned())),
        None => Err(MoveError::Missing(from.to_owned())),
    }
}

/// Moves a notebook within its project; the keys and paths are its old and its new ones.
async fn move_in(
    project: &Project,
    (from, to): (String, String),
    (old, new): (&Path, &Path),
    was_renamed: bool,
    timeout: Duration,
) -> Result<MovedNotebook, MoveError> {
    // In one order, so that two that swap names do not wait for each other.
    let mut keys = [from.as_str(), to.as_str()];
    keys.sort_unstable();
    let _first = LockedSession::wait(project, keys[0], timeout).await?;
    let _second = LockedSession::wait(project, keys[1], timeout).await?;
    let state = project.state().map_err(OpenError::from)?;
    if let Some(session) = state
        .session(&to)
        .filter(|_| state.sessions.contains_key(&to))
        && state.shared_with(&to).is_none()
        && liveness(&session).await.is_up()
    {
        return Err(MoveError::HasKernel(new.to_owned()));
    }
    let file = NotebookFile::at(project, old);
    let joined = joined_to(project, &state.owner_key(&from));
    let mut notes = Vec::new();
    if !was_renamed && let unsaved @ Unsaved::Found(_) = unsaved::find(&file) {
        notes.push(format!(
            "{} has unsaved text of {from} ({}), which is not in the moved file: copy it from its tab, then close that",
            unsaved.editor(),
            unsaved.age()
        ));
    }
    notes.extend(rename(&file, new, || project.record_move(&from, &to))?);
    if !was_renamed {
        let names: std::collections::BTreeSet<_> =
            joined.into_iter().map(|it| it.front_end).collect();
        notes.extend(names.into_iter().map(|front_end| {
            format!("{front_end} may still show {from}: open {to} there; its kernel is the same")
        }));
    }
    let session = project.state().map_err(OpenError::from)?.session(&to);
    let mut kernel_runs = false;
    if let Some(session) = &session {
        kernel_runs = liveness(session).await.is_up();
        project.remember(&to, session, still_runs);
    }
    Ok(MovedNotebook {
        project: project.clone(),
        from,
        to,
        was_renamed,
        kernel_pid: session.and_then(|it| it.pid()).filter(|_| kernel_runs),
        kernel_runs,
        notes,
    })
}

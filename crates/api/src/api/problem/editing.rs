//! Problems with notebooks: with reading them, selecting cells, and edits.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Problem, ProblemKind, causes};
use crate::editing::edit::EditError;
use crate::editing::history;
use crate::editing::notebook_file::{NotebookFile, NotebookFileError};
use crate::editing::transaction::WriteError;
use crate::hint;
use crate::hint::shell::quote;
use crate::hint::{Hint, Joint, Verb, nb, option};
use crate::notebook::{CellCandidate, DocumentEditError as CellError, OperationError, SelectError};
use crate::project::{Project, Status};

/// Returns the hint for a request that does not name a cell.
pub fn lists_cells() -> Hint {
    hint![nb(Verb::Cells), " lists the cells"]
}

/// Makes a problem of a request that names no cell.
pub fn no_cell(message: &str) -> Problem {
    let forms = "an index like 3 or -1, an id, In[12], or a range like 2..5";
    Problem::new(ProblemKind::Usage, format!("{message}: {forms}")).hint(lists_cells())
}

impl From<EditError> for Problem {
    fn from(error: EditError) -> Self {
        match error {
            EditError::NotebookFile(error) => error.into(),
            // Only a caller that gave a list of operations needs to know which one failed.
            EditError::Operation(error) => of_operation(&error.source, &error.source.to_string()),
            EditError::Unseen { ref conflicts } => {
                Self::new(ProblemKind::Conflict, error.to_string()).with_conflicts(conflicts, false)
            }
            EditError::Unsaved { ref conflicts, .. } => {
                Self::new(ProblemKind::Conflict, error.to_string()).with_conflicts(conflicts, true)
            }
            EditError::Other(error) => Self::new(ProblemKind::Failed, error.to_string()),
            EditError::Write(ref error) => of_write(error),
        }
    }
}

/// Makes a problem of an operation that cannot be done.
pub(crate) fn of_operation(error: &OperationError, message: &str) -> Problem {
    let problem = |kind| Problem::new(kind, message);
    match error {
        OperationError::Select(error) => of_selection(error, message),
        OperationError::Stale { conflict, .. } => {
            problem(ProblemKind::Conflict).with_conflicts(std::slice::from_ref(conflict), false)
        }
        OperationError::Edit(CellError::ReadOnly(_)) => problem(ProblemKind::Refused),
        OperationError::Edit(CellError::NotFound(cell)) => {
            let show = nb(Verb::Cell).option("-c").word(&**cell);
            let show = show.option("--source-only");
            problem(ProblemKind::Failed).hint(hint![show, " shows its text"])
        }
        OperationError::Edit(CellError::Several { .. }) => {
            let all = option(Verb::Edit, "--all");
            problem(ProblemKind::Failed).hint(hint![all, " replaces it wherever it is"])
        }
        OperationError::Edit(CellError::BadTags) => {
            problem(ProblemKind::Failed).hint(r#"tags='["draft"]'"#)
        }
        OperationError::Edit(_)
        | OperationError::Place
        | OperationError::Apart
        | OperationError::OneRevision => problem(ProblemKind::Failed),
    }
}

/// Makes a problem of a notebook that could not be written.
pub(crate) fn of_write<E: std::error::Error + 'static>(error: &WriteError<E>) -> Problem {
    let problem = Problem::new(ProblemKind::Failed, causes(error));
    match error {
        WriteError::Full { .. } => problem.hint("the notebook is as it was; make room and repeat"),
        WriteError::ReadOnly { notebook } if may_change_mode(&notebook.real) => {
            problem.hint(hint![
                "if it may be changed: chmod u+w ",
                &*notebook.path
            ])
        }
        WriteError::ReadOnly { notebook } => problem
            .hint("it belongs to another user")
            .hint(on_a_copy(notebook)),
        WriteError::Immutable { path, .. } => problem.hint(hint![
            "if it may be changed: sudo chattr -i ",
            &**path
        ]),
        WriteError::Sticky { notebook } => problem.hint(on_a_copy(notebook)),
        WriteError::Folder { notebook, source } | WriteError::Write { notebook, source } => {
            match source.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    let folder = notebook.real.parent().unwrap_or(&notebook.real);
                    problem.hint(format!(
                    "the notebook is as it was; its folder {} must be writable too, as a notebook is replaced as a whole",
                    quote(folder)
                ))
                }
                ErrorKind::ResourceBusy => problem.hint(
                "is it mounted on its own, as into a container? Mount its folder instead: a notebook is replaced as a whole",
            ),
                ErrorKind::FileTooLarge => problem.hint(
                    "the notebook is as it was; files may not become that large here: ulimit -f shows the shell's limit",
                ),
                _ => problem.hint("the notebook is as it was"),
            }
        }
        WriteError::Locked { .. } | WriteError::Contended { .. } => {
            problem.hint("the notebook is without this edit; repeat it in a moment")
        }
        WriteError::InRoom { .. } => Problem::new(ProblemKind::Refused, causes(error))
            .hint(hint![
                "ask the person to run nb serve --jupyterlab and to reload the page, or to close its tab there; ",
                option(Verb::Edit, "--force"),
                " writes all the same"
            ]),
        WriteError::SilentRoom { .. } => Problem::new(ProblemKind::Refused, causes(error)).hint(hint![
            "repeat it in a moment, or ask the person to reload or close its tab there; ",
            option(Verb::Edit, "--force"),
            " writes all the same"
        ]),
        WriteError::NotebookFile(_) | WriteError::Change(_) => problem,
    }
}

/// Says whether this user may change a file's permissions.
fn may_change_mode(path: &Path) -> bool {
    let user = rustix::process::geteuid();
    user.is_root() || std::fs::metadata(path).is_ok_and(|it| it.uid() == user.as_raw())
}

fn on_a_copy(notebook: &NotebookFile) -> Hint {
    let name = notebook.real.file_name().unwrap_or_default();
    hint![
        "work on a copy in a folder of yours: cp ",
        &*notebook.path,
        format!(" ~/{}", quote(Path::new(name)))
    ]
}

impl From<SelectError> for Problem {
    fn from(error: SelectError) -> Self {
        of_selection(&error, &error.to_string())
    }
}

/// Makes a problem of cells that were not found; the message may say more than the error itself.
pub(crate) fn of_selection(error: &SelectError, message: &str) -> Problem {
    let kind = match error {
        SelectError::Malformed(_) | SelectError::Many(_) | SelectError::TooShort { .. } => {
            ProblemKind::Usage
        }
        _ => ProblemKind::Failed,
    };
    let candidates: &[CellCandidate] = match error {
        SelectError::NoSuchId { near, .. }
        | SelectError::TooShort { near, .. }
        | SelectError::NoSuchCount { near, .. } => near,
        SelectError::Ambiguous { candidates, .. } => candidates,
        _ => &[],
    };
    // Candidates are easier to read on lines of their own than in one sentence.
    let message = message.split("; there is ").next().unwrap_or(message);
    let candidates: Vec<_> = candidates.iter().map(CellCandidate::to_string).collect();
    let problem = Problem::new(kind, message).lines(&candidates);
    match error {
        SelectError::Malformed(_) | SelectError::Many(_) => problem,
        SelectError::Ambiguous { .. } | SelectError::TooShort { .. } => {
            problem.hint("give more of the id, or its index")
        }
        // Ids that consist of digits are rare, but look like an index.
        SelectError::OutOfRange { index, .. } if *index >= 100 => problem.hint(format!(
            "if {index} is an id: -c {index}; in a list of operations {{\"id\": \"{index}\"}}"
        )),
        _ => problem.hint(lists_cells()),
    }
}

impl From<NotebookFileError> for Problem {
    fn from(error: NotebookFileError) -> Self {
        Self::new(ProblemKind::Failed, causes(&error)).all_hints(hint(&error))
    }
}

/// Returns the hint for a notebook that cannot be read.
pub fn hint(error: &NotebookFileError) -> Option<Hint> {
    let open = |path| nb(Verb::Open).notebook(path);
    match error {
        NotebookFileError::Missing { path } => Some(match moved_to(path) {
            Some(now) => hint!["it was moved to ", &*now],
            None if let Some(otherwise) = unless_moved(path) => hint![
                "if it was moved: ",
                nb(Verb::Mv).word(&**path).word("NEW.ipynb"),
                " takes its kernel and history along; else: ",
                otherwise
            ],
            None => hint![open(path), " makes it, and starts a kernel"],
        }),
        NotebookFileError::Empty { path } => Some(hint![
            "if there is nothing to get back: rm ",
            &**path,
            Joint::And,
            open(path)
        ]),
        _ => None,
    }
}

/// Returns what to do about a missing notebook if another program has not moved it; `None` if it never had a kernel or
/// a history.
fn unless_moved(path: &Path) -> Option<Hint> {
    let project = Project::find(path)?;
    let key = project.key(path);
    let session = project.state().ok()?.session(&key);
    let is_live = session.as_ref().is_some_and(|it| it.status == Status::Live);
    match session.is_some() || history::is_kept(&project, &key) {
        true if is_live => Some(nb(Verb::Shutdown).notebook(path).into()),
        true => Some(hint![nb(Verb::Open).notebook(path), " makes a new one"]),
        false => None,
    }
}

/// Returns where `nb mv` has moved a notebook.
fn moved_to(path: &Path) -> Option<PathBuf> {
    let project = Project::find(path)?;
    let key = project.key(path);
    let now = project.current_key(&key);
    (now != key).then(|| project.notebook(&now))
}

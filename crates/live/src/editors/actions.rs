//! What a person asks `nb` for in an editor: to interrupt a run, to take an edit back, to compare a cell with its text
//! before an edit.

use serde::Deserialize;

use crate::editing::edit::Editor;
use crate::editing::history;
use crate::editing::notebook_file::NotebookFile;
use crate::lifecycle::interrupt::interrupt;
use crate::notebook::Revision;
use crate::project::Project;

/// How many actions are under way at most. Another one is refused.
pub(super) const MOST: usize = 16;

/// What a person asks for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Action {
    /// Interrupt what the kernel runs, if it is this request.
    Interrupt {
        /// The request, as `activity` named it.
        run: String,
    },
    /// Take an edit back.
    Undo {
        /// The edit, as `marks` named it.
        edit: String,
    },
    /// Return the text of a cell before an edit: `compared` is the answer.
    Compare {
        /// The cell.
        cell: String,
        /// The revision, as `marks` named it.
        before: String,
    },
}

impl Action {
    /// Returns the name of the message.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Interrupt { .. } => "interrupt",
            Self::Undo { .. } => "undo",
            Self::Compare { .. } => "compare",
        }
    }
}

/// An action that has ended.
pub(super) struct Ended {
    pub(super) doc: String,
    pub(super) action: Action,
    /// The text that was asked for, if one was; else why nothing was done, for a reader.
    pub(super) result: Result<Option<String>, String>,
}

/// Does what a person asks for.
pub(super) async fn act(doc: String, action: Action, file: NotebookFile, by: String) -> Ended {
    let result = match action.clone() {
        Action::Interrupt { run } => {
            let interrupted = interrupt_run(&file.project, &file.key, &run, &by).await;
            interrupted.map(|()| None)
        }
        Action::Undo { edit } => blocking(move || undo(&file, &edit, by))
            .await
            .map(|()| None),
        Action::Compare { before, .. } => blocking(move || text(&file, &before)).await.map(Some),
    };
    Ended {
        doc,
        action,
        result,
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

async fn interrupt_run(project: &Project, key: &str, run: &str, by: &str) -> Result<(), String> {
    let state = project.state().map_err(|error| error.to_string())?;
    let owner = state.owner_key(key);
    let session = state.session(key).ok_or("there is no kernel")?;
    let running = project.present(&owner, session.generation).running;
    if running.is_none_or(|it| it.msg_id != run) {
        return Err("it does not run any more".to_owned());
    }
    let interrupted = interrupt(project, &owner, &session, by).await;
    interrupted.map(drop).map_err(|error| error.to_string())
}

fn undo(file: &NotebookFile, edit: &str, by: String) -> Result<(), String> {
    let editor = Editor {
        by,
        force: false,
        now: true,
        // The person sees the notebook.
        must_have_seen: false,
        progress: |_| {},
        notices: Default::default(),
        shown: Default::default(),
        shows_whole: false,
    };
    let undone = history::undo(file, Some(edit), &editor);
    undone.map(drop).map_err(|error| error.to_string())
}

fn text(file: &NotebookFile, revision: &str) -> Result<String, String> {
    let revision: Option<Revision> = revision.parse().ok();
    let text = revision.and_then(|revision| history::version_source(file, revision));
    text.ok_or_else(|| "the text before the edit is not stored any more".to_owned())
}

//! What a call would do, before it is made: for a client that asks its person first.
//!
//! It is the request `nb/preview`, which is no part of the protocol, with the name and the arguments of a call. The
//! arguments are read as the call itself reads them.

use rmcp::RoleServer;
use rmcp::model::JsonObject;
use rmcp::service::RequestContext;
use serde::{Deserialize, Serialize};

use super::arguments::{
    AnswerInput, ApplyEdits, CreateCell, DeleteCell, History, HistoryAction, Kernel, KernelAction,
    OpenNotebook, RunCell, UpdateCell,
};
use super::requests::{EditArguments, RequestedEdit, ToRun, policy, read};
use super::session::Session;
use super::tools::ToolName;
use crate::api::caller::Caller;
use crate::api::problem::Problem;
use crate::api::{self, CellsToRun, EditRequest, PlannedChange};
use crate::notebook::Operation;
use crate::notebook::visible;

/// The request's method.
pub(super) const METHOD: &str = "nb/preview";

/// The call of which a client wants a preview.
#[derive(Debug, Deserialize)]
pub(super) struct PreviewedCall {
    pub(super) name: String,
    #[serde(default)]
    pub(super) arguments: JsonObject,
}

/// What a call would do.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct CallPreview {
    /// Whether it changes nothing and runs nothing. The other fields are empty then.
    reads: bool,
    /// `edit`, `delete` or `execute`.
    kind: &'static str,
    /// All of it in one line.
    title: String,
    /// What it writes and runs. All characters are visible.
    parts: Vec<PreviewPart>,
}

/// A text that a call writes or runs.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct PreviewPart {
    /// What is done with it: `run cell 3 · 23a3`.
    label: String,
    /// The text that it replaces.
    old: Option<String>,
    /// The text.
    text: String,
    /// Whether it is code, or may become code.
    is_code: bool,
}

impl PreviewPart {
    fn new(label: &str, text: &str, is_code: bool) -> Self {
        Self {
            label: label.to_owned(),
            old: None,
            text: visible(text).into_owned(),
            is_code,
        }
    }

    fn of(cell: PlannedChange) -> Self {
        Self {
            label: visible(&cell.action).into_owned(),
            old: cell.before.map(|text| visible(&text).into_owned()),
            text: visible(&cell.after).into_owned(),
            is_code: !cell.is_removed,
        }
    }
}

impl CallPreview {
    fn reads() -> Self {
        Self {
            reads: true,
            ..Self::default()
        }
    }

    fn new(kind: &'static str, title: impl Into<String>, parts: Vec<PreviewPart>) -> Self {
        Self {
            reads: false,
            kind,
            title: visible(&title.into()).into_owned(),
            parts,
        }
    }
}

impl Session {
    /// Returns what a call would do. Nothing is done.
    ///
    /// # Errors
    /// Its arguments make no sense, or it cannot be done as the notebook is now.
    pub(super) async fn preview(
        &self,
        tool: ToolName,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallPreview, Problem> {
        match tool {
            ToolName::Notebooks
            | ToolName::GetNotebookState
            | ToolName::ReadCell
            | ToolName::GetRunStatus
            | ToolName::Variables => Ok(CallPreview::reads()),
            ToolName::OpenNotebook => Ok(open_notebook(&read(arguments)?.0)),
            ToolName::CreateCell => self.preview_edit::<CreateCell>(arguments, context).await,
            ToolName::UpdateCell => self.preview_edit::<UpdateCell>(arguments, context).await,
            ToolName::DeleteCell => self.preview_edit::<DeleteCell>(arguments, context).await,
            ToolName::ApplyEdits => self.preview_edit::<ApplyEdits>(arguments, context).await,
            ToolName::RunCell => {
                let call = self.target::<RunCell>(arguments, context)?;
                run_cell(&call.caller, call.arguments.to_run()?).await
            }
            ToolName::AnswerInput => {
                let (answer, _) = read::<AnswerInput>(arguments)?;
                let part = PreviewPart::new("the answer", &answer.text, false);
                let title = "answer a question of running code";
                Ok(CallPreview::new("execute", title, vec![part]))
            }
            ToolName::Kernel => Ok(kernel(&read(arguments)?.0)),
            ToolName::History => {
                let call = self.target::<History>(arguments, context)?;
                history(&call.caller, &call.arguments).await
            }
        }
    }

    async fn preview_edit<T: EditArguments>(
        &self,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallPreview, Problem> {
        let call = self.target::<T>(arguments, context)?;
        edit(&call.caller, call.arguments.edit()?).await
    }
}

fn open_notebook(arguments: &OpenNotebook) -> CallPreview {
    let path = |path: &std::path::PathBuf| path.display().to_string();
    let chosen = [
        ("kernelspec", arguments.kernel.clone()),
        ("Python", arguments.python.as_ref().map(path)),
        ("the kernel of", arguments.kernel_of.as_ref().map(path)),
        ("server", arguments.server.clone()),
    ];
    let parts = chosen.into_iter().filter_map(|(label, value)| {
        let value = value?;
        Some(PreviewPart::new(label, &value, false))
    });
    let name = arguments.notebook.display().to_string();
    let name = visible(&name);
    let title = format!("open {name}: create it if there is none, and start its kernel");
    CallPreview::new("execute", title, parts.collect())
}

/// Returns what an edit, and the run of the written cells after it, would do.
async fn edit(caller: &Caller, edit: RequestedEdit) -> Result<CallPreview, Problem> {
    let RequestedEdit {
        operations,
        force,
        run_timeout,
    } = edit;
    let runs = run_timeout.is_some();
    let removes = |it: &Operation| matches!(it, Operation::Remove { .. });
    let kind = match runs {
        true => "execute",
        false if operations.iter().any(removes) => "delete",
        false => "edit",
    };
    let request = EditRequest {
        is_list: operations.len() > 1,
        operations,
        policy: policy(force),
    };
    let cells = api::planned_edit(caller, request).await?;
    let mut title = actions(&cells);
    if runs {
        title.push_str(", and run that");
    }
    if force {
        title.push_str(", also over what others changed");
    }
    let parts = cells.into_iter().map(PreviewPart::of);
    Ok(CallPreview::new(kind, title, parts.collect()))
}

async fn run_cell(caller: &Caller, to_run: ToRun) -> Result<CallPreview, Problem> {
    let cells = match to_run {
        ToRun::Code(code) => {
            let parts = vec![PreviewPart::new("run", &code, true)];
            let title = "run code outside of the notebook";
            return Ok(CallPreview::new("execute", title, parts));
        }
        ToRun::Cells(cells) => api::planned_run(caller, cells).await?,
        ToRun::Verify => {
            let all = CellsToRun {
                all: true,
                ..CellsToRun::default()
            };
            let cells = api::planned_run(caller, all).await?.into_iter();
            let title = "run all cells in a fresh kernel, in a private copy of the folder";
            let parts = cells.map(PreviewPart::of).collect();
            return Ok(CallPreview::new("execute", title, parts));
        }
    };
    let title = actions(&cells);
    let parts = cells.into_iter().map(PreviewPart::of);
    Ok(CallPreview::new("execute", title, parts.collect()))
}

fn kernel(arguments: &Kernel) -> CallPreview {
    let title = match arguments.action {
        KernelAction::Status => return CallPreview::reads(),
        KernelAction::Interrupt => match &arguments.run_id {
            Some(run) => format!("interrupt the run {run}"),
            None => "interrupt what the kernel runs".to_owned(),
        },
        KernelAction::Restart => "restart the kernel, which loses its variables".to_owned(),
        KernelAction::Shutdown => "end the kernel, which loses its variables".to_owned(),
        KernelAction::Packages if arguments.add.is_empty() && arguments.remove.is_empty() => {
            return CallPreview::reads();
        }
        KernelAction::Packages => {
            let [add, remove] = [&arguments.add, &arguments.remove].map(|names| names.join(" "));
            let label = match add.is_empty() {
                true => "remove packages of the kernel's environment",
                false => "add packages to the kernel's environment, which runs their code",
            };
            let part = PreviewPart::new(label, &format!("{add}{remove}"), false);
            return CallPreview::new("execute", label, vec![part]);
        }
    };
    let title = match arguments.force {
        true => format!("{title}, even if that ends others' work"),
        false => title,
    };
    CallPreview::new("execute", title, Vec::new())
}

async fn history(caller: &Caller, arguments: &History) -> Result<CallPreview, Problem> {
    let (title, cells) = match arguments.action {
        HistoryAction::Log | HistoryAction::Versions | HistoryAction::Diff => {
            return Ok(CallPreview::reads());
        }
        HistoryAction::Undo => {
            let (op, cells) = api::planned_undo(caller, arguments.undo()).await?;
            (format!("undo {op}"), cells)
        }
        HistoryAction::Restore => {
            let cells = api::planned_restore(caller, arguments.restore()?).await?;
            (format!("restore: {}", actions(&cells)), cells)
        }
    };
    let title = match arguments.force {
        true => format!("{title}, also over what others changed"),
        false => title,
    };
    let parts = cells.into_iter().map(PreviewPart::of);
    Ok(CallPreview::new("edit", title, parts.collect()))
}

/// Returns what is done to cells in one line.
fn actions(cells: &[PlannedChange]) -> String {
    match cells {
        [] => "change nothing, and run nothing".to_owned(),
        [cell] => cell.action.clone(),
        [first, rest @ ..] => format!("{}, and {} more", first.action, rest.len()),
    }
}

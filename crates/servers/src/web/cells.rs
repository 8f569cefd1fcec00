//! REST: the cells of a notebook, read and changed.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::access::FRAMES;
use super::notebook_request::{NotebookCall, Precondition, route};
use super::reply::Reply;
use super::server::WebServer;
use crate::api::caller::Caller;
use crate::api::envelope::Answer;
use crate::api::problem::{Problem, ProblemKind};
use crate::api::{
    self, CellAnswer, CellRequest, DeletedCellsRequest, DiffedSource, EditAnswer, EditPolicy,
    EditRequest, MoveRequest, NotebookSummary, OutputAnswer, OutputForm, OutputRequest,
    RestoreRequest, Rewrite, SearchRequest, SearchScope, ShownCell, SourceDiffRequest, UndoRequest,
};
use crate::notebook::{CellSelector, CellType, Operation, Revision};

/// How many deleted cells are listed.
const DELETED_MAX: usize = 50;

/// How many lines a search returns.
const MATCHES_MAX: usize = 200;

pub(super) fn routes() -> Router<Arc<WebServer>> {
    let path = |rest: &str| format!("/api/notebooks/{{id}}{rest}");
    let cell_routes = get(route(Precondition::Cell, cell))
        .put(route(Precondition::Revision, edit))
        .delete(route(Precondition::Revision, remove));
    let move_route = post(route(Precondition::Revision, move_cell));
    Router::new()
        .route(&path(""), get(route(Precondition::Notebook, notebook)))
        .route(&path("/cells"), post(route(Precondition::Notebook, insert)))
        .route(&path("/cells/{cell}"), cell_routes)
        .route(&path("/cells/{cell}/move"), move_route)
        .route(&path("/cells/{cell}/attachments"), get(route(Precondition::Cell, attachments)))
        .route(&path("/cells/{cell}/running"), get(route(Precondition::Cell, running)))
        .route(&format!("{FRAMES}{{id}}/{{cell}}/{{output}}"), get(route(Precondition::Cell, frame)))
        // The cell may be deleted.
        .route(&path("/cells/{cell}/diff"), post(route(Precondition::Notebook, source_diff)))
        .route(&path("/cells/{cell}/restore"), post(route(Precondition::Notebook, restore)))
        .route(&path("/widgets"), get(route(Precondition::Notebook, widgets)))
        .route(&path("/clear"), post(route(Precondition::Notebook, clear)))
        .route(&path("/search"), get(route(Precondition::Notebook, search)))
        .route(&path("/rename"), post(route(Precondition::Notebook, rename)))
        .route(&path("/file"), get(route(Precondition::Notebook, file)))
        .route(&path("/undo"), post(route(Precondition::Notebook, undo)))
        .route(&path("/deleted"), get(route(Precondition::Notebook, deleted)))
}

/// What a running cell has printed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RunningCellAnswer {
    /// The number of the last message over the websocket before this answer: what follows has greater ones.
    number: u64,
    /// Its outputs until then, as a notebook of format 4 has them; very long ones lack their middle. None if the cell is not
    /// run by `nb` now.
    outputs: Option<Vec<Value>>,
}

impl Answer for RunningCellAnswer {}

/// `GET /api/notebooks/{id}/cells/{cell}/running`
async fn running(call: NotebookCall) -> Result<Reply, Problem> {
    let (number, outputs) = call.outputs_until_now();
    Reply::of(&RunningCellAnswer { number, outputs })
}

/// How many notebooks are read at a time: each is whole in memory, and many pages read at once what has changed.
static READS: Semaphore = Semaphore::const_new(2);

/// A notebook with its cells.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct WebNotebook {
    #[serde(flatten)]
    notebook: NotebookSummary,
    cells: Vec<WebCell>,
}

/// A cell, and which outputs it has.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct WebCell {
    #[serde(flatten)]
    cell: ShownCell,
    /// As much of its id as distinguishes it: its name for people.
    short_id: String,
    /// A hash of the outputs, the execution count and the state: what a revision says nothing about.
    outputs_digest: String,
}

impl WebCell {
    fn of(cell: ShownCell) -> Self {
        let mut hash = Sha256::new();
        hash.update(cell.outputs_digest.unwrap_or_default());
        // What cannot be written is also not in the answer.
        let parts = (cell.execution_count, cell.state);
        hash.update(serde_json::to_vec(&parts).unwrap_or_default());
        Self {
            outputs_digest: hex::encode(&hash.finalize()[..8]),
            short_id: cell.short_id.clone(),
            cell,
        }
    }
}

/// Reads cells, with or without their outputs; all without a selector.
async fn read_cells(
    caller: &Caller,
    cells: Vec<CellSelector>,
    has_outputs: bool,
) -> Result<WebNotebook, Problem> {
    let request = CellRequest {
        all: cells.is_empty(),
        cells,
        outputs: match has_outputs {
            true => OutputForm::Raw,
            false => OutputForm::Omitted,
        },
    };
    // It is never closed.
    let _read = READS.acquire().await;
    let CellAnswer {
        notebook, cells, ..
    } = api::cell(caller, request).await?;
    Ok(WebNotebook {
        notebook,
        cells: cells.into_iter().map(WebCell::of).collect(),
    })
}

/// `GET /api/notebooks/{id}`
async fn notebook(call: NotebookCall) -> Result<Reply, Problem> {
    let has_outputs = call.field("outputs").as_deref() != Some("false");
    let cells = call.field("cells").unwrap_or_default();
    let cells = cells.split(',').filter(|id| !id.is_empty());
    let cells = cells.map(|id| CellSelector::Id(id.to_owned())).collect();
    let answer = read_cells(&call.caller, cells, has_outputs).await?;
    let revision = answer.notebook.revision;
    Ok(Reply::of(&answer)?.with_revision(Some(revision)))
}

/// `GET /api/notebooks/{id}/cells/{cell}`
async fn cell(call: NotebookCall) -> Result<Reply, Problem> {
    let answer = read_cells(&call.caller, vec![call.cell()], true).await?;
    let cell = answer.cells.first();
    let revision = cell.map(|cell| cell.cell.revision);
    Ok(Reply::of(&cell)?.with_revision(revision))
}

/// `GET /api/notebooks/{id}/cells/{cell}/attachments`
async fn attachments(call: NotebookCall) -> Result<Reply, Problem> {
    Reply::of(&api::attachments(&call.caller, call.cell()).await?)
}

/// `GET /api/notebooks/{id}/widgets`
async fn widgets(call: NotebookCall) -> Result<Reply, Problem> {
    Reply::of(&api::widgets(&call.caller).await?)
}

/// `GET /frames/{id}/{cell}/{output}`: the HTML of an output, as a document for a frame (`access`).
async fn frame(call: NotebookCall) -> Result<Reply, Problem> {
    let request = OutputRequest {
        cells: vec![call.cell()],
        number: call.output(),
        mime: Some("text/html".to_owned()),
        image_size: None,
        to_file: false,
    };
    let _read = READS.acquire().await;
    match api::output(&call.caller, request).await? {
        OutputAnswer::Text(html) => Ok(Reply::of_html([b"<!doctype html>\n", &*html].concat())),
        OutputAnswer::Bytes { .. } | OutputAnswer::File(_) => {
            Ok(Reply::of_missing("the output has no HTML".to_owned()))
        }
    }
}

/// A new source or type of a cell.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct CellBody {
    /// The whole source; without it the source stays.
    source: Option<String>,
    /// The source that the new one was written from. With it, lines that others have changed since are kept, where the cell
    /// does not have the revision of `If-Match` any more.
    base: Option<String>,
    /// Whether both texts are kept where others have changed the same lines.
    #[serde(default)]
    both: bool,
    /// The type; without it the type stays.
    #[serde(rename = "type")]
    cell_type: Option<CellType>,
}

/// `PUT /api/notebooks/{id}/cells/{cell}`
async fn edit(call: NotebookCall) -> Result<Reply, Problem> {
    let body: CellBody = call.body()?;
    let cell = call.cell();
    let operation = match body {
        CellBody {
            source: Some(source),
            base: Some(base),
            both: keeps_both,
            cell_type: None,
        } => {
            let rewrite = Rewrite {
                cell,
                revision: call.if_rev,
                base,
                source,
                keeps_both,
            };
            let answer = api::rewrite(&call.caller, rewrite, EditPolicy::default()).await?;
            return reply_of(&answer, &answer);
        }
        CellBody { base: Some(_), .. } | CellBody { both: true, .. } => {
            let text = "`base` and `both` are for a new source, without a new type";
            return Err(Problem::new(ProblemKind::Usage, text));
        }
        CellBody {
            source, cell_type, ..
        } => Operation::Edit {
            cell,
            if_rev: call.if_rev,
            source,
            cell_type,
            metadata: Vec::new(),
        },
    };
    apply_edit(&call.caller, operation).await
}

/// Which two texts of a cell are compared. Without a text and without a version there is none.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct SourceDiffBody {
    /// The revision of the earlier one.
    before: Option<Revision>,
    /// The revision of the later one.
    after: Option<Revision>,
    /// The later one, if it is not in the notebook.
    text: Option<String>,
}

/// `POST /api/notebooks/{id}/cells/{cell}/diff`
async fn source_diff(call: NotebookCall) -> Result<Reply, Problem> {
    let SourceDiffBody {
        before,
        after,
        text,
    } = call.body()?;
    let request = SourceDiffRequest {
        cell: call.cell_id().to_owned(),
        before,
        after: match (text, after) {
            (Some(text), _) => DiffedSource::Text(text),
            (None, Some(revision)) => DiffedSource::Version(revision),
            (None, None) => DiffedSource::Nothing,
        },
    };
    Reply::of(&api::source_diff(&call.caller, request).await?)
}

/// Whose outputs are cleared.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ClearBody {
    /// The ids of the cells; all if there are none.
    #[serde(default)]
    cells: Vec<String>,
}

/// `POST /api/notebooks/{id}/clear`
async fn clear(call: NotebookCall) -> Result<Reply, Problem> {
    let ClearBody { cells } = call.body()?;
    let cells = cells.into_iter().map(CellSelector::Id).collect();
    apply_edit(&call.caller, Operation::Clear { cells }).await
}

/// `GET /api/notebooks/{id}/search`: in sources and outputs, whatever the case of letters.
async fn search(call: NotebookCall) -> Result<Reply, Problem> {
    let request = SearchRequest {
        pattern: call.field("text").unwrap_or_default(),
        is_text: true,
        ignores_case: true,
        within: SearchScope::All,
        paths: Vec::new(),
        limit: Some(MATCHES_MAX),
    };
    Reply::of(&api::search(&call.caller, request).await?)
}

/// The new path of a notebook.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RenameBody {
    /// The path below the folder of the server.
    to: String,
}

/// `POST /api/notebooks/{id}/rename`: moves the notebook with its kernel and its history.
async fn rename(call: NotebookCall) -> Result<Reply, Problem> {
    let RenameBody { to } = call.body()?;
    let request = MoveRequest {
        from: call.notebook()?,
        to: call.notebook_named(&to)?,
    };
    Reply::of(&api::move_to(&call.caller, request).await?)
}

/// `GET /api/notebooks/{id}/file`
async fn file(call: NotebookCall) -> Result<Reply, Problem> {
    let text = api::notebook_text(&call.caller).await?;
    Ok(Reply::of_file(text.into_bytes()))
}

/// `DELETE /api/notebooks/{id}/cells/{cell}`
async fn remove(call: NotebookCall) -> Result<Reply, Problem> {
    let operation = Operation::Remove {
        cells: vec![call.cell()],
        if_rev: call.if_rev,
    };
    apply_edit(&call.caller, operation).await
}

/// A new cell, and its place: at the end without one.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct NewCellBody {
    /// The source.
    #[serde(default)]
    source: String,
    /// The type; code by default.
    #[serde(rename = "type")]
    cell_type: Option<CellType>,
    /// The id of the cell that it comes after.
    after: Option<String>,
    /// The id of the cell that it comes before.
    before: Option<String>,
    /// The index that it takes, from 0.
    index: Option<i64>,
}

/// `POST /api/notebooks/{id}/cells`
async fn insert(call: NotebookCall) -> Result<Reply, Problem> {
    let body: NewCellBody = call.body()?;
    let operation = Operation::Insert {
        after: body.after.map(CellSelector::Id),
        before: body.before.map(CellSelector::Id),
        at: body.index,
        id: None,
        cell_type: body.cell_type,
        source: body.source,
        metadata: None,
    };
    let reply = apply_edit(&call.caller, operation).await?;
    Ok(reply.with_status(StatusCode::CREATED))
}

/// The new place of a cell: one of these.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct MoveBody {
    /// The id of the cell that it comes after.
    after: Option<String>,
    /// The id of the cell that it comes before.
    before: Option<String>,
    /// Its new index, from 0.
    index: Option<i64>,
}

/// `POST /api/notebooks/{id}/cells/{cell}/move`
async fn move_cell(call: NotebookCall) -> Result<Reply, Problem> {
    let body: MoveBody = call.body()?;
    let operation = Operation::Move {
        cell: call.cell(),
        if_rev: call.if_rev,
        after: body.after.map(CellSelector::Id),
        before: body.before.map(CellSelector::Id),
        to: body.index,
    };
    apply_edit(&call.caller, operation).await
}

/// Makes an edit.
async fn apply_edit(caller: &Caller, operation: Operation) -> Result<Reply, Problem> {
    let request = EditRequest {
        operations: vec![operation],
        is_list: false,
        policy: EditPolicy::default(),
    };
    let answer = api::edit(caller, request).await?;
    reply_of(&answer, &answer)
}

/// Returns an answer that has an edit. Its revision is that of the one cell that was changed. Where another program saved
/// the same lines during the edit, the reply is that conflict.
fn reply_of(answer: &impl Serialize, edit: &EditAnswer) -> Result<Reply, Problem> {
    if let Some(problem) = &edit.error {
        return Ok(Reply::of_problem(problem));
    }
    let revision = match edit.changes.as_slice() {
        [change] => change.after,
        _ => None,
    };
    Ok(Reply::of(answer)?.with_revision(revision))
}

/// Which edit is taken back.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct UndoBody {
    /// The edit; without it the last one of the page.
    op: Option<String>,
    /// Also where the same lines were changed again since.
    #[serde(default)]
    force: bool,
}

/// `POST /api/notebooks/{id}/undo`
async fn undo(call: NotebookCall) -> Result<Reply, Problem> {
    let UndoBody { op, force } = call.body()?;
    let policy = EditPolicy { force, now: false };
    let answer = api::undo(&call.caller, UndoRequest { op, policy }).await?;
    reply_of(&answer, &answer.edit)
}

/// Which version of a cell comes back.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RestoreBody {
    /// The version; without it the last one that is not the present one.
    revision: Option<Revision>,
}

/// `POST /api/notebooks/{id}/cells/{cell}/restore`
async fn restore(call: NotebookCall) -> Result<Reply, Problem> {
    let RestoreBody { revision } = call.body()?;
    let restore = RestoreRequest {
        cell: call.cell(),
        revision: revision.map(|revision| revision.to_string()),
        policy: EditPolicy::default(),
    };
    let answer = api::restore(&call.caller, restore).await?;
    reply_of(&answer, &answer.edit)
}

/// `GET /api/notebooks/{id}/deleted`
async fn deleted(call: NotebookCall) -> Result<Reply, Problem> {
    let request = DeletedCellsRequest {
        by: None,
        count: DELETED_MAX,
    };
    Reply::of(&api::deleted_cells(&call.caller, request).await?)
}

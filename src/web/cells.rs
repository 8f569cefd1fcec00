//! REST: the cells of a notebook, read and changed.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::kernel::field;
use super::reply::{Reply, if_match, read};
use super::server::WebServer;
use crate::api::caller::Caller;
use crate::api::problem::Problem;
use crate::api::{
    self, CellAnswer, CellRequest, DeletedCellsRequest, EditAnswer, EditPolicy, EditRequest,
    NotebookSummary, OutputForm, RestoreRequest, ShownCell, ShownOutputs, UndoRequest,
};
use crate::notebook::{CellSelector, CellType, Operation, Revision};

/// How many deleted cells are listed.
const MOST_DELETED: usize = 50;

type Server = State<Arc<WebServer>>;

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
    /// A hash of the outputs, the execution count and the state: what a revision says nothing about.
    outputs_digest: String,
}

impl WebCell {
    fn of(mut cell: ShownCell, has_outputs: bool) -> Self {
        let mut hash = Sha256::new();
        // What cannot be written is also not in the answer.
        let parts = (&cell.outputs, cell.execution_count, cell.state);
        hash.update(serde_json::to_vec(&parts).unwrap_or_default());
        let digest = hex::encode(&hash.finalize()[..8]);
        if !has_outputs {
            cell.outputs = ShownOutputs::Omitted;
        }
        Self {
            cell,
            outputs_digest: digest,
        }
    }
}

/// Reads cells, with or without their outputs; all without a selector.
async fn read_cells(
    caller: &Caller,
    cell: Option<CellSelector>,
    has_outputs: bool,
) -> Result<WebNotebook, Problem> {
    let request = CellRequest {
        all: cell.is_none(),
        cells: cell.into_iter().collect(),
        outputs: OutputForm::Raw,
    };
    let CellAnswer {
        notebook, cells, ..
    } = api::cell(caller, request).await?;
    let cells = move || {
        let cells = cells.into_iter();
        cells.map(|cell| WebCell::of(cell, has_outputs)).collect()
    };
    let cells = tokio::task::spawn_blocking(cells).await;
    Ok(WebNotebook {
        notebook,
        cells: cells.map_err(|error| Problem::failed("read the outputs", &error))?,
    })
}

/// `GET /api/notebooks/{id}`
pub(super) async fn notebook(
    State(server): Server,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let has_outputs = field(query.as_deref(), "outputs").as_deref() != Some("false");
    let work = async move |caller: Caller| {
        let answer = read_cells(&caller, None, has_outputs).await?;
        let revision = answer.notebook.revision;
        Ok(Reply::of(&answer)?.with_revision(Some(revision)))
    };
    server.about(id, work).await
}

/// `GET /api/notebooks/{id}/cells/{cell}`
pub(super) async fn cell(
    State(server): Server,
    Path((id, cell)): Path<(String, String)>,
) -> Response {
    let work = async move |caller: Caller, cell| {
        let answer = read_cells(&caller, Some(cell), true).await?;
        let cell = answer.cells.first();
        let revision = cell.map(|cell| cell.cell.revision);
        Ok(Reply::of(&cell)?.with_revision(revision))
    };
    server.about_cell(id, cell, work).await
}

/// A new source or type of a cell.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct CellBody {
    /// The whole source; without it the source stays.
    source: Option<String>,
    /// The type; without it the type stays.
    #[serde(rename = "type")]
    cell_type: Option<CellType>,
}

/// `PUT /api/notebooks/{id}/cells/{cell}`
pub(super) async fn edit(
    State(server): Server,
    Path((id, cell)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let if_rev = match if_match(&headers) {
        Ok(if_rev) => if_rev,
        Err(reply) => return reply.into_response(),
    };
    let work = async move |caller: Caller, cell| {
        let body: CellBody = read(&headers, &body)?;
        let operation = Operation::Edit {
            cell,
            if_rev,
            source: body.source,
            cell_type: body.cell_type,
            metadata: Vec::new(),
        };
        edited(&caller, operation).await
    };
    server.about_cell(id, cell, work).await
}

/// `DELETE /api/notebooks/{id}/cells/{cell}`
pub(super) async fn remove(
    State(server): Server,
    Path((id, cell)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let if_rev = match if_match(&headers) {
        Ok(if_rev) => if_rev,
        Err(reply) => return reply.into_response(),
    };
    let work = async move |caller: Caller, cell| {
        let cells = vec![cell];
        edited(&caller, Operation::Remove { cells, if_rev }).await
    };
    server.about_cell(id, cell, work).await
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
pub(super) async fn insert(
    State(server): Server,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let work = async move |caller: Caller| {
        let body: NewCellBody = read(&headers, &body)?;
        let operation = Operation::Insert {
            after: body.after.map(CellSelector::Id),
            before: body.before.map(CellSelector::Id),
            at: body.index,
            id: None,
            cell_type: body.cell_type,
            source: body.source,
            metadata: None,
        };
        let reply = edited(&caller, operation).await?;
        Ok(reply.with_status(StatusCode::CREATED))
    };
    server.about(id, work).await
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
pub(super) async fn move_cell(
    State(server): Server,
    Path((id, cell)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let if_rev = match if_match(&headers) {
        Ok(if_rev) => if_rev,
        Err(reply) => return reply.into_response(),
    };
    let work = async move |caller: Caller, cell| {
        let body: MoveBody = read(&headers, &body)?;
        let operation = Operation::Move {
            cell,
            if_rev,
            after: body.after.map(CellSelector::Id),
            before: body.before.map(CellSelector::Id),
            to: body.index,
        };
        edited(&caller, operation).await
    };
    server.about_cell(id, cell, work).await
}

/// Makes an edit.
async fn edited(caller: &Caller, operation: Operation) -> Result<Reply, Problem> {
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
pub(super) async fn undo(
    State(server): Server,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let work = async move |caller: Caller| {
        let UndoBody { op, force } = read(&headers, &body)?;
        let policy = EditPolicy { force, now: false };
        let answer = api::undo(&caller, UndoRequest { op, policy }).await?;
        reply_of(&answer, &answer.edit)
    };
    server.about(id, work).await
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
pub(super) async fn restore(
    State(server): Server,
    Path((id, cell)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let work = async move |caller: Caller| {
        let RestoreBody { revision } = read(&headers, &body)?;
        let restore = RestoreRequest {
            cell: CellSelector::Id(cell),
            revision: revision.map(|revision| revision.to_string()),
            policy: EditPolicy::default(),
        };
        let answer = api::restore(&caller, restore).await?;
        reply_of(&answer, &answer.edit)
    };
    server.about(id, work).await
}

/// `GET /api/notebooks/{id}/deleted`
pub(super) async fn deleted(State(server): Server, Path(id): Path<String>) -> Response {
    let work = async move |caller: Caller| {
        let request = DeletedCellsRequest {
            by: None,
            count: MOST_DELETED,
        };
        Reply::of(&api::deleted_cells(&caller, request).await?)
    };
    server.about(id, work).await
}

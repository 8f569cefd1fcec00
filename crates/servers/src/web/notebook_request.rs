//! What requests about a notebook have in common: each route is a function from a [`NotebookCall`] to a reply.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Path, RawQuery, Request};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::reply::{Reply, field, if_match, read};
use super::server::WebServer;
use crate::api::caller::Caller;
use crate::api::problem::{Problem, ProblemKind};
use crate::notebook::{CellSelector, Revision};

/// A request as it comes.
pub(super) struct NotebookRequest {
    server: Arc<WebServer>,
    path: NotebookPath,
    query: Option<String>,
    headers: HeaderMap,
    body: Bytes,
}

/// The names in a path.
#[derive(Deserialize)]
struct NotebookPath {
    id: String,
    cell: Option<String>,
    output: Option<usize>,
}

impl FromRequest<Arc<WebServer>> for NotebookRequest {
    type Rejection = Response;

    async fn from_request(request: Request, server: &Arc<WebServer>) -> Result<Self, Response> {
        let (mut head, body) = request.into_parts();
        let path = Path::from_request_parts(&mut head, server).await;
        let Path(path) = path.map_err(IntoResponse::into_response)?;
        let query = RawQuery::from_request_parts(&mut head, server).await;
        let RawQuery(query) = query.map_err(IntoResponse::into_response)?;
        let headers = head.headers.clone();
        let body = Bytes::from_request(Request::from_parts(head, body), server).await;
        Ok(Self {
            server: server.clone(),
            path,
            query,
            headers,
            body: body.map_err(IntoResponse::into_response)?,
        })
    }
}

/// A request as a route gets it.
pub(super) struct NotebookCall {
    /// Who acts, on which notebook.
    pub(super) caller: Caller,
    /// Which revision a change is made from; `None` is any.
    pub(super) if_rev: Option<Revision>,
    request: NotebookRequest,
}

impl NotebookCall {
    /// Returns the cell that the path names.
    pub(super) fn cell(&self) -> CellSelector {
        CellSelector::Id(self.cell_id().to_owned())
    }

    /// Returns the id of the cell that the path names.
    pub(super) fn cell_id(&self) -> &str {
        self.request.path.cell.as_deref().unwrap_or_default()
    }

    /// Returns the path of the notebook.
    ///
    /// # Errors
    /// It is outside of the server's folder, or no notebook.
    pub(super) fn notebook(&self) -> Result<PathBuf, Problem> {
        self.notebook_named(&self.request.path.id)
    }

    /// Returns the path of a notebook that the request names.
    ///
    /// # Errors
    /// It is outside of the server's folder, or no notebook.
    pub(super) fn notebook_named(&self, id: &str) -> Result<PathBuf, Problem> {
        self.request.server.notebook(id)
    }

    /// Returns the number of the output that the path names.
    pub(super) fn output(&self) -> usize {
        self.request.path.output.unwrap_or_default()
    }

    /// Returns what the cell, which runs, has sent to the pages until now, and the number of the last message.
    pub(super) fn outputs_until_now(&self) -> (u64, Option<Vec<Value>>) {
        let id = &self.request.path.id;
        self.request.server.outputs_until_now(id, self.cell_id())
    }

    /// Reads the body.
    ///
    /// # Errors
    /// The request is another one than expected.
    pub(super) fn body<B: DeserializeOwned>(&self) -> Result<B, Problem> {
        read(&self.request.headers, &self.request.body)
    }

    /// Returns a field of the query.
    pub(super) fn field(&self, name: &str) -> Option<String> {
        field(self.request.query.as_deref(), name)
    }

    /// Returns a number in the query.
    ///
    /// # Errors
    /// The field is no number.
    pub(super) fn number(&self, name: &str) -> Result<Option<usize>, Problem> {
        let read = |text: String| {
            text.parse().map_err(|_| {
                let text = format!("{name}={text} is no number");
                Problem::new(ProblemKind::Usage, text)
            })
        };
        self.field(name).map(read).transpose()
    }
}

/// What must be there before a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precondition {
    /// Nothing: the notebook may be made.
    Nothing,
    /// The notebook.
    Notebook,
    /// The notebook and the cell.
    Cell,
    /// The notebook, the cell, and the revision that a change is made from.
    Revision,
}

/// Makes the handler of a route from what it does.
pub(super) fn route<F>(
    precondition: Precondition,
    work: fn(NotebookCall) -> F,
) -> impl Fn(NotebookRequest) -> BoxFuture<'static, Response> + Clone
where
    F: Future<Output = Result<Reply, Problem>> + 'static,
{
    move |request| Box::pin(serve(request, precondition, work))
}

async fn serve<F>(
    request: NotebookRequest,
    precondition: Precondition,
    work: fn(NotebookCall) -> F,
) -> Response
where
    F: Future<Output = Result<Reply, Problem>> + 'static,
{
    let if_rev = match precondition {
        Precondition::Revision => match if_match(&request.headers) {
            Ok(if_rev) => if_rev,
            Err(reply) => return reply.into_response(),
        },
        _ => None,
    };
    let must_exist = precondition != Precondition::Nothing;
    let cell = matches!(precondition, Precondition::Cell | Precondition::Revision)
        .then(|| request.path.cell.clone());
    let cell = cell.flatten().map(CellSelector::Id);
    let (server, id) = (request.server.clone(), request.path.id.clone());
    let work = move |caller| {
        work(NotebookCall {
            caller,
            if_rev,
            request,
        })
    };
    server.about(id, must_exist, cell, work).await
}

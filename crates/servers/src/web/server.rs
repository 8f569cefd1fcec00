//! What all requests have in common, and the thread that does their work.

use std::path::PathBuf;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::task::LocalPoolHandle;

use super::callers::Callers;
use super::chat::conversation::Conversation;
use super::chat::{AssistantChoice, AssistantSetup, Conversations};
use super::feed::Feed;
use super::follow::NotebookFollower;
use super::jupyter::connections::FrontEnds;
use super::reply::Reply;
use crate::api::caller::Caller;
use crate::api::envelope::Meanwhile;
use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, CellsRequest};
use crate::notebook::CellSelector;

/// How many pages may be connected at a time.
const PAGES_MAX: usize = 32;

/// A running server.
pub(super) struct WebServer {
    callers: Callers,
    pub(super) feed: Arc<Feed>,
    follower: Arc<NotebookFollower>,
    /// The places of connected pages.
    pub(super) pages: Arc<Semaphore>,
    conversations: Arc<Conversations>,
    /// The front ends that are connected by Jupyter's interface.
    pub(super) front_ends: FrontEnds,
    pub(super) started: Timestamp,
    /// The futures of `api` stay on the thread that made them.
    worker: LocalPoolHandle,
}

impl WebServer {
    pub(super) fn new(callers: Callers, assistant: AssistantChoice) -> Self {
        let feed = Arc::new(Feed::new(callers.name()));
        Self {
            conversations: Arc::new(Conversations::new(assistant, callers.root())),
            follower: Arc::new(NotebookFollower::new(callers.clone(), feed.clone())),
            callers,
            feed,
            pages: Arc::new(Semaphore::new(PAGES_MAX)),
            front_ends: FrontEnds::new(),
            started: Timestamp::now(),
            worker: LocalPoolHandle::new(1),
        }
    }

    /// Returns who answers on the pages, or how that is set up.
    pub(super) async fn assistant_setup(&self) -> AssistantSetup {
        self.conversations.setup().await
    }

    /// Returns the conversation about a notebook.
    ///
    /// # Errors
    /// There is no such notebook, or the conversation cannot be stored.
    pub(super) async fn conversation(&self, id: &str) -> Result<Arc<Conversation>, Problem> {
        let notebook = self.callers.notebook(id)?;
        if !notebook.is_file() {
            let text = format!("there is no notebook {id}");
            return Err(Problem::new(ProblemKind::Usage, text));
        }
        // Two names of one notebook are one conversation.
        let id = self
            .callers
            .id_of(&notebook)
            .unwrap_or_else(|| id.to_owned());
        let (conversations, feed) = (self.conversations.clone(), self.feed.clone());
        let worker = self.worker.clone();
        let conversation =
            tokio::task::spawn_blocking(move || conversations.of(&id, &feed, &worker));
        let conversation = conversation.await;
        conversation.map_err(|error| Problem::failed("take up the conversation", &error))?
    }

    /// Does work that is answered in another way than the page's.
    pub(super) async fn ask<T, F>(
        &self,
        work: impl FnOnce(Callers) -> F + Send + 'static,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Problem>> + 'static,
    {
        let callers = self.callers.clone();
        let result = self.worker.spawn_pinned(move || work(callers)).await;
        result.unwrap_or_else(|error| Err(Problem::failed("do this", &error)))
    }

    /// Does work that concerns no notebook.
    pub(super) async fn work<F>(
        self: &Arc<Self>,
        work: impl FnOnce(Caller) -> F + Send + 'static,
    ) -> Response
    where
        F: Future<Output = Result<Reply, Problem>> + 'static,
    {
        let server = self.clone();
        self.on_worker(move || async move {
            let result = async { work(server.callers.caller(None)?).await };
            result.await.unwrap_or_else(|it| Reply::of_problem(&it))
        })
        .await
    }

    /// Returns the path of a notebook that a request names.
    ///
    /// # Errors
    /// It is outside of the server's folder, or no notebook.
    pub(super) fn notebook(&self, id: &str) -> Result<PathBuf, Problem> {
        self.callers.notebook(id)
    }

    /// Returns the name under which the pages act.
    pub(super) fn name(&self) -> &str {
        self.callers.name()
    }

    /// Returns what a running cell has sent to the pages until now, and the number of the last message.
    pub(super) fn outputs_until_now(&self, id: &str, cell: &str) -> (u64, Option<Vec<Value>>) {
        self.follower.outputs_until_now(id, cell)
    }

    /// Does work on a notebook. `cell` is a cell without which the work cannot be done.
    pub(super) async fn about<F>(
        self: &Arc<Self>,
        id: String,
        must_exist: bool,
        cell: Option<CellSelector>,
        work: impl FnOnce(Caller) -> F + Send + 'static,
    ) -> Response
    where
        F: Future<Output = Result<Reply, Problem>> + 'static,
    {
        let server = self.clone();
        self.on_worker(move || async move {
            let result = async {
                let notebook = server.callers.notebook(&id)?;
                if must_exist && !notebook.is_file() {
                    return Ok(Reply::of_missing(format!("there is no notebook {id}")));
                }
                let caller = server.callers.caller(Some(notebook.clone()))?;
                // First, so that no event is missed that the answer does not have.
                if notebook.is_file() {
                    server.follower.follow(&notebook).await?;
                }
                caller.notice().await;
                let result = work(caller.clone()).await;
                if let (Err(problem), Some(cell)) = (&result, cell)
                    && problem.kind == ProblemKind::Failed
                    && !has_cell(&caller, cell).await
                {
                    return Ok(Reply::of_problem(problem).with_status(StatusCode::NOT_FOUND));
                }
                if result.is_ok() {
                    let delivery = move || caller.delivered(&Meanwhile::default());
                    let delivery = tokio::task::spawn_blocking(delivery).await;
                    delivery.map_err(|error| Problem::failed("record what was seen", &error))?;
                }
                result
            };
            result.await.unwrap_or_else(|it| Reply::of_problem(&it))
        })
        .await
    }

    async fn on_worker<F>(&self, work: impl FnOnce() -> F + Send + 'static) -> Response
    where
        F: Future<Output = Reply> + 'static,
    {
        let result = self.worker.spawn_pinned(work).await;
        let result = result.unwrap_or_else(|error| {
            let problem = Problem::failed("do this", &error);
            Reply::of_problem(&problem).with_status(StatusCode::INTERNAL_SERVER_ERROR)
        });
        result.into_response()
    }
}

async fn has_cell(caller: &Caller, cell: CellSelector) -> bool {
    let request = CellsRequest {
        cells: vec![cell],
        ..CellsRequest::default()
    };
    api::cells(caller, request).await.is_ok()
}

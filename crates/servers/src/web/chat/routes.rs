//! REST: the conversation with the assistant about a notebook.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::conversation::Conversation;
use super::turn::TurnLog;
use crate::api::problem::{Problem, ProblemKind};
use crate::web::reply::{Reply, read};
use crate::web::server::WebServer;

/// The longest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The header with the number of the last event that a client has.
const LAST_EVENT_ID: &str = "last-event-id";

type Server = State<Arc<WebServer>>;

/// A message for the assistant.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(in crate::web) struct MessageBody {
    /// What the assistant is to do.
    message: String,
    /// The model that answers; without it the one that the server was started with.
    model: Option<String>,
}

/// The answer to a question of the assistant.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(in crate::web) struct AnswerBody {
    /// The question.
    id: u64,
    /// A letter of the question, or its text.
    text: String,
}

/// Whether there was a turn to stop.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::web) struct StopAnswer {
    stopped: bool,
}

/// It was done.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::web) struct DoneAnswer {}

/// Returns the routes.
pub(in crate::web) fn routes() -> Router<Arc<WebServer>> {
    let chat = get(conversation).post(send_message).delete(forget);
    Router::new()
        .route("/api/assistant", get(setup))
        .route("/api/notebooks/{id}/chat", chat)
        .route("/api/notebooks/{id}/chat/stop", post(stop))
        .route("/api/notebooks/{id}/chat/answer", post(answer))
        .route("/api/notebooks/{id}/chat/{turn}", get(turn))
}

/// `POST /api/notebooks/{id}/chat`
async fn send_message(
    State(server): Server,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let log = async {
        let MessageBody { message, model } = read(&headers, &body)?;
        let usage = |text: &str| Problem::new(ProblemKind::Usage, text);
        if message.trim().is_empty() {
            return Err(usage("the message is empty"));
        }
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(usage("a message has at most 1 MiB"));
        }
        server.conversation(&id).await?.begin_turn(message, model)
    };
    match log.await {
        Ok(log) => stream(log, 0),
        Err(problem) => Reply::of_problem(&problem).into_response(),
    }
}

/// `GET /api/notebooks/{id}/chat`
async fn conversation(State(server): Server, Path(id): Path<String>) -> Response {
    reply(&server, &id, async |it| Reply::of(&it.answer())).await
}

/// `GET /api/assistant`
async fn setup(State(server): Server) -> Response {
    let answer = Reply::of(&server.assistant_setup().await);
    answer
        .unwrap_or_else(|problem| Reply::of_problem(&problem))
        .into_response()
}

/// `GET /api/notebooks/{id}/chat/{turn}`
async fn turn(
    State(server): Server,
    Path((id, turn)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let after = headers
        .get(LAST_EVENT_ID)
        .and_then(|it| it.to_str().ok()?.parse().ok());
    let turn_log = server.conversation(&id).await.map(|it| it.turn(&turn));
    match turn_log {
        Ok(Some(log)) => stream(log, after.unwrap_or_default()),
        Ok(None) => Reply::of_missing(format!("there is no turn {turn}")).into_response(),
        Err(problem) => Reply::of_problem(&problem).into_response(),
    }
}

/// `POST /api/notebooks/{id}/chat/stop`
async fn stop(State(server): Server, Path(id): Path<String>) -> Response {
    let stop = async |it: Arc<Conversation>| Reply::of(&StopAnswer { stopped: it.stop() });
    reply(&server, &id, stop).await
}

/// `POST /api/notebooks/{id}/chat/answer`
async fn answer(
    State(server): Server,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let answer = async |it: Arc<Conversation>| {
        let AnswerBody { id, text } = read(&headers, &body)?;
        it.reply(id, text)?;
        Reply::of(&DoneAnswer {})
    };
    reply(&server, &id, answer).await
}

/// `DELETE /api/notebooks/{id}/chat`
async fn forget(State(server): Server, Path(id): Path<String>) -> Response {
    let forget = async |it: Arc<Conversation>| {
        it.forget().await?;
        Reply::of(&DoneAnswer {})
    };
    reply(&server, &id, forget).await
}

async fn reply(
    server: &Arc<WebServer>,
    id: &str,
    work: impl AsyncFnOnce(Arc<Conversation>) -> Result<Reply, Problem>,
) -> Response {
    let result = async { work(server.conversation(id).await?).await };
    let reply = result.await.unwrap_or_else(|it| Reply::of_problem(&it));
    reply.into_response()
}

fn stream(log: Arc<TurnLog>, after: usize) -> Response {
    let events = Sse::new(log.stream(after));
    events.keep_alive(KeepAlive::default()).into_response()
}

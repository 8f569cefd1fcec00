//! REST: notebooks, kernels, runs, variables and the log.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::reply::{Reply, read};
use super::server::WebServer;
use crate::api::caller::Caller;
use crate::api::job::Unobserved;
use crate::api::problem::{Problem, ProblemKind};
use crate::api::{
    self, CellsToRun, ExecRequest, InterruptJobRequest, InterruptRequest, JobsRequest, LogRequest,
    NotebooksRequest, OpenRequest, QuestionRequest, ReplyRequest, RestartRequest, RunRequest,
    ShutdownRequest, VarsRequest,
};
use crate::notebook::CellSelector;

/// How many notebooks are listed.
const MOST_NOTEBOOKS: usize = 1000;

/// How many variables are listed.
const MOST_VARIABLES: usize = 500;

/// How many entries of the log are returned unless another number is given.
const ENTRIES: usize = 100;

type Server = State<Arc<WebServer>>;

/// Returns a field of a query.
pub(super) fn field(query: Option<&str>, name: &str) -> Option<String> {
    let fields = query.unwrap_or_default().split('&');
    let mut fields = fields.filter_map(|field| field.split_once('='));
    let (_, value) = fields.find(|(known, _)| *known == name)?;
    let value = percent_decode_str(value).decode_utf8().ok()?;
    Some(value.into_owned())
}

/// Returns a number in a query.
fn number(query: Option<&str>, name: &str) -> Result<Option<usize>, Problem> {
    let read = |text: String| {
        text.parse().map_err(|_| {
            let text = format!("{name}={text} is no number");
            Problem::new(ProblemKind::Usage, text)
        })
    };
    field(query, name).map(read).transpose()
}

/// `GET /api/notebooks`
pub(super) async fn notebooks(State(server): Server) -> Response {
    let work = async move |caller: Caller| {
        let request = NotebooksRequest {
            most: MOST_NOTEBOOKS,
            kernels: true,
        };
        Reply::of(&api::notebooks(&caller, request).await?)
    };
    server.work(work).await
}

/// `GET /api/notebooks/{id}/kernel`
pub(super) async fn status(State(server): Server, Path(id): Path<String>) -> Response {
    let work = async move |caller: Caller| Reply::of(&api::status(&caller).await?);
    server.about(id, work).await
}

/// `GET /api/notebooks/{id}/log`
pub(super) async fn log(
    State(server): Server,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let work = async move |caller: Caller| {
        let request = LogRequest {
            count: number(query.as_deref(), "count")?.unwrap_or(ENTRIES),
            by: field(query.as_deref(), "by"),
            ..LogRequest::default()
        };
        Reply::of(&api::log(&caller, request).await?)
    };
    server.about(id, work).await
}

/// `GET /api/notebooks/{id}/variables`
pub(super) async fn variables(
    State(server): Server,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let work = async move |caller: Caller| {
        let request = VarsRequest {
            name: field(query.as_deref(), "name"),
            all: false,
            most: Some(MOST_VARIABLES),
        };
        Reply::of(&api::vars(&caller, request).await?)
    };
    server.about(id, work).await
}

/// `GET /api/notebooks/{id}/jobs`
pub(super) async fn jobs(State(server): Server, Path(id): Path<String>) -> Response {
    let work = async move |caller: Caller| {
        let request = JobsRequest {
            of_notebook: true,
            all: false,
        };
        Reply::of(&api::jobs(&caller, request).await?)
    };
    server.about(id, work).await
}

/// Which kernel is started.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct OpenBody {
    /// The kernelspec; without it the notebook's own.
    kernel: Option<String>,
}

/// `POST /api/notebooks/{id}/open`
pub(super) async fn open(
    State(server): Server,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let work = async move |caller: Caller| {
        let OpenBody { kernel } = read(&headers, &body)?;
        let request = OpenRequest {
            kernel,
            ..OpenRequest::default()
        };
        Reply::of(&api::open(&caller, request).await?)
    };
    server.about_new(id, work).await
}

/// What is run.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RunBody {
    /// The ids of cells, which run in the order of the notebook.
    #[serde(default)]
    cells: Vec<String>,
    /// All code cells.
    #[serde(default)]
    all: bool,
    /// Only cells out of date, of these or of all.
    #[serde(default)]
    stale: bool,
    /// Instead of cells: code, which is not put into the notebook.
    code: Option<String>,
}

/// `POST /api/notebooks/{id}/run`: begins a job, and does not wait for it.
pub(super) async fn run(
    State(server): Server,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let work = async move |caller: Caller| {
        let RunBody {
            cells,
            all,
            stale,
            code,
        } = read(&headers, &body)?;
        let reply = match code {
            Some(_) if !cells.is_empty() || all || stale => {
                let text = "either cells or code are meant";
                return Err(Problem::new(ProblemKind::Usage, text));
            }
            Some(code) => {
                let request = RunRequest {
                    code,
                    max_time: None,
                    follow: None,
                };
                Reply::of(&api::run(&caller, request, &Unobserved).await?)?
            }
            None => {
                let request = ExecRequest {
                    cells: CellsToRun {
                        named: cells.into_iter().map(CellSelector::Id).collect(),
                        all,
                        stale,
                        ..CellsToRun::default()
                    },
                    follow: None,
                    ..ExecRequest::default()
                };
                Reply::of(&api::exec(&caller, request, &Unobserved).await?)?
            }
        };
        Ok(reply.with_status(StatusCode::ACCEPTED))
    };
    server.about(id, work).await
}

/// An answer to a question of a job's code.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ReplyBody {
    /// The job; without it the one that asks.
    job: Option<String>,
    /// The answer, one line.
    text: String,
}

/// `POST /api/notebooks/{id}/reply`
pub(super) async fn reply(
    State(server): Server,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let work = async move |caller: Caller| {
        let ReplyBody { job, text } = read(&headers, &body)?;
        let question = QuestionRequest { job, force: false };
        let question = api::question(&caller, question).await?;
        Reply::of(&api::reply(&caller, ReplyRequest { question, text }).await?)
    };
    server.about(id, work).await
}

/// What is interrupted.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct InterruptBody {
    /// The job to end; without it what the kernel runs.
    job: Option<String>,
    /// Even if another actor runs it.
    #[serde(default)]
    force: bool,
}

/// `POST /api/notebooks/{id}/interrupt`
pub(super) async fn interrupt(
    State(server): Server,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let work = async move |caller: Caller| {
        let InterruptBody { job, force } = read(&headers, &body)?;
        match job {
            Some(job) => {
                let request = InterruptJobRequest { job, force };
                Reply::of(&api::interrupt_job(&caller, request).await?)
            }
            None => Reply::of(&api::interrupt(&caller, InterruptRequest { force }).await?),
        }
    };
    server.about(id, work).await
}

/// How a kernel is replaced or ended.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct EndBody {
    /// Even if that ends others' work.
    #[serde(default)]
    force: bool,
}

/// `POST /api/notebooks/{id}/restart`
pub(super) async fn restart(
    State(server): Server,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let work = async move |caller: Caller| {
        let EndBody { force } = read(&headers, &body)?;
        let request = RestartRequest {
            timeout: None,
            force,
        };
        Reply::of(&api::restart(&caller, request).await?)
    };
    server.about(id, work).await
}

/// `POST /api/notebooks/{id}/shutdown`
pub(super) async fn shutdown(
    State(server): Server,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let work = async move |caller: Caller| {
        let EndBody { force } = read(&headers, &body)?;
        let request = ShutdownRequest {
            force,
            detach: false,
        };
        Reply::of(&api::shutdown(&caller, request).await?)
    };
    server.about(id, work).await
}

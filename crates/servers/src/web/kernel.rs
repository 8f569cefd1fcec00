//! REST: notebooks, kernels, runs, variables, the log, and what depends on what.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;

use super::notebook_request::{NotebookCall, Precondition, route};
use super::reply::Reply;
use super::server::WebServer;
use crate::api::caller::Caller;
use crate::api::job::Unobserved;
use crate::api::problem::{Problem, ProblemKind};
use crate::api::{
    self, CellsToRun, CodeAtCursor, ExecRequest, GraphRequest, InterruptJobRequest,
    InterruptRequest, JobsRequest, LogRequest, NotebooksRequest, OpenRequest, QuestionRequest,
    ReplyRequest, RestartRequest, RunRequest, ShutdownRequest, VarsRequest,
};
use crate::notebook::CellSelector;

/// How many notebooks are listed.
const NOTEBOOKS_MAX: usize = 1000;

/// How many variables are listed.
const VARIABLES_MAX: usize = 500;

/// How many entries of the log are returned unless another number is given.
const LOG_ENTRIES: usize = 100;

pub(super) fn routes() -> Router<Arc<WebServer>> {
    let path = |rest: &str| format!("/api/notebooks/{{id}}/{rest}");
    Router::new()
        .route("/api/notebooks", get(notebooks))
        .route(&path("log"), get(route(Precondition::Notebook, log)))
        .route(&path("kernel"), get(route(Precondition::Notebook, status)))
        .route(
            &path("variables"),
            get(route(Precondition::Notebook, variables)),
        )
        .route(&path("losses"), get(route(Precondition::Notebook, losses)))
        .route(
            &path("complete"),
            post(route(Precondition::Notebook, complete)),
        )
        .route(
            &path("documentation"),
            post(route(Precondition::Notebook, documentation)),
        )
        .route(&path("jobs"), get(route(Precondition::Notebook, jobs)))
        .route(&path("graph"), get(route(Precondition::Notebook, graph)))
        .route(&path("plan"), get(route(Precondition::Notebook, plan)))
        .route(&path("open"), post(route(Precondition::Nothing, open)))
        .route(&path("run"), post(route(Precondition::Notebook, run)))
        .route(&path("reply"), post(route(Precondition::Notebook, reply)))
        .route(
            &path("interrupt"),
            post(route(Precondition::Notebook, interrupt)),
        )
        .route(
            &path("restart"),
            post(route(Precondition::Notebook, restart)),
        )
        .route(
            &path("shutdown"),
            post(route(Precondition::Notebook, shutdown)),
        )
}

/// `GET /api/notebooks`
async fn notebooks(State(server): State<Arc<WebServer>>) -> Response {
    let work = async move |caller: Caller| {
        let request = NotebooksRequest {
            most: NOTEBOOKS_MAX,
            kernels: true,
        };
        Reply::of(&api::notebooks(&caller, request).await?)
    };
    server.work(work).await
}

/// `GET /api/notebooks/{id}/kernel`
async fn status(call: NotebookCall) -> Result<Reply, Problem> {
    Reply::of(&api::status(&call.caller).await?)
}

/// Code that is being written.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct CodeBody {
    /// The code of the cell.
    code: String,
    /// How many Unicode characters stand before the cursor.
    at: usize,
}

impl From<CodeBody> for CodeAtCursor {
    fn from(CodeBody { code, at }: CodeBody) -> Self {
        Self { code, at }
    }
}

/// `POST /api/notebooks/{id}/complete`
async fn complete(call: NotebookCall) -> Result<Reply, Problem> {
    let code = call.body::<CodeBody>()?.into();
    Reply::of(&api::complete(&call.caller, &code).await?)
}

/// `POST /api/notebooks/{id}/documentation`
async fn documentation(call: NotebookCall) -> Result<Reply, Problem> {
    let code = call.body::<CodeBody>()?.into();
    Reply::of(&api::documentation(&call.caller, &code).await?)
}

/// `GET /api/notebooks/{id}/losses`
async fn losses(call: NotebookCall) -> Result<Reply, Problem> {
    Reply::of(&api::losses(&call.caller).await?)
}

/// `GET /api/notebooks/{id}/log`
async fn log(call: NotebookCall) -> Result<Reply, Problem> {
    let request = LogRequest {
        count: call.number("count")?.unwrap_or(LOG_ENTRIES),
        by: call.field("by"),
        ..LogRequest::default()
    };
    Reply::of(&api::log(&call.caller, request).await?)
}

/// `GET /api/notebooks/{id}/variables`
async fn variables(call: NotebookCall) -> Result<Reply, Problem> {
    let request = VarsRequest {
        name: call.field("name"),
        all: false,
        most: Some(VARIABLES_MAX),
    };
    Reply::of(&api::vars(&call.caller, request).await?)
}

/// `GET /api/notebooks/{id}/jobs`
async fn jobs(call: NotebookCall) -> Result<Reply, Problem> {
    let request = JobsRequest { all: false };
    Reply::of(&api::jobs(&call.caller, request).await?)
}

/// `GET /api/notebooks/{id}/graph`
async fn graph(call: NotebookCall) -> Result<Reply, Problem> {
    let request = GraphRequest {
        cells: call
            .field("cell")
            .map(CellSelector::Id)
            .into_iter()
            .collect(),
        assume_order: false,
    };
    Reply::of(&api::graph(&call.caller, request).await?)
}

/// `GET /api/notebooks/{id}/plan`: what a run of stale cells would run.
async fn plan(call: NotebookCall) -> Result<Reply, Problem> {
    let cells = CellsToRun {
        named: call
            .field("cell")
            .map(CellSelector::Id)
            .into_iter()
            .collect(),
        stale: true,
        ..CellsToRun::default()
    };
    Reply::of(&api::plan(&call.caller, cells).await?)
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
async fn open(call: NotebookCall) -> Result<Reply, Problem> {
    let OpenBody { kernel } = call.body()?;
    let request = OpenRequest {
        kernel,
        ..OpenRequest::default()
    };
    Reply::of(&api::open(&call.caller, request).await?)
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
async fn run(call: NotebookCall) -> Result<Reply, Problem> {
    let RunBody {
        cells,
        all,
        stale,
        code,
    } = call.body()?;
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
            Reply::of(&api::run(&call.caller, request, &Unobserved).await?)?
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
            Reply::of(&api::exec(&call.caller, request, &Unobserved).await?)?
        }
    };
    Ok(reply.with_status(StatusCode::ACCEPTED))
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
    /// The number of the question that is answered, as its prompt has it; without it the present one.
    number: Option<u64>,
}

/// `POST /api/notebooks/{id}/reply`
async fn reply(call: NotebookCall) -> Result<Reply, Problem> {
    let ReplyBody { job, text, number } = call.body()?;
    let question = QuestionRequest {
        job,
        force: false,
        number,
    };
    let question = api::question(&call.caller, question).await?;
    Reply::of(&api::reply(&call.caller, ReplyRequest { question, text }).await?)
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
async fn interrupt(call: NotebookCall) -> Result<Reply, Problem> {
    let InterruptBody { job, force } = call.body()?;
    match job {
        Some(job) => {
            let request = InterruptJobRequest { job, force };
            Reply::of(&api::interrupt_job(&call.caller, request).await?)
        }
        None => Reply::of(&api::interrupt(&call.caller, InterruptRequest { force }).await?),
    }
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
async fn restart(call: NotebookCall) -> Result<Reply, Problem> {
    let EndBody { force } = call.body()?;
    let request = RestartRequest {
        timeout: None,
        force,
    };
    Reply::of(&api::restart(&call.caller, request).await?)
}

/// `POST /api/notebooks/{id}/shutdown`
async fn shutdown(call: NotebookCall) -> Result<Reply, Problem> {
    let EndBody { force } = call.body()?;
    let request = ShutdownRequest {
        force,
        detach: false,
    };
    Reply::of(&api::shutdown(&call.caller, request).await?)
}

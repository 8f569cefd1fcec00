//! The requests of Jupyter's REST interface.
//!
//! A body need not say that it is JSON: JupyterLab's library says text. A request with the cookie still has to come from
//! the page (`access`).

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::models::{KernelspecsModel, LiveNotebook, ServerModel, live};
use super::named::{notebook_named, only};
use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, OpenRequest};
use crate::web::callers::Callers;
use crate::web::reply::{Reply, parse};
use crate::web::server::WebServer;

type Server = State<Arc<WebServer>>;

/// Returns a response, or why there is none, as Jupyter's clients read it.
fn answer<T: Serialize>(status: StatusCode, done: Result<T, Refusal>) -> Response {
    let reply = match done {
        Ok(model) => Reply::of(&model).map(|reply| reply.with_status(status)),
        Err(refusal) => return refusal.into_response(),
    };
    reply.map_or_else(
        |problem| Refusal::from(problem).into_response(),
        Reply::into_response,
    )
}

/// Why a request is refused.
pub(super) struct Refusal {
    status: StatusCode,
    message: String,
}

impl Refusal {
    fn missing(message: String) -> Self {
        let status = StatusCode::NOT_FOUND;
        Self { status, message }
    }

    /// Says that a kernel did not do what was asked.
    pub(super) fn failed(message: String) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self { status, message }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        let status = Reply::of_problem(&problem).status();
        let parts = [problem.message].into_iter();
        let parts = parts.chain(problem.lines).chain(problem.hints);
        let message = parts.collect::<Vec<_>>().join("\n");
        Self { status, message }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({"message": self.message, "reason": null});
        let json = axum::http::HeaderValue::from_static("application/json");
        let mut response = (self.status, body.to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(axum::http::header::CONTENT_TYPE, json);
        response
    }
}

async fn all(server: &WebServer) -> Result<Vec<LiveNotebook>, Refusal> {
    let found = server.ask(async |callers| live(&callers).await);
    Ok(found.await?)
}

/// Returns the notebook whose kernel has an id.
pub(super) async fn of_kernel(server: &WebServer, id: &str) -> Result<LiveNotebook, Refusal> {
    let found = all(server).await?.into_iter();
    let mut found = found.filter(|it| it.kernel_id() == id);
    let missing = || Refusal::missing(format!("Kernel does not exist: {id}"));
    found.next().ok_or_else(missing)
}

/// Returns the notebook whose session has an id.
async fn of_session(server: &WebServer, id: &str) -> Result<LiveNotebook, Refusal> {
    let found = all(server).await?.into_iter();
    let mut found = found.filter(|it| it.session_id() == id);
    let missing = || Refusal::missing(format!("Session not found: session_id={id:?}"));
    found.next().ok_or_else(missing)
}

/// `GET /api`
pub(super) async fn version() -> Response {
    let version = env!("CARGO_PKG_VERSION");
    answer(StatusCode::OK, Ok(json!({"version": version})))
}

/// `GET /api/status`
pub(super) async fn status(State(server): Server) -> Response {
    let live = all(&server).await;
    let model = live.map(|live| ServerModel::of(server.started, &live));
    answer(StatusCode::OK, model)
}

/// `GET /api/kernelspecs`
pub(super) async fn kernelspecs(State(server): Server) -> Response {
    let live = all(&server).await;
    answer(StatusCode::OK, live.map(|live| KernelspecsModel::of(&live)))
}

/// `GET /api/kernelspecs/{name}`
pub(super) async fn kernelspec(State(server): Server, Path(name): Path<String>) -> Response {
    let found = async {
        let mut specs = KernelspecsModel::of(&all(&server).await?).kernelspecs;
        let missing = || Refusal::missing(format!("kernelspec {name} not found"));
        specs.remove(&name).ok_or_else(missing)
    };
    answer(StatusCode::OK, found.await)
}

/// `GET /api/kernels`
pub(super) async fn kernels(State(server): Server) -> Response {
    let live = all(&server).await;
    let models =
        |live: Vec<LiveNotebook>| live.iter().map(LiveNotebook::kernel).collect::<Vec<_>>();
    answer(StatusCode::OK, live.map(models))
}

/// `GET /api/kernels/{id}`
pub(super) async fn kernel(State(server): Server, Path(id): Path<String>) -> Response {
    let found = of_kernel(&server, &id).await;
    answer(StatusCode::OK, found.map(|it| it.kernel()))
}

/// What a client wants a kernel for.
#[derive(Debug, Default, Deserialize)]
struct KernelBody {
    /// The variables that jupyter_server passes on.
    #[serde(default)]
    env: HashMap<String, String>,
}

/// `POST /api/kernels`: no kernel is started but that of a notebook.
pub(super) async fn start_kernel(State(server): Server, body: Bytes) -> Response {
    let opened = server.ask(async move |callers| {
        let body: KernelBody = parse(&body)?;
        let live = live(&callers).await?;
        let named = body.env.get("JPY_SESSION_NAME");
        let named = named.filter(|name| name.ends_with(".ipynb"));
        let notebook = match named {
            Some(name) => return open(&callers, name, &live).await,
            None => only(live.iter()),
        };
        let paths = live.iter().map(|it| it.name_and_path().1);
        let hint = "jupyter lab --GatewayClient.allowed_envs=JPY_SESSION_NAME names the notebook";
        let kernel = notebook.and_then(|it| live.iter().find(|live| live.notebook == it));
        kernel.cloned().ok_or_else(|| {
            let text = match live.is_empty() {
                true => "no notebook is named, and no kernel lives below the root".to_owned(),
                false => {
                    let paths = paths.collect::<Vec<_>>().join(", ");
                    format!("no notebook is named, and several kernels live: {paths}")
                }
            };
            Problem::new(ProblemKind::Conflict, text).hint(hint)
        })
    });
    let opened = opened.await.map_err(Refusal::from);
    answer(StatusCode::CREATED, opened.map(|it| it.kernel()))
}

/// Returns the notebook that a client names, with a live kernel: that of a notebook without one is started.
async fn open(
    callers: &Callers,
    named: &str,
    live: &[LiveNotebook],
) -> Result<LiveNotebook, Problem> {
    let below = |path: &std::path::Path| {
        let notebook = callers.notebook(path.to_str()?).ok()?;
        notebook.is_file().then_some(notebook)
    };
    let notebook = notebook_named(named, live, below).ok_or_else(|| {
        let text = format!("there is no notebook {named} below the root");
        Problem::new(ProblemKind::Usage, text)
    })?;
    let is_it = |it: &&LiveNotebook| it.notebook == notebook;
    if let Some(found) = live.iter().find(is_it) {
        return Ok(found.clone());
    }
    let request = OpenRequest {
        no_serve: true,
        ..OpenRequest::default()
    };
    api::open(&callers.jupyter(Some(notebook.clone()))?, request).await?;
    let found = super::models::live(callers).await?;
    found.iter().find(is_it).cloned().ok_or_else(|| {
        let text = format!("the kernel of {named} has ended");
        Problem::new(ProblemKind::NoKernel, text)
    })
}

/// `DELETE /api/kernels/{id}`: the kernel lives on.
pub(super) async fn leave_kernel(State(server): Server, Path(id): Path<String>) -> Response {
    match of_kernel(&server, &id).await {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// `POST /api/kernels/{id}/interrupt`
pub(super) async fn interrupt(State(server): Server, Path(id): Path<String>) -> Response {
    let done = async {
        let done = match server.front_ends.interrupt_connected(id.clone()).await {
            Some(done) => done,
            None => {
                let found = of_kernel(&server, &id).await?;
                server.front_ends.interrupt(found.notebook).await
            }
        };
        done.map_err(Refusal::failed)
    };
    match done.await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// `POST /api/kernels/{id}/restart`
pub(super) async fn restart(State(server): Server, Path(id): Path<String>) -> Response {
    let done = async {
        let found = of_kernel(&server, &id).await?;
        let done = server.front_ends.restart(found.notebook).await;
        done.map_err(Refusal::failed)?;
        of_kernel(&server, &id).await
    };
    answer(StatusCode::OK, done.await.map(|it| it.kernel()))
}

/// `GET /api/sessions`
pub(super) async fn sessions(State(server): Server) -> Response {
    let live = all(&server).await;
    let models =
        |live: Vec<LiveNotebook>| live.iter().map(LiveNotebook::session).collect::<Vec<_>>();
    answer(StatusCode::OK, live.map(models))
}

/// `GET /api/sessions/{id}`
pub(super) async fn session(State(server): Server, Path(id): Path<String>) -> Response {
    let found = of_session(&server, &id).await;
    answer(StatusCode::OK, found.map(|it| it.session()))
}

/// What a client wants a session for, or wants of a session.
#[derive(Debug, Default, Deserialize)]
struct SessionBody {
    path: Option<String>,
    name: Option<String>,
    kernel: Option<WantedKernel>,
}

#[derive(Debug, Default, Deserialize)]
struct WantedKernel {
    id: Option<String>,
}

impl SessionBody {
    /// Returns the id of the kernel that is wanted.
    fn kernel_id(&self) -> Option<&str> {
        let id = self.kernel.as_ref()?.id.as_deref();
        id.filter(|id| !id.is_empty())
    }
}

/// `POST /api/sessions`
pub(super) async fn start_session(State(server): Server, body: Bytes) -> Response {
    let opened = server.ask(async move |callers| {
        let body: SessionBody = parse(&body)?;
        let live = live(&callers).await?;
        if let Some(id) = body.kernel_id() {
            let found = live.iter().find(|it| it.kernel_id() == id).cloned();
            return found.ok_or_else(|| {
                let text = format!("Kernel does not exist: {id}");
                Problem::new(ProblemKind::Usage, text)
            });
        }
        let is_notebook = |name: &&String| name.ends_with(".ipynb");
        let named = body.path.as_ref().filter(is_notebook);
        let named = named.or_else(|| body.name.as_ref().filter(is_notebook));
        let named = named.ok_or_else(|| {
            let text = "a session is a notebook's: its path is that of a .ipynb file";
            Problem::new(ProblemKind::Usage, text)
        })?;
        open(&callers, named, &live).await
    });
    let opened = opened.await.map_err(Refusal::from);
    answer(StatusCode::CREATED, opened.map(|it| it.session()))
}

/// `PATCH /api/sessions/{id}`: a session keeps its notebook and its kernel.
pub(super) async fn change_session(
    State(server): Server,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    let kept = async {
        let body: SessionBody = parse(&body)?;
        let found = of_session(&server, &id).await?;
        match body.kernel_id() {
            Some(kernel) if kernel != found.kernel_id() => {
                let text = "a session here keeps the kernel of its notebook";
                Err(Refusal::from(Problem::new(ProblemKind::Usage, text)))
            }
            _ => Ok(found.session()),
        }
    };
    answer(StatusCode::OK, kept.await)
}

/// `DELETE /api/sessions/{id}`: the kernel lives on.
pub(super) async fn leave_session(State(server): Server, Path(id): Path<String>) -> Response {
    match of_session(&server, &id).await {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

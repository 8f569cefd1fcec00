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
use super::notebook_path::{find_notebook, single_notebook};
use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, OpenRequest};
use crate::web::callers::Callers;
use crate::web::reply::{Reply, parse};
use crate::web::server::WebServer;

type Server = State<Arc<WebServer>>;

/// Returns the response to a request, or to its refusal, in the form of Jupyter's interface.
fn answer<T: Serialize>(status: StatusCode, result: Result<T, Refusal>) -> Response {
    let reply = match result {
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

    /// Returns the refusal for a request that a kernel did not carry out.
    pub(super) fn failed(message: String) -> Self {
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self { status, message }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        let status = Reply::of_problem(&problem).status();
        let hints = problem.hints.iter().map(ToString::to_string);
        let parts = [problem.message].into_iter();
        let parts = parts.chain(problem.lines).chain(hints);
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

async fn live_notebooks(server: &WebServer) -> Result<Vec<LiveNotebook>, Refusal> {
    let live = server.ask(async |callers| live(&callers).await);
    Ok(live.await?)
}

/// Returns the notebook whose kernel has an id.
pub(super) async fn of_kernel(server: &WebServer, id: &str) -> Result<LiveNotebook, Refusal> {
    let live = live_notebooks(server).await?.into_iter();
    let mut live = live.filter(|it| it.kernel_id() == id);
    let missing = || Refusal::missing(format!("Kernel does not exist: {id}"));
    live.next().ok_or_else(missing)
}

/// Returns the notebook whose session has an id.
async fn of_session(server: &WebServer, id: &str) -> Result<LiveNotebook, Refusal> {
    let live = live_notebooks(server).await?.into_iter();
    let mut live = live.filter(|it| it.session_id() == id);
    let missing = || Refusal::missing(format!("Session not found: session_id={id:?}"));
    live.next().ok_or_else(missing)
}

/// `GET /api`
pub(super) async fn version() -> Response {
    let version = env!("CARGO_PKG_VERSION");
    answer(StatusCode::OK, Ok(json!({"version": version})))
}

/// `GET /api/status`
pub(super) async fn status(State(server): Server) -> Response {
    let live = live_notebooks(&server).await;
    let model = live.map(|live| ServerModel::of(server.started, &live));
    answer(StatusCode::OK, model)
}

/// `GET /api/kernelspecs`
pub(super) async fn kernelspecs(State(server): Server) -> Response {
    let live = live_notebooks(&server).await;
    answer(StatusCode::OK, live.map(|live| KernelspecsModel::of(&live)))
}

/// `GET /api/kernelspecs/{name}`
pub(super) async fn kernelspec(State(server): Server, Path(name): Path<String>) -> Response {
    let spec = async {
        let mut specs = KernelspecsModel::of(&live_notebooks(&server).await?).kernelspecs;
        let missing = || Refusal::missing(format!("kernelspec {name} not found"));
        specs.remove(&name).ok_or_else(missing)
    };
    answer(StatusCode::OK, spec.await)
}

/// `GET /api/kernels`
pub(super) async fn kernels(State(server): Server) -> Response {
    let live = live_notebooks(&server).await;
    let models =
        |live: Vec<LiveNotebook>| live.iter().map(LiveNotebook::kernel).collect::<Vec<_>>();
    answer(StatusCode::OK, live.map(models))
}

/// `GET /api/kernels/{id}`
pub(super) async fn kernel(State(server): Server, Path(id): Path<String>) -> Response {
    let notebook = of_kernel(&server, &id).await;
    answer(StatusCode::OK, notebook.map(|it| it.kernel()))
}

/// The body of a request for a kernel.
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
        let name = body.env.get("JPY_SESSION_NAME");
        let name = name.filter(|name| name.ends_with(".ipynb"));
        let notebook = match name {
            Some(name) => return open(&callers, name, &live).await,
            None => single_notebook(live.iter()),
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

/// Returns the notebook that a client names, with a live kernel; starts one if there is none.
async fn open(
    callers: &Callers,
    name: &str,
    live: &[LiveNotebook],
) -> Result<LiveNotebook, Problem> {
    let below = |path: &std::path::Path| {
        let notebook = callers.notebook(path.to_str()?).ok()?;
        notebook.is_file().then_some(notebook)
    };
    let notebook = find_notebook(name, live, below).ok_or_else(|| {
        let text = format!("there is no notebook {name} below the root");
        Problem::new(ProblemKind::Usage, text)
    })?;
    let is_same = |it: &&LiveNotebook| it.notebook == notebook;
    if let Some(live) = live.iter().find(is_same) {
        return Ok(live.clone());
    }
    let request = OpenRequest {
        no_serve: true,
        unchosen: true,
        ..OpenRequest::default()
    };
    api::open(&callers.jupyter(Some(notebook.clone()))?, request).await?;
    let live = super::models::live(callers).await?;
    live.iter().find(is_same).cloned().ok_or_else(|| {
        let text = format!("the kernel of {name} has ended");
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
    let result = async {
        let result = match server.front_ends.interrupt_connected(id.clone()).await {
            Some(result) => result,
            None => {
                let live = of_kernel(&server, &id).await?;
                server.front_ends.interrupt(live.notebook).await
            }
        };
        result.map_err(Refusal::failed)
    };
    match result.await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// `POST /api/kernels/{id}/restart`
pub(super) async fn restart(State(server): Server, Path(id): Path<String>) -> Response {
    let result = async {
        let live = of_kernel(&server, &id).await?;
        let result = server.front_ends.restart(live.notebook).await;
        result.map_err(Refusal::failed)?;
        of_kernel(&server, &id).await
    };
    answer(StatusCode::OK, result.await.map(|it| it.kernel()))
}

/// `GET /api/sessions`
pub(super) async fn sessions(State(server): Server) -> Response {
    let live = live_notebooks(&server).await;
    let models =
        |live: Vec<LiveNotebook>| live.iter().map(LiveNotebook::session).collect::<Vec<_>>();
    answer(StatusCode::OK, live.map(models))
}

/// `GET /api/sessions/{id}`
pub(super) async fn session(State(server): Server, Path(id): Path<String>) -> Response {
    let notebook = of_session(&server, &id).await;
    answer(StatusCode::OK, notebook.map(|it| it.session()))
}

/// The body of a request for a session, or of a change of one.
#[derive(Debug, Default, Deserialize)]
struct SessionBody {
    path: Option<String>,
    name: Option<String>,
    kernel: Option<KernelReference>,
}

#[derive(Debug, Default, Deserialize)]
struct KernelReference {
    id: Option<String>,
}

impl SessionBody {
    /// Returns the id of the requested kernel.
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
            let notebook = live.iter().find(|it| it.kernel_id() == id).cloned();
            return notebook.ok_or_else(|| {
                let text = format!("Kernel does not exist: {id}");
                Problem::new(ProblemKind::Usage, text)
            });
        }
        let is_notebook = |name: &&String| name.ends_with(".ipynb");
        let name = body.path.as_ref().filter(is_notebook);
        let name = name.or_else(|| body.name.as_ref().filter(is_notebook));
        let name = name.ok_or_else(|| {
            let text = "a session is a notebook's: its path is that of a .ipynb file";
            Problem::new(ProblemKind::Usage, text)
        })?;
        open(&callers, name, &live).await
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
    let session = async {
        let body: SessionBody = parse(&body)?;
        let live = of_session(&server, &id).await?;
        match body.kernel_id() {
            Some(kernel) if kernel != live.kernel_id() => {
                let text = "a session here keeps the kernel of its notebook";
                Err(Refusal::from(Problem::new(ProblemKind::Usage, text)))
            }
            _ => Ok(live.session()),
        }
    };
    answer(StatusCode::OK, session.await)
}

/// `DELETE /api/sessions/{id}`: the kernel lives on.
pub(super) async fn leave_session(State(server): Server, Path(id): Path<String>) -> Response {
    match of_session(&server, &id).await {
        Ok(_) => StatusCode::NO_CONTENT.into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

//! An MCP server on stdin and stdout: the commands of `nb` as tools for agents.
//!
//! A tool reads its arguments, calls one function of `api`, and returns the answer twice: as text, and as the
//! JSON object that the command's `--json` prints. Only protocol messages go to stdout.
//!
//! Source of the protocol: <https://modelcontextprotocol.io/specification/2025-11-25>.

mod arguments;
mod calls;
mod commands;
mod lines;
mod result;
mod root;
mod run;
mod tools;

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelledNotificationParam, Implementation,
    ListToolsResult, PaginatedRequestParams, RequestId, ServerCapabilities, ServerConfig,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use tokio::sync::Notify;

use self::lines::BoundedLines;
use self::root::Root;
use self::tools::Allowed;
use crate::activity::actor::Actor;
use crate::api::caller::{Caller, Given};
use crate::api::problem::{Problem, ProblemKind};
use crate::kernel::variables::ProcessVariables;
use crate::project::event::actor_id;

/// How the server is started.
#[derive(Clone, Debug)]
pub struct McpOptions {
    /// The folder whose notebooks clients may name.
    pub root: PathBuf,
    /// The name to act under; `None` is the agent's in the environment, else the client's.
    pub name: Option<String>,
    /// Whether nothing may be changed or run.
    pub read_only: bool,
    /// The tools that may be called; an empty list allows all.
    pub tools: Vec<String>,
    /// Receives a line for each thing that a request waits for.
    pub tell: fn(&str),
}

/// What clients tell their models about the server.
const INSTRUCTIONS: &str = "\
Notebooks with live kernels, shared with people at VS Code or JupyterLab. Name the notebook in each call. \
A cell is its id (a beginning of 3 characters is enough), or its index as a number. Variables, outputs and \
edits are the same for all: answers say what others did meanwhile. A run that goes on after its timeout has a \
run_id: get_run_status follows it. Nothing is lost if a call is cancelled: that interrupts what it runs.";

/// Serves one client until it closes stdin. It must run in a `LocalSet` of tokio.
///
/// # Errors
/// The root is no folder, a tool does not exist, the client does not speak the protocol, or a message is too big.
pub async fn serve(options: McpOptions) -> Result<(), Problem> {
    let server = Server::new(options)?;
    let (stdin, stdout) = rmcp::transport::io::stdio_pipes();
    let (stdin, is_over) = BoundedLines::of(stdin);
    let served = async {
        let service = server.serve((stdin, stdout)).await;
        let service = service.map_err(|error| Problem::failed("serve the client", &error))?;
        let ended = service.waiting().await;
        ended.map_err(|error| Problem::failed("serve the client", &error))
    };
    let served = served.await;
    if is_over.load(Ordering::Relaxed) {
        let text = "the client sent a message of more than 16 MiB, which cannot be answered";
        let problem = Problem::new(ProblemKind::Failed, text);
        return Err(problem.hint("send less in one call, and start nb mcp again"));
    }
    served.map(drop)
}

/// The server of one client.
struct Server {
    root: Root,
    allowed: Allowed,
    /// The name to act under, if it is not the client's.
    name: Option<String>,
    /// The client's session: two clients of one name are two actors.
    session: String,
    tell: fn(&str),
    /// The calls that are under way; each is notified if the client cancels it.
    calls: RefCell<HashMap<RequestId, Rc<Notify>>>,
}

impl Server {
    fn new(options: McpOptions) -> Result<Self, Problem> {
        let allowed = Allowed {
            read_only: options.read_only,
            tools: options.tools,
        };
        if let Some(name) = allowed.unknown() {
            let text = format!("there is no tool {name:?}");
            let names = Allowed::default().names().join(", ");
            return Err(Problem::new(ProblemKind::Usage, text).hint(format!("they are {names}")));
        }
        let session = uuid::Uuid::new_v4().simple().to_string();
        Ok(Self {
            root: Root::of(&options.root)?,
            allowed,
            name: options.name,
            session: session.chars().take(8).collect(),
            tell: options.tell,
            calls: RefCell::default(),
        })
    }

    /// Makes the caller of a request about a notebook.
    fn caller(
        &self,
        notebook: Option<PathBuf>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Caller, Problem> {
        let client = context.client_info().map(|client| client.name);
        Caller::of(Given {
            notebook,
            name: self
                .name
                .clone()
                .or_else(|| self.name_of(client.as_deref())),
            on_terminal: false,
            here: self.root.folder().to_owned(),
            command: "nb".to_owned(),
            tell: self.tell,
            has_own_thread: false,
        })
    }

    /// Returns the client's name with its session, unless the environment names the agent.
    fn name_of(&self, client: Option<&str>) -> Option<String> {
        let (actor, _) = Actor::of_command(None, &ProcessVariables, None, false);
        let name = Actor::name_of_client(client?).filter(|_| actor.is_unnamed_agent())?;
        Some(actor_id(&name, Some(&self.session)))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("nb", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.allowed.list()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.allowed.find(&request.name) else {
            let names = self.allowed.names().join(", ");
            let text = format!("there is no tool {:?}; there are {names}", request.name);
            return Err(ErrorData::invalid_params(text, None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let cancelled = Rc::new(Notify::new());
        let id = context.id.clone();
        self.calls.borrow_mut().insert(id, cancelled.clone());
        let result = self.call(tool, arguments, &context, &cancelled).await;
        self.calls.borrow_mut().remove(&context.id);
        Ok(result.into())
    }

    /// Notifies the call that the client cancels. The request's own token is also cancelled when the client
    /// ends, which must not interrupt what it has begun.
    async fn on_cancelled(
        &self,
        notification: CancelledNotificationParam,
        _: NotificationContext<RoleServer>,
    ) {
        let id = notification.request_id;
        let calls = self.calls.borrow();
        if let Some(cancelled) = id.and_then(|id| calls.get(&id)) {
            cancelled.notify_one();
        }
    }
}

//! Receives the requests of one client.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelledNotificationParam, CustomRequest,
    CustomResult, ErrorCode, Implementation, JsonObject, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, RequestId,
    ServerCapabilities, ServerConfig, SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio_util::task::AbortOnDropHandle;

use super::audit::{RateLimit, TooManyCalls};
use super::commands::problem_lines;
use super::preview::{self, PreviewedCall};
use super::resources::{MOST_SUBSCRIPTIONS, templates};
use super::result::rejected;
use super::session::Session;
use super::tools::ToolName;
use super::turns::{Turn, Turns};
use crate::api::problem::{Problem, ProblemKind};
use crate::notebook::visible_line;

/// What clients tell their models about the server.
const INSTRUCTIONS: &str = "\
Notebooks with live kernels, shared with people at VS Code or JupyterLab. Name the notebook in each call. \
A cell is its id (a beginning of 3 characters is enough), or its index as a number. Lines that begin with ‣ are the \
server's; those of outputs and sources never do. Variables, outputs and \
edits are the same for all: answers say what others did meanwhile. A run that goes on after its timeout has a \
run_id: get_run_status follows it. Cancelling a call interrupts what it runs, and some clients cancel after 60 s: \
run what takes longer with wait: false.";

/// Receives the requests of one client.
pub(super) struct Handler {
    session: Session,
    /// The calls that are under way; each is notified if the client cancels it.
    calls: Mutex<HashMap<RequestId, Arc<Notify>>>,
    limit: Mutex<Option<RateLimit>>,
    turns: Turns,
    /// What the client is subscribed to, by URI.
    subscriptions: Mutex<HashMap<String, AbortOnDropHandle<()>>>,
    versions: Cow<'static, [ProtocolVersion]>,
    /// The place that the session takes up at a server of many.
    _place: Option<OwnedSemaphorePermit>,
}

impl Handler {
    pub(super) fn new(session: Session) -> Self {
        Self {
            calls: Mutex::default(),
            limit: session.rate().map(RateLimit::new).into(),
            turns: Turns::default(),
            session,
            subscriptions: Mutex::default(),
            versions: Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
            _place: None,
        }
    }

    /// Returns a handler for clients over HTTP. It offers the versions of the protocol with HTTP sessions, those before
    /// 2026-07-28.
    pub(super) fn over_http(session: Session, place: OwnedSemaphorePermit) -> Self {
        let versions = ProtocolVersion::KNOWN_VERSIONS.iter();
        let with_sessions = versions.filter(|it| **it < ProtocolVersion::V_2026_07_28);
        Self {
            versions: with_sessions.cloned().collect(),
            _place: Some(place),
            ..Self::new(session)
        }
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<RequestId, Arc<Notify>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tool of a name.
    fn tool(&self, name: &str) -> Result<ToolName, ErrorData> {
        let tool = self.session.allowed().find(name);
        tool.ok_or_else(|| {
            let names = self.session.allowed().names().join(", ");
            let text = format!("there is no tool {name:?}; there are {names}");
            ErrorData::invalid_params(text, None)
        })
    }

    /// Waits for a call's turn, if it has one.
    async fn turn(&self, tool: ToolName, arguments: &JsonObject) -> Turn {
        let notebook = tool.turn_at(arguments).map(Path::new);
        let notebook = notebook.and_then(|it| self.session.root().notebook(it).ok());
        match notebook {
            Some(notebook) => self.turns.next(notebook).await,
            None => Turn::default(),
        }
    }

    /// Counts a call.
    fn count(&self) -> Result<(), TooManyCalls> {
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *limit {
            Some(limit) => limit.count(Instant::now()),
            None => Ok(()),
        }
    }

    fn subscriptions(&self) -> MutexGuard<'_, HashMap<String, AbortOnDropHandle<()>>> {
        let subscriptions = self.subscriptions.lock();
        subscriptions.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a problem as an error of the protocol.
fn error(problem: &Problem) -> ErrorData {
    let lines = problem_lines(problem).into_iter();
    let text: Vec<_> = lines.map(|line| visible_line(&line).into_owned()).collect();
    let text = text.join("\n");
    match problem.kind {
        ProblemKind::Usage | ProblemKind::Refused => ErrorData::invalid_params(text, None),
        _ => ErrorData::internal_error(text, None),
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("nb", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.versions.clone()
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let has_fields = self.session.answer_form(&context).has_fields();
        let tools = self.session.allowed().list(has_fields);
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = self.tool(&request.name)?;
        let form = self.session.answer_form(&context);
        if let Err(refused) = self.count() {
            let mut result = rejected(refused.problem()).await;
            let fields = result.structured_content.as_mut();
            if let Some(error) = fields.and_then(|it| it["error"].as_object_mut()) {
                error.insert("retry_in_s".to_owned(), json!(refused.retry_in_s));
            }
            form.apply(&mut result);
            return Ok(result.into());
        }
        let mut arguments = request.arguments.unwrap_or_default();
        tool.add_defaults(&request.name, &mut arguments);
        let cancelled = Arc::new(Notify::new());
        let id = context.id.clone();
        self.calls().insert(id.clone(), cancelled.clone());
        let call = async {
            let turn = tokio::select! {
                turn = self.turn(tool, &arguments) => turn,
                () = cancelled.notified() => {
                    let problem = Problem::new(ProblemKind::StillRunning, "cancelled");
                    return Ok(rejected(problem).await);
                }
            };
            let cancelled = cancelled.clone();
            let work = self.session.on_worker(async move |session| {
                session
                    .call(tool, arguments, &context, &cancelled, turn)
                    .await
            });
            work.await
        };
        let result = call.await;
        self.calls().remove(&id);
        let mut result = result.map_err(|it| error(&it))?;
        form.apply(&mut result);
        Ok(result.into())
    }

    /// Answers the request for a preview; refuses what is not what the protocol says.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        match &*request.method {
            preview::METHOD => {
                let call = request.params_as::<PreviewedCall>().ok().flatten();
                let call = call.ok_or_else(|| {
                    let text = "a preview has the name and the arguments of a call";
                    ErrorData::invalid_params(text, None)
                })?;
                let PreviewedCall {
                    name,
                    mut arguments,
                } = call;
                let tool = self.tool(&name)?;
                tool.add_defaults(&name, &mut arguments);
                let preview = self.session.on_worker(async move |session| {
                    session.preview(tool, arguments, &context).await
                });
                let preview = preview.await.flatten().map_err(|it| error(&it))?;
                let preview = serde_json::to_value(preview);
                let preview =
                    preview.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                Ok(CustomResult::new(preview))
            }
            "tools/call" => {
                let text = "tools/call has a name, and arguments that are an object";
                Err(ErrorData::invalid_params(text, None))
            }
            method => {
                let text = method.to_owned();
                Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None))
            }
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let list = async move |session: Session| session.resources(&context).await;
        let resources = self.session.on_worker(list).await.flatten();
        Ok(ListResourcesResult::with_all_items(
            resources.map_err(|it| error(&it))?,
        ))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let read = async move |session: Session| session.read_resource(uri, &context).await;
        let read = self.session.on_worker(read).await.flatten();
        Ok(ReadResourceResult::new(vec![read.map_err(|it| error(&it))?]).into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let uri = request.uri;
        let is_full = || {
            let mut subscriptions = self.subscriptions();
            subscriptions.retain(|_, task| !task.is_finished());
            subscriptions.len() >= MOST_SUBSCRIPTIONS && !subscriptions.contains_key(&uri)
        };
        if is_full() {
            let text = format!("there are {MOST_SUBSCRIPTIONS} subscriptions; end one first");
            return Err(ErrorData::invalid_request(text, None));
        }
        let (named, of_request) = (uri.clone(), context.clone());
        let begun = self.session.on_worker(async move |session: Session| {
            session.begin_following(named, &of_request).await
        });
        let followed = begun.await.flatten().map_err(|it| error(&it))?;
        let task = self.session.spawn(async move |session: Session| {
            let result = session.follow(followed, &context).await;
            let _ = result.inspect_err(|problem| {
                tracing::warn!(problem = problem.message, "a subscription has ended");
            });
        });
        self.subscriptions()
            .insert(uri, AbortOnDropHandle::new(task));
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscriptions().remove(&request.uri);
        Ok(())
    }

    /// Notifies the call that the client cancels. The request's own token is also cancelled when the client
    /// ends, which must not interrupt what it has begun.
    async fn on_cancelled(
        &self,
        notification: CancelledNotificationParam,
        _: NotificationContext<RoleServer>,
    ) {
        let id = notification.request_id;
        let calls = self.calls();
        if let Some(cancelled) = id.and_then(|id| calls.get(&id)) {
            cancelled.notify_one();
        }
    }
}

//! Receives the requests of one client.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelledNotificationParam, CustomRequest,
    CustomResult, ErrorCode, Implementation, JsonObject, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, RequestId, ResourceUpdatedNotificationParam,
    ServerCapabilities, ServerConfig, SubscribeRequestParams, SubscriptionFilter,
    UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio_util::task::AbortOnDropHandle;

use super::commands::problem_lines;
use super::preview::{self, PreviewedCall};
use super::questions::{self, can_ask, is_stateless};
use super::resources::{MOST_SUBSCRIPTIONS, ResourceName, templates};
use super::result::rejected;
use super::session::{Session, Sessions};
use super::tools::ToolName;
use super::turns::Turn;
use crate::api::problem::{Problem, ProblemKind};
use crate::http::OtherEnd;
use crate::notebook::visible_line;

/// What clients tell their models about the server.
const INSTRUCTIONS: &str = "\
Notebooks with live kernels, shared with people at VS Code or JupyterLab. Name the notebook in each call. \
A cell is its id (a beginning of 3 characters is enough), or its index as a number. Lines that begin with ‣ are the \
server's; those of outputs and sources never do. Variables, outputs and \
edits are the same for all: answers say what others did meanwhile. A run that goes on after its timeout has a \
run_id: get_run_status follows it. Cancelling a call interrupts what it runs, and some clients cancel after 60 s: \
run what takes longer with wait: false. Before you say that a notebook is done, run_cell with verify: true.";

/// Receives the requests of one client.
pub(super) struct Handler {
    session: Session,
    /// Over HTTP, the sessions of clients whose version of the protocol has none.
    sessions: Option<Sessions>,
    /// The calls that are under way; each is notified if the client cancels it.
    calls: Mutex<HashMap<RequestId, Arc<Notify>>>,
    /// What the client is subscribed to, by URI.
    subscriptions: Mutex<HashMap<String, AbortOnDropHandle<()>>>,
    /// The place that the session takes up at a server of many.
    _place: Option<OwnedSemaphorePermit>,
}

impl Handler {
    pub(super) fn new(session: Session) -> Self {
        Self {
            calls: Mutex::default(),
            session,
            sessions: None,
            subscriptions: Mutex::default(),
            _place: None,
        }
    }

    /// Returns a handler for a session over HTTP, or for one request of a version of the protocol without sessions.
    pub(super) fn over_http(sessions: &Sessions, place: OwnedSemaphorePermit) -> Self {
        Self {
            _place: Some(place),
            sessions: Some(sessions.clone()),
            ..Self::new(sessions.begin())
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

    /// Returns the session of a request. Without sessions in the protocol, clients are told apart by their names and their
    /// processes.
    fn session(&self, context: &RequestContext<RoleServer>) -> Session {
        let Some(sessions) = self.sessions.as_ref().filter(|_| is_stateless(context)) else {
            return self.session.clone();
        };
        let parts = context.extensions.get::<Parts>();
        let other_end = parts.and_then(|it| it.extensions.get::<OtherEnd>());
        let name = context.client_info().map(|it| it.name);
        sessions.of_client((
            name.unwrap_or_default(),
            other_end.and_then(OtherEnd::process),
        ))
    }

    fn subscriptions(&self) -> MutexGuard<'_, HashMap<String, AbortOnDropHandle<()>>> {
        let subscriptions = self.subscriptions.lock();
        subscriptions.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a call's turn, if it has one.
async fn turn(session: &Session, tool: ToolName, arguments: &JsonObject) -> Turn {
    let notebook = tool.turn_at(arguments).map(Path::new);
    let notebook = notebook.and_then(|it| session.root().notebook(it).ok());
    match notebook {
        Some(notebook) => session.turns().next(notebook).await,
        None => Turn::default(),
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
        let mut tool = self.tool(&request.name)?;
        let session = self.session(&context);
        let form = session.answer_form(&context);
        if let Err(refused) = session.count() {
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
        // A form answers as the tool does.
        let answers = self.tool(ToolName::AnswerInput.name());
        let mut may_ask = is_stateless(&context) && can_ask(&context) && answers.is_ok();
        if let Some(state) = &request.request_state {
            answers?;
            let responses = request.input_responses.unwrap_or_default();
            (tool, may_ask) = questions::answered(state, &responses, &mut arguments)?;
        }
        let cancelled = Arc::new(Notify::new());
        let id = context.id.clone();
        self.calls().insert(id.clone(), cancelled.clone());
        let call = async {
            let turn = tokio::select! {
                turn = turn(&session, tool, &arguments) => turn,
                () = cancelled.notified() => {
                    let problem = Problem::new(ProblemKind::StillRunning, "cancelled");
                    return Ok(rejected(problem).await);
                }
            };
            let cancelled = cancelled.clone();
            let work = session.on_worker(async move |session| {
                session
                    .call(tool, arguments, &context, &cancelled, turn)
                    .await
            });
            work.await
        };
        let result = call.await;
        self.calls().remove(&id);
        let mut result = result.map_err(|it| error(&it))?;
        if may_ask && let Some(question) = questions::asked(&result) {
            return Ok(question.into());
        }
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
                let session = self.session(&context);
                let preview = session.on_worker(async move |session| {
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
        let session = self.session(&context);
        let list = async move |session: Session| session.resources(&context).await;
        let resources = session.on_worker(list).await.flatten();
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
        let (uri, session) = (request.uri, self.session(&context));
        let read = async move |session: Session| session.read_resource(uri, &context).await;
        let read = session.on_worker(read).await.flatten();
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
            let peer = &context.peer;
            let notify = async |it| peer.notify_resource_updated(it).await.is_ok();
            session.follow(followed, &context, notify).await;
        });
        self.subscriptions()
            .insert(uri, AbortOnDropHandle::new(task));
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let uris = requested.resource_subscriptions.iter().flatten();
        let known = uris.filter(|uri| ResourceName::of(uri).is_ok());
        let mut accepted = SubscriptionFilter::new();
        accepted.resource_subscriptions = Some(known.take(MOST_SUBSCRIPTIONS).cloned().collect());
        Some(accepted)
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let context = subscription.request_context();
        let session = self.session(context);
        let mut tasks = Vec::new();
        let uris = &subscription.accepted().resource_subscriptions;
        for uri in uris.iter().flatten() {
            let (uri, context) = (uri.clone(), context.clone());
            let sink = subscription.sink().clone();
            let task = session.spawn(async move |session: Session| {
                let followed = session.begin_following(uri, &context).await;
                let notify = async |it: ResourceUpdatedNotificationParam| {
                    sink.notify_resource_updated(it.uri).await.is_ok()
                };
                match followed {
                    Ok(followed) => {
                        let followed = followed.telling_what_is_unread();
                        session.follow(followed, &context, notify).await;
                    }
                    Err(problem) => tracing::warn!(problem = problem.message, "not followed"),
                }
            });
            tasks.push(AbortOnDropHandle::new(task));
        }
        subscription.cancelled().await;
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

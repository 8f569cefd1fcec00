//! The Agent Client Protocol, version 1, as lines of JSON. This is the one module that names the crate
//! `agent-client-protocol`: its major versions come fast.
//!
//! Only the crate's types and its JSON-RPC messages are used. Its connections read without limit ahead of
//! their handlers; [`connection`](super::connection) reads no faster than the updates are taken.
//!
//! Source of the protocol: <https://agentclientprotocol.com>.

use std::path::{Path, PathBuf};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema as acp;
use agent_client_protocol::{
    Error, RawJsonRpcId, RawJsonRpcMessage, RawJsonRpcNotification, RawJsonRpcParams,
    RawJsonRpcRequest, RawJsonRpcResponse, TransportFrame,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::update::{
    Content, Location, ModeChoice, PlanStep, SessionOption, SlashCommand, StepState, ToolChange,
    ToolContent, ToolState, Update,
};

/// A message of an agent.
#[derive(Debug)]
pub(super) enum Incoming {
    /// The answer to a request of ours.
    Answer(u64, Result<Value, RpcError>),
    /// A request, which must be answered.
    Request(RequestId, Box<AgentRequest>),
    /// An update of a session.
    Update(String, Box<Update>),
    /// A notification that means nothing here.
    Ignored,
    /// A line that is no message.
    Garbage,
}

/// The id of an agent's request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RequestId(RawJsonRpcId);

/// An error that an agent answers.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// The code of JSON-RPC.
    pub code: i64,
    /// The agent's text, with its details.
    pub message: String,
}

impl RpcError {
    /// Returns whether the agent does not know the method.
    pub(super) fn is_unknown_method(&self) -> bool {
        self.code == -32601
    }

    /// Returns whether the agent wants the person to log in first.
    pub(super) fn wants_login(&self) -> bool {
        self.code == -32000
    }
}

/// What an agent asks of its client.
#[derive(Debug)]
pub(super) enum AgentRequest {
    /// The person's permission for a tool call.
    Permission {
        tool: ToolChange,
        options: Vec<PermissionOption>,
    },
    /// The text of a file.
    Read {
        path: PathBuf,
        /// The first line, from 1.
        line: Option<u32>,
        limit: Option<u32>,
    },
    /// A file is to get a text.
    Write { path: PathBuf, text: String },
    /// A command is to be started.
    Terminal(NewTerminal),
    /// The output of a terminal.
    TerminalOutput(String),
    /// The end of a terminal's command.
    TerminalExit(String),
    /// A terminal's command is to be killed.
    TerminalKill(String),
    /// A terminal is needed no longer.
    TerminalRelease(String),
    /// A method that is not offered.
    Unknown,
    /// Parameters that are not those of the method.
    Invalid { method: String, why: String },
}

/// A command for a terminal.
#[derive(Clone, Debug, Default)]
pub(super) struct NewTerminal {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) folder: Option<PathBuf>,
    pub(super) limit: Option<u64>,
}

/// One of the answers that a permission request offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionOption {
    /// The id that the agent knows it by.
    pub id: String,
    /// The text for the person.
    pub name: String,
    /// What it means.
    pub kind: PermissionKind,
}

/// What an option of a permission request means, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PermissionKind {
    /// Not this time.
    RejectOnce,
    /// Never.
    RejectAlways,
    /// This time.
    AllowOnce,
    /// Until the end of the turn.
    AllowTurn,
    /// From now on.
    AllowAlways,
}

/// The end of a terminal's command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TerminalExit {
    pub(super) code: Option<u32>,
    pub(super) signal: Option<String>,
}

/// What an agent says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The program's name and version.
    pub title: Option<String>,
    /// Whether it can take up an earlier session.
    pub loads: bool,
    /// Whether it takes images.
    pub images: bool,
    /// Whether it takes the text of files in a message.
    pub context: bool,
    /// Whether a file that is not there is to be read as an empty one: gemini 0.61 takes every error of
    /// `fs/read_text_file` for a failure, and so could write no new file.
    pub reads_missing: bool,
    /// Its ways to log in: id, and name.
    pub logins: Vec<(String, String)>,
}

/// A session as an agent describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionFacts {
    pub(super) id: Option<String>,
    pub(super) modes: Vec<ModeChoice>,
    pub(super) mode: Option<String>,
    pub(super) options: Vec<SessionOption>,
}

/// An MCP server that an agent is to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct McpServer {
    /// Its name.
    pub name: String,
    /// The program.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its variables.
    pub env: Vec<(String, String)>,
}

/// Reads one line of an agent.
pub(super) fn read(line: &str) -> Incoming {
    let TransportFrame::Single(message) = TransportFrame::parse_json(line) else {
        return Incoming::Garbage;
    };
    match message {
        RawJsonRpcMessage::Response(response) => answer(response),
        RawJsonRpcMessage::Request(RawJsonRpcRequest { id, method, params }) => {
            Incoming::Request(RequestId(id), Box::new(request(&method, params)))
        }
        RawJsonRpcMessage::Notification(RawJsonRpcNotification { method, params }) => {
            if &*method != acp::CLIENT_METHOD_NAMES.session_update {
                return Incoming::Ignored;
            }
            match parameters::<acp::SessionNotification>(params) {
                Ok(it) => {
                    let session = it.session_id.to_string();
                    Incoming::Update(session, Box::new(update(it.update)))
                }
                // An update of a later version.
                Err(_) => Incoming::Ignored,
            }
        }
    }
}

fn answer(response: RawJsonRpcResponse) -> Incoming {
    let (id, result) = match response {
        RawJsonRpcResponse::Result { id, result } => (id, Ok(result)),
        RawJsonRpcResponse::Error { id, error } => {
            let error = serde_json::to_value(error).unwrap_or_default();
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let details = error.get("data").filter(|data| !data.is_null());
            let details = details.map(|data| {
                let inner = data.get("details").or_else(|| data.get("message"));
                inner.and_then(text).unwrap_or_else(|| data.to_string())
            });
            let mut message = error.get("message").and_then(text).unwrap_or_default();
            if let Some(details) = details {
                message = format!("{message}: {}", shortened(&details));
            }
            let code = error.get("code").and_then(Value::as_i64);
            let code = code.unwrap_or_default();
            (id, Err(RpcError { code, message }))
        }
    };
    match serde_json::to_value(&id).ok().and_then(|id| id.as_u64()) {
        Some(id) => Incoming::Answer(id, result),
        None => Incoming::Ignored,
    }
}

/// Returns the beginning of a text that has no limit.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 2000;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

fn parameters<T: DeserializeOwned>(params: Option<RawJsonRpcParams>) -> Result<T, String> {
    let params = serde_json::to_value(params).unwrap_or_default();
    serde_json::from_value(params).map_err(|error| error.to_string())
}

fn request(method: &str, params: Option<RawJsonRpcParams>) -> AgentRequest {
    let names = acp::CLIENT_METHOD_NAMES;
    let read = if method == names.session_request_permission {
        parameters::<acp::RequestPermissionRequest>(params).map(|it| AgentRequest::Permission {
            tool: tool_update(it.tool_call),
            options: it.options.into_iter().map(permission_option).collect(),
        })
    } else if method == names.fs_read_text_file {
        parameters::<acp::ReadTextFileRequest>(params).map(|it| AgentRequest::Read {
            path: it.path,
            line: it.line,
            limit: it.limit,
        })
    } else if method == names.fs_write_text_file {
        parameters::<acp::WriteTextFileRequest>(params).map(|it| AgentRequest::Write {
            path: it.path,
            text: it.content,
        })
    } else if method == names.terminal_create {
        parameters::<acp::CreateTerminalRequest>(params).map(|it| {
            let env = it.env.into_iter().map(|it| (it.name, it.value));
            AgentRequest::Terminal(NewTerminal {
                command: it.command,
                args: it.args,
                env: env.collect(),
                folder: it.cwd,
                limit: it.output_byte_limit,
            })
        })
    } else if method == names.terminal_output {
        terminal(params).map(AgentRequest::TerminalOutput)
    } else if method == names.terminal_wait_for_exit {
        terminal(params).map(AgentRequest::TerminalExit)
    } else if method == names.terminal_kill {
        terminal(params).map(AgentRequest::TerminalKill)
    } else if method == names.terminal_release {
        terminal(params).map(AgentRequest::TerminalRelease)
    } else {
        return AgentRequest::Unknown;
    };
    read.unwrap_or_else(|why| AgentRequest::Invalid {
        method: method.to_owned(),
        why,
    })
}

/// Returns the terminal that a request is about; these requests have the same fields.
fn terminal(params: Option<RawJsonRpcParams>) -> Result<String, String> {
    let request = parameters::<acp::TerminalOutputRequest>(params)?;
    Ok(request.terminal_id.to_string())
}

fn permission_option(option: acp::PermissionOption) -> PermissionOption {
    let kind = match option.kind {
        acp::PermissionOptionKind::AllowOnce => PermissionKind::AllowOnce,
        acp::PermissionOptionKind::AllowAlways => PermissionKind::AllowAlways,
        acp::PermissionOptionKind::RejectOnce => PermissionKind::RejectOnce,
        acp::PermissionOptionKind::RejectAlways => PermissionKind::RejectAlways,
        // What a later version may mean is allowed only where it is chosen.
        _ => PermissionKind::AllowAlways,
    };
    PermissionOption {
        id: option.option_id.to_string(),
        name: option.name,
        kind,
    }
}

fn update(update: acp::SessionUpdate) -> Update {
    match update {
        acp::SessionUpdate::AgentMessageChunk(chunk) => Update::Answer(content(chunk.content)),
        acp::SessionUpdate::AgentThoughtChunk(chunk) => match content(chunk.content) {
            Content::Text(text) => Update::Thought(text),
            _ => Update::Other,
        },
        acp::SessionUpdate::ToolCall(call) => Update::Tool(ToolChange {
            id: call.tool_call_id.to_string(),
            title: Some(call.title),
            kind: Some(word(&call.kind)),
            state: Some(tool_state(call.status)),
            content: Some(call.content.into_iter().filter_map(tool_content).collect()),
            locations: Some(call.locations.into_iter().map(location).collect()),
            output: call.raw_output,
            input: call.raw_input,
        }),
        acp::SessionUpdate::ToolCallUpdate(update) => Update::Tool(tool_update(update)),
        acp::SessionUpdate::Plan(plan) => {
            let step = |entry: acp::PlanEntry| PlanStep {
                state: match entry.status {
                    acp::PlanEntryStatus::Completed => StepState::Done,
                    acp::PlanEntryStatus::InProgress => StepState::Doing,
                    _ => StepState::Open,
                },
                text: entry.content,
            };
            Update::Plan(plan.entries.into_iter().map(step).collect())
        }
        acp::SessionUpdate::AvailableCommandsUpdate(update) => {
            let command = |it: acp::AvailableCommand| SlashCommand {
                name: it.name,
                description: it.description,
            };
            Update::Commands(update.available_commands.into_iter().map(command).collect())
        }
        acp::SessionUpdate::CurrentModeUpdate(update) => {
            Update::Mode(update.current_mode_id.to_string())
        }
        acp::SessionUpdate::ConfigOptionUpdate(update) => {
            Update::Options(session_options(update.config_options))
        }
        acp::SessionUpdate::UsageUpdate(usage) => Update::Usage {
            used: usage.used,
            size: usage.size,
            cost: usage.cost.map(|cost| (cost.amount, cost.currency)),
        },
        _ => Update::Other,
    }
}

fn tool_update(update: acp::ToolCallUpdate) -> ToolChange {
    let fields = update.fields;
    let content = |list: Vec<_>| list.into_iter().filter_map(tool_content).collect();
    let locations = |list: Vec<_>| list.into_iter().map(location).collect();
    ToolChange {
        id: update.tool_call_id.to_string(),
        title: fields.title,
        kind: fields.kind.map(|kind| word(&kind)),
        state: fields.status.map(tool_state),
        content: fields.content.map(content),
        locations: fields.locations.map(locations),
        output: fields.raw_output,
        input: fields.raw_input,
    }
}

/// Returns the word by which a value is written in JSON.
fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    value.as_str().unwrap_or("other").replace('_', " ")
}

fn tool_state(status: acp::ToolCallStatus) -> ToolState {
    match status {
        acp::ToolCallStatus::Completed => ToolState::Done,
        acp::ToolCallStatus::Failed => ToolState::Failed,
        acp::ToolCallStatus::InProgress => ToolState::Running,
        _ => ToolState::Waiting,
    }
}

fn tool_content(content: acp::ToolCallContent) -> Option<ToolContent> {
    match content {
        acp::ToolCallContent::Content(it) => Some(ToolContent::Content(self::content(it.content))),
        acp::ToolCallContent::Diff(diff) => Some(ToolContent::Diff {
            path: diff.path,
            old: diff.old_text.unwrap_or_default(),
            new: diff.new_text,
        }),
        acp::ToolCallContent::Terminal(terminal) => {
            Some(ToolContent::Terminal(terminal.terminal_id.to_string()))
        }
        _ => None,
    }
}

fn location(location: acp::ToolCallLocation) -> Location {
    Location {
        path: location.path,
        line: location.line,
    }
}

fn content(block: acp::ContentBlock) -> Content {
    match block {
        acp::ContentBlock::Text(text) => Content::Text(text.text),
        acp::ContentBlock::Image(image) => Content::Media {
            mime: image.mime_type,
            data: image.data,
        },
        acp::ContentBlock::Audio(audio) => Content::Media {
            mime: audio.mime_type,
            data: audio.data,
        },
        acp::ContentBlock::ResourceLink(link) => Content::Link {
            name: link.title.unwrap_or(link.name),
            uri: link.uri,
        },
        acp::ContentBlock::Resource(resource) => match resource.resource {
            acp::EmbeddedResourceResource::TextResourceContents(text) => Content::File {
                uri: text.uri,
                text: text.text,
            },
            acp::EmbeddedResourceResource::BlobResourceContents(blob) => Content::Media {
                mime: blob.mime_type.unwrap_or_default(),
                data: blob.blob,
            },
            _ => Content::Text(String::new()),
        },
        _ => Content::Text(String::new()),
    }
}

fn session_options(options: Vec<acp::SessionConfigOption>) -> Vec<SessionOption> {
    let options = options.into_iter().filter_map(|option| {
        let is_model = option
            .category
            .as_ref()
            .is_some_and(|it| word(it) == "model");
        let (value, values) = match option.kind {
            acp::SessionConfigKind::Select(select) => {
                let listed = match select.options {
                    acp::SessionConfigSelectOptions::Ungrouped(list) => list,
                    acp::SessionConfigSelectOptions::Grouped(groups) => {
                        groups.into_iter().flat_map(|group| group.options).collect()
                    }
                    _ => Vec::new(),
                };
                let listed = listed.into_iter().map(|it| (it.value.to_string(), it.name));
                (select.current_value.to_string(), listed.collect())
            }
            acp::SessionConfigKind::Boolean(boolean) => {
                let values = ["true", "false"].map(|it| (it.to_owned(), it.to_owned()));
                (boolean.current_value.to_string(), values.to_vec())
            }
            _ => return None,
        };
        Some(SessionOption {
            id: option.id.to_string(),
            name: option.name,
            is_model,
            value,
            values,
        })
    });
    options.collect()
}

/// Reads the answer to `initialize`.
pub(super) fn capabilities(answer: Value) -> Result<Capabilities, String> {
    let answer: acp::InitializeResponse =
        serde_json::from_value(answer).map_err(|error| error.to_string())?;
    if answer.protocol_version != ProtocolVersion::V1 {
        return Err(format!(
            "it speaks version {} of the protocol, and nb version 1",
            answer.protocol_version
        ));
    }
    let login = |method: acp::AuthMethod| (method.id().to_string(), method.name().to_owned());
    let able = answer.agent_capabilities;
    let name = answer.agent_info.as_ref().map(|it| it.name.to_lowercase());
    Ok(Capabilities {
        reads_missing: name.is_some_and(|name| name.contains("gemini")),
        title: answer.agent_info.map(|it| {
            let name = it.title.unwrap_or(it.name);
            format!("{name} {}", it.version)
        }),
        loads: able.load_session,
        images: able.prompt_capabilities.image,
        context: able.prompt_capabilities.embedded_context,
        logins: answer.auth_methods.into_iter().map(login).collect(),
    })
}

/// Reads the answer to `session/new` or `session/load`.
pub(super) fn session_facts(answer: Value) -> Result<SessionFacts, String> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        session_id: Option<String>,
        #[serde(default)]
        modes: Option<acp::SessionModeState>,
        #[serde(default)]
        config_options: Option<Vec<acp::SessionConfigOption>>,
    }
    // `session/load` may be answered with null.
    let answer = match answer {
        Value::Null => json!({}),
        answer => answer,
    };
    let answer: Answer = serde_json::from_value(answer).map_err(|error| error.to_string())?;
    let mut facts = SessionFacts {
        id: answer.session_id,
        options: session_options(answer.config_options.unwrap_or_default()),
        ..SessionFacts::default()
    };
    if let Some(modes) = answer.modes {
        facts.mode = Some(modes.current_mode_id.to_string());
        let mode = |it: acp::SessionMode| ModeChoice {
            id: it.id.to_string(),
            name: it.name,
        };
        facts.modes = modes.available_modes.into_iter().map(mode).collect();
    }
    Ok(facts)
}

/// Reads the stop reason in the answer to `session/prompt`.
pub(super) fn stop_reason(answer: &Value) -> String {
    let reason = answer.get("stopReason").and_then(Value::as_str);
    reason.unwrap_or("end_turn").to_owned()
}

/// Returns the answer to `session/prompt` of a turn that was interrupted.
pub(super) fn cancelled() -> Value {
    json!({ "stopReason": "cancelled" })
}

/// Reads the text in an answer to `chat/send`.
pub(super) fn chat_text(answer: &Value) -> String {
    let fields = ["response", "message", "text", "content"];
    let field = fields.iter().find_map(|name| answer.get(name)?.as_str());
    match answer.as_str().or(field) {
        Some(text) => text.to_owned(),
        None => answer.to_string(),
    }
}

/// A request of ours.
#[derive(Debug)]
pub(super) enum Call<'a> {
    Initialize,
    Authenticate(&'a str),
    New(&'a Path, &'a [McpServer]),
    Load(&'a str, &'a Path, &'a [McpServer]),
    Prompt(&'a str, Vec<Content>),
    SetMode(&'a str, &'a str),
    SetOption(&'a str, &'a str, &'a str),
    /// A message to an agent that does not speak the protocol: some kernels' agents know only this method.
    ChatSend(&'a str),
}

/// Writes a request.
pub(super) fn request_line(id: u64, call: Call<'_>) -> String {
    let names = acp::AGENT_METHOD_NAMES;
    let (method, params) = match call {
        Call::Initialize => {
            let files = acp::FileSystemCapabilities::new()
                .read_text_file(true)
                .write_text_file(true);
            let able = acp::ClientCapabilities::new().fs(files).terminal(true);
            let own = acp::Implementation::new("nb", env!("CARGO_PKG_VERSION"));
            let params = acp::InitializeRequest::new(ProtocolVersion::V1)
                .client_capabilities(able)
                .client_info(own);
            (names.initialize, value(&params))
        }
        Call::Authenticate(method) => {
            let params = acp::AuthenticateRequest::new(method.to_owned());
            (names.authenticate, value(&params))
        }
        Call::New(folder, servers) => {
            let params = acp::NewSessionRequest::new(folder).mcp_servers(mcp_servers(servers));
            (names.session_new, value(&params))
        }
        Call::Load(session, folder, servers) => {
            let params = acp::LoadSessionRequest::new(session.to_owned(), folder)
                .mcp_servers(mcp_servers(servers));
            (names.session_load, value(&params))
        }
        Call::Prompt(session, content) => {
            let blocks = content.into_iter().map(block).collect();
            let params = acp::PromptRequest::new(session.to_owned(), blocks);
            (names.session_prompt, value(&params))
        }
        Call::SetMode(session, mode) => {
            let params = acp::SetSessionModeRequest::new(session.to_owned(), mode.to_owned());
            (names.session_set_mode, value(&params))
        }
        Call::SetOption(session, option, chosen) => (
            names.session_set_config_option,
            json!({ "sessionId": session, "configId": option, "value": chosen }),
        ),
        Call::ChatSend(text) => ("chat/send", json!({ "message": text })),
    };
    let message = RawJsonRpcMessage::request(method.to_owned(), params, id as i64);
    line(&message.expect("the parameters are an object"))
}

/// Writes the notification that a turn is to end.
pub(super) fn cancel_line(session: &str) -> String {
    let params = value(&acp::CancelNotification::new(session.to_owned()));
    let method = acp::AGENT_METHOD_NAMES.session_cancel.to_owned();
    let message = RawJsonRpcMessage::notification(method, params);
    line(&message.expect("the parameters are an object"))
}

/// Writes the answer to an agent's request.
pub(super) fn answer_line(id: &RequestId, answer: Result<Value, Refusal>) -> String {
    let answer = answer.map_err(|refusal| match refusal {
        Refusal::UnknownMethod => Error::new(-32601, "unknown method"),
        Refusal::Invalid(why) => Error::new(-32602, why),
        Refusal::NotFound(path) => Error::new(-32002, format!("Resource not found: {path}")),
        Refusal::Failed(why) => Error::new(-32603, why),
    });
    line(&RawJsonRpcMessage::response(id.0.clone(), answer))
}

/// Why an agent's request is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    UnknownMethod,
    Invalid(String),
    NotFound(String),
    Failed(String),
}

/// Returns the answer to a permission request; `None` is no choice.
pub(super) fn permission_answer(option: Option<&str>) -> Value {
    let outcome = match option {
        Some(id) => acp::RequestPermissionOutcome::Selected(acp::SelectedPermissionOutcome::new(
            id.to_owned(),
        )),
        None => acp::RequestPermissionOutcome::Cancelled,
    };
    value(&acp::RequestPermissionResponse::new(outcome))
}

/// Returns the answer to `terminal/wait_for_exit`.
pub(super) fn exit_answer(exit: &TerminalExit) -> Value {
    json!({ "exitCode": exit.code, "signal": exit.signal })
}

fn mcp_servers(servers: &[McpServer]) -> Vec<acp::McpServer> {
    let server = |it: &McpServer| {
        let env = it.env.iter();
        let env = env.map(|(name, value)| acp::EnvVariable::new(name.clone(), value.clone()));
        acp::McpServer::Stdio(
            acp::McpServerStdio::new(it.name.clone(), it.command.clone())
                .args(it.args.clone())
                .env(env.collect()),
        )
    };
    servers.iter().map(server).collect()
}

fn block(content: Content) -> acp::ContentBlock {
    match content {
        Content::Text(text) => acp::ContentBlock::Text(acp::TextContent::new(text)),
        Content::Media { mime, data } => {
            acp::ContentBlock::Image(acp::ImageContent::new(data, mime))
        }
        Content::Link { name, uri } => {
            acp::ContentBlock::ResourceLink(acp::ResourceLink::new(name, uri))
        }
        Content::File { uri, text } => {
            let text = acp::TextResourceContents::new(text, uri);
            let resource = acp::EmbeddedResourceResource::TextResourceContents(text);
            acp::ContentBlock::Resource(acp::EmbeddedResource::new(resource))
        }
    }
}

fn value(params: &impl Serialize) -> Value {
    serde_json::to_value(params).expect("the crate's types are JSON")
}

fn line(message: &RawJsonRpcMessage) -> String {
    let mut line = serde_json::to_string(message).expect("a message is JSON");
    line.push('\n');
    line
}

//! The tools of `nb mcp`, as a client of the Model Context Protocol.
//!
//! The server is a process of its own, as for coding agents: the same tools, limits and records. It ends with the
//! conversation.
//!
//! Source: <https://modelcontextprotocol.io/specification/>.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientConfig, ClientRequest, ContentBlock,
    CustomRequest, Implementation, ProgressNotificationParam, ServerResult,
};
use rmcp::service::{NotificationContext, PeerRequestOptions, RunningService, ServiceError};
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::{Map, Value, json};
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, Notify, mpsc};

use super::approval::CallPreview;
use super::message::{ModelCall, ToolDescription, ToolImage, ToolResult};
use super::provider;
use crate::agent::McpServer;

/// How long the server may take to begin.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a tool waits for running cells, in seconds: after that the model decides what to do.
const LONGEST_WAIT: f64 = 30.0;

/// The argument that says how long a tool waits.
const TIMEOUT: &str = "timeout_s";

/// The request for what a call would do.
const PREVIEW: &str = "nb/preview";

/// The tool whose images the model gets; other results only say that there are some.
const SHOWS_IMAGES: &str = "read_cell";

/// Tools, and the process that has them.
pub(super) struct Tools {
    service: RunningService<RoleClient, ProgressListener>,
    progress: Mutex<mpsc::UnboundedReceiver<String>>,
    /// What the model may call.
    pub(super) list: Vec<ToolDescription>,
    /// It is killed when this is dropped.
    _process: Child,
}

/// What came of a call.
pub(super) struct CallOutcome {
    /// What the model reads.
    pub(super) result: ToolResult,
    /// The answer's fields, as the command prints them with `--json`.
    pub(super) fields: Option<Value>,
    /// Whether the person stopped it.
    pub(super) is_stopped: bool,
}

/// Why there are no tools.
#[derive(Debug, thiserror::Error)]
#[error("the assistant's tools cannot be started: {0}")]
pub(super) struct ToolsError(String);

struct ProgressListener(mpsc::UnboundedSender<String>);

impl ClientHandler for ProgressListener {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.client_info = Implementation::new("nb-assistant", env!("CARGO_PKG_VERSION"));
        // The model reads the text, the page shows the fields.
        let wish = Map::from_iter([("answers".to_owned(), json!("both"))]);
        info.capabilities.experimental = Some([("nb".to_owned(), wish)].into());
        info
    }

    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let _ = self.0.send(progress.message.unwrap_or_default());
    }
}

impl Tools {
    /// Starts the server.
    ///
    /// # Errors
    /// It cannot be started, or does not answer.
    pub(super) async fn start(server: &McpServer, root: &Path) -> Result<Self, ToolsError> {
        let mut command = Command::new(&server.command);
        command.args(&server.args).current_dir(root);
        command.envs(server.env.iter().map(|(name, value)| (name, value)));
        // What the model runs must not find its key.
        for name in provider::KEYS {
            command.env_remove(name);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::null()).kill_on_drop(true);
        let failed = |error: &dyn std::fmt::Display| ToolsError(error.to_string());
        let mut process = command.spawn().map_err(|error| failed(&error))?;
        let pipes = process.stdout.take().zip(process.stdin.take());
        let pipes = pipes.ok_or_else(|| failed(&"it has no pipes"))?;
        let (sender, progress) = mpsc::unbounded_channel();
        let service = async {
            let service = ProgressListener(sender).serve(pipes).await;
            let service = service.map_err(|error| failed(&error))?;
            let tools = service.list_all_tools().await;
            Ok((service, tools.map_err(|error| failed(&error))?))
        };
        let started = tokio::time::timeout(START_TIMEOUT, service).await;
        let (service, tools) = started.map_err(|_| failed(&"it does not answer"))??;
        let list = tools.into_iter().map(|tool| ToolDescription {
            name: tool.name.into_owned(),
            description: tool.description.unwrap_or_default().into_owned(),
            schema: (*tool.input_schema).clone(),
        });
        Ok(Self {
            list: list.collect(),
            service,
            progress: progress.into(),
            _process: process,
        })
    }

    /// Returns whether the process is still there.
    pub(super) fn is_alive(&self) -> bool {
        !self.service.is_closed()
    }

    /// Returns whether there is a tool of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.list.iter().any(|tool| tool.name == name)
    }

    /// Returns what a call would do. Nothing is done.
    ///
    /// # Errors
    /// Why it cannot be done.
    pub(super) async fn preview(&self, call: &ModelCall) -> Result<CallPreview, String> {
        if let Some(fault) = &call.fault {
            return Err(fault.clone());
        }
        let params = json!({"name": call.name, "arguments": self.arguments(call)});
        let request = CustomRequest::new(PREVIEW, Some(params));
        let request = ClientRequest::CustomRequest(request);
        let answer = self.service.peer().send_request(request).await;
        match answer.map_err(|error| error_text(&error))? {
            ServerResult::CustomResult(answer) => answer
                .result_as()
                .map_err(|error| format!("the tools' preview cannot be read: {error}")),
            _ => Err("the tools' preview is of another kind".to_owned()),
        }
    }

    /// Calls a tool; waits first if the server takes no more calls now. `progress` gets the last line of output of a cell that runs, every five seconds. A call that is
    /// stopped interrupts its cell.
    pub(super) async fn call(
        &self,
        call: &ModelCall,
        progress: impl Fn(String),
        stop: &Notify,
    ) -> CallOutcome {
        loop {
            let outcome = self.call_once(call, &progress, stop).await;
            let Some(seconds) = outcome.retry_in_s() else {
                return outcome;
            };
            progress(format!(
                "waits {seconds} s: {}",
                outcome.result.text.trim_end()
            ));
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(seconds)) => {}
                () = stop.notified() => return CallOutcome::stopped(call),
            }
        }
    }

    async fn call_once(
        &self,
        call: &ModelCall,
        progress: &impl Fn(String),
        stop: &Notify,
    ) -> CallOutcome {
        if let Some(fault) = &call.fault {
            return CallOutcome::failed(call, fault.clone());
        }
        let mut params = CallToolRequestParams::new(call.name.clone());
        params.arguments = Some(self.arguments(call));
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let mut lines = self.progress.lock().await;
        while lines.try_recv().is_ok() {}
        let peer = self.service.peer();
        let options = PeerRequestOptions::no_options();
        let mut handle = match peer.send_cancellable_request(request, options).await {
            Ok(handle) => handle,
            Err(error) => return CallOutcome::of_error(call, &error),
        };
        loop {
            tokio::select! {
                answer = &mut handle.rx => return match answer {
                    Ok(Ok(answer)) => CallOutcome::of(call, answer),
                    Ok(Err(error)) => CallOutcome::of_error(call, &error),
                    Err(_) => CallOutcome::of_error(call, &ServiceError::TransportClosed),
                },
                Some(line) = lines.recv() => progress(line),
                () = stop.notified() => break,
            }
        }
        let reason = Some("the person stopped it".to_owned());
        if let Err(error) = handle.cancel(reason).await {
            tracing::warn!(%error, "a call could not be cancelled");
        }
        CallOutcome::stopped(call)
    }

    fn arguments(&self, call: &ModelCall) -> Map<String, Value> {
        let tool = self.list.iter().find(|tool| tool.name == call.name);
        let properties = tool.and_then(|tool| tool.schema.get("properties"));
        let waits = properties.is_some_and(|it| it.get(TIMEOUT).is_some());
        match waits {
            true => with_short_wait(call),
            false => call.arguments.clone(),
        }
    }
}

/// Returns the arguments of a call of a tool that waits for cells, for [`LONGEST_WAIT`] at most.
fn with_short_wait(call: &ModelCall) -> Map<String, Value> {
    let mut arguments = call.arguments.clone();
    let timeout = arguments.get(TIMEOUT);
    let is_shorter =
        timeout.is_some_and(|it| it.as_f64().is_none_or(|seconds| seconds <= LONGEST_WAIT));
    // Without it this one does not wait.
    let is_status = call.name == "get_run_status" && timeout.is_none();
    if !is_shorter && !is_status {
        arguments.insert(TIMEOUT.to_owned(), LONGEST_WAIT.into());
    }
    arguments
}

impl CallOutcome {
    /// Returns after how many seconds the server takes the call, if it was one too many.
    fn retry_in_s(&self) -> Option<u64> {
        self.fields.as_ref()?["error"]["retry_in_s"].as_u64()
    }

    /// Returns the result of a call that was not made.
    pub(super) fn failed(call: &ModelCall, text: String) -> Self {
        Self {
            result: ToolResult {
                call: call.id.clone(),
                text,
                is_error: true,
                ..ToolResult::default()
            },
            fields: None,
            is_stopped: false,
        }
    }

    /// Returns the result of a call that the person has not allowed.
    pub(super) fn not_allowed(call: &ModelCall) -> Self {
        Self::failed(call, "the person does not allow this".to_owned())
    }

    /// Returns the result of a call that the person has stopped.
    pub(super) fn stopped(call: &ModelCall) -> Self {
        Self {
            is_stopped: true,
            ..Self::failed(call, "stopped by the person".to_owned())
        }
    }

    /// Returns the result of a call of a tool that there is not.
    pub(super) fn unknown(call: &ModelCall) -> Self {
        Self::failed(call, format!("there is no tool {:?}", call.name))
    }

    /// Returns the result of a call that was not begun, since an earlier one was stopped.
    pub(super) fn not_started(call: &ModelCall) -> Self {
        Self::failed(call, "not begun: the person stopped the turn".to_owned())
    }

    fn of_error(call: &ModelCall, error: &ServiceError) -> Self {
        Self::failed(call, error_text(error))
    }

    fn of(call: &ModelCall, answer: ServerResult) -> Self {
        let ServerResult::CallToolResult(answer) = answer else {
            return Self::failed(call, "the tools' answer is of another kind".to_owned());
        };
        let mut result = ToolResult {
            call: call.id.clone(),
            is_error: answer.is_error.unwrap_or_default(),
            ..ToolResult::default()
        };
        for content in answer.content {
            match content {
                ContentBlock::Text(text) => result.text.push_str(&text.text),
                ContentBlock::Image(image) if call.name == SHOWS_IMAGES => {
                    result.images.push(ToolImage {
                        mime: image.mime_type,
                        data: image.data,
                    });
                }
                ContentBlock::Image(image) => {
                    let mime = image.mime_type;
                    result
                        .text
                        .push_str(&format!("[{mime}; {SHOWS_IMAGES} shows it]\n"));
                }
                _ => {}
            }
        }
        Self {
            result,
            fields: answer.structured_content,
            is_stopped: false,
        }
    }
}

fn error_text(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => error.message.clone().into_owned(),
        other => format!("the tools do not answer: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_waits_longer_than_the_longest_wait() {
        let timeout = |name: &str, timeout: Option<Value>| {
            let timeout = timeout.map(|it| (TIMEOUT.to_owned(), it));
            let call = ModelCall {
                id: "1".to_owned(),
                name: name.to_owned(),
                arguments: timeout.into_iter().collect(),
                ..ModelCall::default()
            };
            with_short_wait(&call).remove(TIMEOUT)
        };
        let longest = Some(json!(LONGEST_WAIT));
        assert_eq!(timeout("run_cell", None), longest);
        assert_eq!(timeout("run_cell", Some(json!(600))), longest);
        assert_eq!(timeout("run_cell", Some(json!(2))), Some(json!(2)));
        assert_eq!(timeout("get_run_status", None), None);
        assert_eq!(timeout("get_run_status", Some(json!(31))), longest);
        // The server refuses what is no number.
        assert_eq!(timeout("run_cell", Some(json!("2"))), Some(json!("2")));
    }
}

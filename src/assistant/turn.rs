//! A message, answered with as many requests and calls as it takes.

use std::path::PathBuf;

use serde_json::Value;
use tokio::sync::Notify;

use super::approval::{ShownCall, shown};
use super::message::{
    AnswerPiece, ConversationPart, EndReason, ModelCall, TokenUsage, make_ids_unique, within_limit,
};
use super::provider::{ModelError, Provider};
use super::tools::{CallOutcome, Tools, ToolsError};
use crate::agent::permission::{PermissionChoice, PermissionQuestion};
use crate::agent::update::{Content, ToolChange, ToolContent, ToolState, Update};
use crate::agent::{Front, McpServer, PermissionKind, PermissionOption};

/// The first instruction to the model.
const PROMPT: &str = include_str!("prompt.md");

/// How many requests a message may take: a model that goes round in circles ends there.
const MOST_REQUESTS: usize = 50;

/// The longest answer to one request, in bytes.
const LONGEST_ANSWER: usize = 1 << 20;

/// How an assistant is made.
#[derive(Clone, Debug)]
pub struct AssistantOptions {
    /// Whose model it is.
    pub provider: Provider,
    /// The server that has its tools.
    pub server: McpServer,
    /// The folder in which the server is started.
    pub root: PathBuf,
    /// The notebook, as its tools name it.
    pub notebook: String,
    /// Whether the person is asked before calls that delete something or start programs.
    pub approves: bool,
}

/// An assistant with its conversation.
pub struct Assistant {
    options: AssistantOptions,
    /// `None` until the first message, and after the process that has them has ended.
    tools: Option<Tools>,
    messages: Vec<ConversationPart>,
}

/// Why a message was not answered.
#[derive(Debug, thiserror::Error)]
pub enum AssistantError {
    /// The model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The tools.
    #[error("{0}")]
    Tools(String),
    /// The person stopped it.
    #[error("stopped")]
    Stopped,
    /// It took too many requests.
    #[error("the assistant has sent {MOST_REQUESTS} requests for this message, and stops here")]
    Endless,
    /// An answer is too long.
    #[error("the answer has more than {} MiB", LONGEST_ANSWER >> 20)]
    TooLong,
}

impl From<ToolsError> for AssistantError {
    fn from(error: ToolsError) -> Self {
        Self::Tools(error.to_string())
    }
}

/// What came of a request.
struct ModelAnswer {
    text: String,
    calls: Vec<ModelCall>,
    usage: TokenUsage,
    end: Result<EndReason, AssistantError>,
}

impl Assistant {
    /// Makes an assistant that goes on with a conversation. Nothing is started yet.
    pub fn new(options: AssistantOptions, messages: Vec<ConversationPart>) -> Self {
        Self {
            options,
            tools: None,
            messages,
        }
    }

    /// Returns what is kept of the conversation: what the next request would have, without images.
    pub fn kept(&self) -> Vec<ConversationPart> {
        let mut messages = within_limit(&self.messages);
        let results = messages.iter_mut().filter_map(|message| match message {
            ConversationPart::Tools { results } => Some(results),
            _ => None,
        });
        results.flatten().for_each(|result| result.images.clear());
        messages
    }

    /// Answers a message; returns why it ended, and what it has cost. `usage` gets the cost so far after each request.
    /// The conversation has all messages and calls, however the turn ends.
    ///
    /// # Errors
    /// The model or the tools do not answer, the person stops it, or it goes on for too long.
    pub async fn prompt(
        &mut self,
        text: &str,
        model: Option<&str>,
        front: &impl Front,
        usage: impl Fn(TokenUsage),
        stop: &Notify,
    ) -> Result<&'static str, AssistantError> {
        if self.tools.as_ref().is_none_or(|tools| !tools.is_alive()) {
            let started = Tools::start(&self.options.server, &self.options.root);
            self.tools = Some(tokio::select! {
                started = started => started?,
                () = stop.notified() => return Err(AssistantError::Stopped),
            });
        }
        self.messages.push(ConversationPart::Person {
            text: text.to_owned(),
        });
        let mut cost = TokenUsage::default();
        for _ in 0..MOST_REQUESTS {
            let answer = self.ask(model, front, stop).await;
            cost += answer.usage;
            usage(cost);
            let ModelAnswer {
                text,
                mut calls,
                end,
                ..
            } = answer;
            make_ids_unique(&mut calls, &self.messages);
            if !text.trim().is_empty() || !calls.is_empty() {
                let calls = calls.clone();
                self.messages.push(ConversationPart::Model { text, calls });
            }
            let end = end?;
            if calls.is_empty() {
                return Ok(match end {
                    EndReason::Done | EndReason::Calls => "end_turn",
                    EndReason::Length => "max_tokens",
                    EndReason::Refusal => "refusal",
                });
            }
            if self.call_all(&calls, front, stop).await {
                return Err(AssistantError::Stopped);
            }
        }
        Err(AssistantError::Endless)
    }

    /// Sends the conversation to the model. A broken answer has the text so far, and no calls.
    async fn ask(&self, model: Option<&str>, front: &impl Front, stop: &Notify) -> ModelAnswer {
        let provider = &self.options.provider;
        let model = model.unwrap_or_else(|| provider.model());
        let notebook = &self.options.notebook;
        let system = format!("{PROMPT}\nThe notebook is {notebook:?}: pass it in each call.\n");
        let tools = self.tools.as_ref().map(|tools| tools.list.as_slice());
        let messages = within_limit(&self.messages);
        let (mut text, mut calls) = (String::new(), Vec::new());
        let mut usage = TokenUsage::default();
        let too_long = Notify::new();
        let take = |piece| match piece {
            AnswerPiece::Text(part) => {
                text.push_str(&part);
                if text.len() > LONGEST_ANSWER {
                    too_long.notify_one();
                }
                front.take(Update::Answer(Content::Text(part)));
            }
            AnswerPiece::Call(call) => calls.push(call),
            AnswerPiece::Usage(used) => usage = used,
            AnswerPiece::End(_) => {}
        };
        let note = |note| front.take(Update::Note(note));
        let tools = tools.unwrap_or_default();
        let request = provider.ask(model, &system, tools, &messages, take, note);
        let end = tokio::select! {
            end = request => end.map_err(AssistantError::from),
            () = stop.notified() => Err(AssistantError::Stopped),
            () = too_long.notified() => Err(AssistantError::TooLong),
        };
        if end.is_err() {
            calls.clear();
        }
        ModelAnswer {
            text,
            calls,
            usage,
            end,
        }
    }

    /// Calls tools, one after the other; returns whether the person has stopped them. Each call gets a result.
    async fn call_all(&mut self, calls: &[ModelCall], front: &impl Front, stop: &Notify) -> bool {
        let mut results = Vec::new();
        let mut is_stopped = false;
        for call in calls {
            let outcome = match is_stopped {
                true => CallOutcome::not_started(call),
                false => self.call(call, front, stop).await,
            };
            is_stopped |= outcome.is_stopped;
            results.push(outcome.result);
        }
        self.messages.push(ConversationPart::Tools { results });
        is_stopped
    }

    async fn call(&self, call: &ModelCall, front: &impl Front, stop: &Notify) -> CallOutcome {
        let shown = shown(call);
        let approval_reason = shown
            .approval_reason
            .clone()
            .filter(|_| self.options.approves);
        let approval_reason = approval_reason.map(|why| format!("{}: {why}", shown.title));
        front.take(Update::Tool(first_update(call, shown)));
        let outcome = match &self.tools {
            // A name that other servers use for a tool would pass by the approval.
            Some(tools) if tools.list.iter().any(|tool| tool.name == call.name) => {
                let allowed = match approval_reason {
                    Some(title) => tokio::select! {
                        allowed = is_allowed(title, front) => Some(allowed),
                        () = stop.notified() => None,
                    },
                    None => Some(true),
                };
                match allowed {
                    Some(true) => {
                        let progress = |line: String| {
                            front.take(Update::Tool(ToolChange {
                                id: call.id.clone(),
                                state: Some(ToolState::Running),
                                content: Some(vec![ToolContent::Content(Content::Text(line))]),
                                ..ToolChange::default()
                            }));
                        };
                        tools.call(call, progress, stop).await
                    }
                    Some(false) => CallOutcome::not_allowed(call),
                    None => CallOutcome::stopped(call),
                }
            }
            _ => CallOutcome::unknown(call),
        };
        let content = Content::Text(outcome.result.text.clone());
        front.take(Update::Tool(ToolChange {
            id: call.id.clone(),
            state: Some(match outcome.result.is_error {
                true => ToolState::Failed,
                false => ToolState::Done,
            }),
            content: Some(vec![ToolContent::Content(content)]),
            output: outcome.fields.clone(),
            ..ToolChange::default()
        }));
        outcome
    }
}

fn first_update(call: &ModelCall, shown: ShownCall) -> ToolChange {
    let warnings = (!shown.warnings.is_empty()).then(|| Value::from(shown.warnings));
    ToolChange {
        id: call.id.clone(),
        title: Some(shown.title),
        kind: Some(shown.kind.to_owned()),
        state: Some(ToolState::Waiting),
        content: Some(shown.content),
        output: warnings,
        ..ToolChange::default()
    }
}

/// Asks the person about a call: what it does, and why that is asked.
async fn is_allowed(title: String, front: &impl Front) -> bool {
    let option = |id: &str, name: &str, kind| PermissionOption {
        id: id.to_owned(),
        name: name.to_owned(),
        kind,
    };
    let question = PermissionQuestion {
        agent: "assistant".to_owned(),
        title,
        kind: String::new(),
        places: Vec::new(),
        options: vec![
            option("allow", "Allow", PermissionKind::AllowOnce),
            option("reject", "Do not allow", PermissionKind::RejectOnce),
        ],
        standing: None,
    };
    let Some(answer) = front.ask(question.prompt()).await else {
        return false;
    };
    matches!(question.choice(&answer), PermissionChoice::Option(option) if option.id == "allow")
}

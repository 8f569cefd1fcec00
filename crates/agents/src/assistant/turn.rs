//! A message, answered with as many requests and calls as it takes.

use std::cell::Cell;
use std::path::PathBuf;

use serde_json::Value;
use tokio::sync::Notify;

use super::approval::{Approval, CallPreview, ShownCall, approval, question};
use super::message::{
    AnswerPiece, ConversationPart, EndReason, ModelCall, TokenUsage, make_ids_unique, within_limit,
};
use super::provider::{ModelError, Provider};
use super::tools::{CallOutcome, Tools, ToolsError};
use crate::agent::update::{Content, ToolChange, ToolContent, ToolState, Update};
use crate::agent::{Front, McpServer};

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
    /// Whether the person is asked before each call that writes, undoes or runs something.
    pub approves: bool,
}

/// An assistant with its conversation.
pub struct Assistant {
    options: AssistantOptions,
    /// Whether the person has allowed all calls until the end of the turn.
    allows_all: Cell<bool>,
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
    opaque: Value,
    usage: TokenUsage,
    end: Result<EndReason, AssistantError>,
}

impl Assistant {
    /// Makes an assistant that goes on with a conversation. Nothing is started yet.
    pub fn new(options: AssistantOptions, messages: Vec<ConversationPart>) -> Self {
        Self {
            options,
            allows_all: Cell::new(false),
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
        self.messages
            .iter_mut()
            .for_each(ConversationPart::end_turn);
        self.messages.push(ConversationPart::Person {
            text: text.to_owned(),
        });
        self.allows_all.set(false);
        let mut cost = TokenUsage::default();
        for _ in 0..MOST_REQUESTS {
            let answer = self.ask(model, front, stop).await;
            cost += answer.usage;
            usage(cost);
            let ModelAnswer {
                text,
                mut calls,
                opaque,
                end,
                ..
            } = answer;
            make_ids_unique(&mut calls, &self.messages);
            if !text.trim().is_empty() || !calls.is_empty() {
                let calls = calls.clone();
                self.messages.push(ConversationPart::Model {
                    text,
                    calls,
                    opaque,
                });
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
        let (mut text, mut calls, mut opaque) = (String::new(), Vec::new(), Value::Null);
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
            AnswerPiece::Opaque(value) => opaque = value,
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
            opaque,
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

    /// Makes a call, if the person allows it, and shows what came of it.
    async fn call(&self, call: &ModelCall, front: &impl Front, stop: &Notify) -> CallOutcome {
        let outcome = self.outcome(call, front, stop).await;
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

    async fn outcome(&self, call: &ModelCall, front: &impl Front, stop: &Notify) -> CallOutcome {
        let show = |preview| front.take(first_update(call, &ShownCall::of(call, preview)));
        // A name that other servers use for a tool is no tool here.
        let Some(tools) = self.tools.as_ref().filter(|tools| tools.has(&call.name)) else {
            show(None);
            return CallOutcome::unknown(call);
        };
        let preview = tokio::select! {
            preview = tools.preview(call) => preview,
            () = stop.notified() => {
                show(None);
                return CallOutcome::stopped(call);
            }
        };
        show(preview.as_ref().ok());
        if self.options.approves {
            let allowed = tokio::select! {
                allowed = self.ask_person(tools, call, preview, front) => allowed,
                () = stop.notified() => Err(CallOutcome::stopped(call)),
            };
            if let Err(refused) = allowed {
                return refused;
            }
        }
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

    /// Asks the person about a call that writes or runs something, with all that it would write and run. If that is
    /// not the same any more when they answer, they are asked again.
    async fn ask_person(
        &self,
        tools: &Tools,
        call: &ModelCall,
        preview: Result<CallPreview, String>,
        front: &impl Front,
    ) -> Result<(), CallOutcome> {
        let failed = |why| CallOutcome::failed(call, why);
        let mut preview = preview.map_err(failed)?;
        let mut is_changed = false;
        while !preview.reads && !self.allows_all.get() {
            let question = question(&ShownCall::of(call, Some(&preview)), &preview, is_changed);
            let answer = front.ask(question.prompt()).await;
            match approval(&question, answer.as_deref()) {
                Approval::Once => {}
                Approval::Turn => self.allows_all.set(true),
                Approval::Refused => return Err(CallOutcome::not_allowed(call)),
            }
            let now = tools.preview(call).await.map_err(failed)?;
            if now == preview {
                break;
            }
            (preview, is_changed) = (now, true);
            front.take(first_update(call, &ShownCall::of(call, Some(&preview))));
        }
        Ok(())
    }
}

fn first_update(call: &ModelCall, shown: &ShownCall) -> Update {
    let warnings = (!shown.warnings.is_empty()).then(|| Value::from(shown.warnings.clone()));
    Update::Tool(ToolChange {
        id: call.id.clone(),
        title: Some(shown.title.clone()),
        kind: Some(shown.kind.clone()),
        state: Some(ToolState::Waiting),
        content: Some(shown.content.clone()),
        output: warnings,
        ..ToolChange::default()
    })
}

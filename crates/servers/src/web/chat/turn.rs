//! The events of a turn, and how they are sent.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::response::sse::Event;
use futures_util::Stream;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::agent::update::{Content, ToolChange, ToolContent, ToolState, Update};

/// How many bytes the events of a turn may have. A turn that has more is stopped.
const TURN_BYTES_MAX: usize = 8 << 20;

/// How many bytes of a tool's result are shown.
const RESULT_BYTES_MAX: usize = 64 << 10;

/// How many characters of a line are shown while a terminal goes on.
const LINE_CHARS_MAX: usize = 200;

/// Something that happens while the assistant answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub(in crate::web) enum TurnEvent {
    /// A piece of the answer: Markdown.
    TextDelta {
        /// The piece.
        text: String,
    },
    /// A remark of the server itself.
    Note {
        /// One line.
        text: String,
    },
    /// The assistant calls a tool.
    ToolStart {
        /// The call.
        id: String,
        /// What it does, in a line.
        title: String,
        /// `read`, `edit`, `delete`, `execute`, or another word of an agent.
        kind: String,
        /// What it writes or runs.
        content: Vec<StepContent>,
        /// What its code does that is worth a look, such as a shell command.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
    },
    /// A call goes on: every five seconds while a cell runs.
    ToolUpdate {
        /// The call.
        id: String,
        /// The last line of output, or what an agent shows.
        content: Vec<StepContent>,
    },
    /// A call has ended.
    ToolResult {
        /// The call.
        id: String,
        /// Whether it did not do what it was asked for.
        failed: bool,
        /// What the assistant reads.
        content: Vec<StepContent>,
        /// The edit, by which it can be undone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        op: Option<String>,
        /// The cells that were changed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changes: Vec<ChangedCell>,
        /// The state of the run, such as `ok`, `error` or `timeout`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<String>,
    },
    /// The assistant asks for a permission. `POST …/chat/answer` answers.
    Question {
        /// The question's number in the turn.
        id: u64,
        /// The question, with a letter for each answer.
        text: String,
    },
    /// A question is answered, or no longer open.
    Answered {
        /// The question.
        id: u64,
    },
    /// What the turn has cost so far.
    Usage {
        /// Tokens that were sent.
        input_tokens: u64,
        /// Tokens that the model has written.
        output_tokens: u64,
        /// The price, and its currency, where it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<(f64, String)>,
    },
    /// The turn has failed. `done` follows.
    Error {
        /// What went wrong.
        message: String,
        /// What can be done about it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hints: Vec<String>,
    },
    /// The turn is over. It is always the last event.
    Done {
        /// `end_turn`, `stopped`, `error`, or another reason of the model.
        reason: String,
    },
}

/// A part of what a step shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub(in crate::web) enum StepContent {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A text that is replaced.
    Diff {
        /// The file.
        path: String,
        /// The text before.
        old: String,
        /// The text after.
        new: String,
    },
}

/// A cell that a step has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::web) struct ChangedCell {
    /// The cell's id.
    cell: String,
    /// What happened to it: `inserted`, `edited`, `removed`, `moved`, …
    #[serde(rename = "what")]
    change: String,
}

/// Turns an assistant's updates into events.
#[derive(Debug, Default)]
pub(super) struct UpdateReader {
    /// The calls whose beginning was reported.
    begun: HashSet<String>,
    /// The agent's terminals.
    terminals: HashMap<String, ShownTerminal>,
}

/// A terminal of an agent.
#[derive(Debug, Default)]
struct ShownTerminal {
    /// The call that shows it, while that goes on.
    call: Option<String>,
    /// Its command and output.
    text: String,
}

impl ShownTerminal {
    /// Returns the last line: the whole would be sent again with each line.
    fn last_line(&self) -> String {
        let line = self.text.trim_end().lines().next_back().unwrap_or_default();
        line.chars().take(LINE_CHARS_MAX).collect()
    }
}

impl UpdateReader {
    pub(super) fn event(&mut self, update: Update) -> Option<TurnEvent> {
        match update {
            Update::Answer(content) => {
                let text = text_of(content);
                (!text.is_empty()).then_some(TurnEvent::TextDelta { text })
            }
            Update::Note(text) => Some(TurnEvent::Note { text }),
            Update::Tool(change) => Some(self.tool(change)),
            Update::Terminal { id, text } => {
                let terminal = self.terminals.entry(id).or_default();
                terminal.text = shortened(text);
                let id = terminal.call.clone()?;
                let text = terminal.last_line();
                let content = vec![StepContent::Text { text }];
                Some(TurnEvent::ToolUpdate { id, content })
            }
            Update::Usage { used, cost, .. } => Some(TurnEvent::Usage {
                input_tokens: used,
                output_tokens: 0,
                cost,
            }),
            Update::Plan(steps) => {
                let steps = steps
                    .into_iter()
                    .map(|step| format!("{:?}: {}", step.state, step.text));
                let text = steps.collect::<Vec<_>>().join("\n");
                Some(TurnEvent::Note { text })
            }
            Update::Thought(_)
            | Update::Commands(_)
            | Update::Mode(_)
            | Update::Options(_)
            | Update::Other => None,
        }
    }

    fn tool(&mut self, change: ToolChange) -> TurnEvent {
        let ToolChange {
            id,
            title,
            kind,
            state,
            content,
            output,
            ..
        } = change;
        let is_over = matches!(state, Some(ToolState::Done | ToolState::Failed));
        let content = content.into_iter().flatten();
        let mut content: Vec<_> = content.map(|it| self.step_content(it, &id)).collect();
        if is_over {
            let mut terminals: Vec<_> = self.terminals.values_mut().collect();
            terminals.retain_mut(|it| it.call.take_if(|call| *call == id).is_some());
            if content.is_empty() {
                let texts = terminals.into_iter().map(|it| it.text.clone());
                content.extend(texts.map(|text| StepContent::Text { text }));
            }
        }
        if self.begun.insert(id.clone()) && !is_over {
            let warnings = output.and_then(|output| serde_json::from_value(output).ok());
            return TurnEvent::ToolStart {
                id,
                title: title.unwrap_or_default(),
                kind: kind.unwrap_or_default(),
                content,
                warnings: warnings.unwrap_or_default(),
            };
        }
        if !is_over {
            return TurnEvent::ToolUpdate { id, content };
        }
        let fields = output.unwrap_or_default();
        let text = |name: &str| fields[name].as_str().map(str::to_owned);
        TurnEvent::ToolResult {
            id,
            failed: state == Some(ToolState::Failed),
            content,
            op: text("op"),
            changes: serde_json::from_value(fields["changes"].clone()).unwrap_or_default(),
            status: text("status"),
        }
    }

    fn step_content(&mut self, content: ToolContent, call: &str) -> StepContent {
        match content {
            ToolContent::Content(content) => StepContent::Text {
                text: shortened(text_of(content)),
            },
            ToolContent::Diff { path, old, new } => StepContent::Diff {
                path: path.display().to_string(),
                old: shortened(old),
                new: shortened(new),
            },
            ToolContent::Terminal(id) => {
                let terminal = self.terminals.entry(id).or_default();
                terminal.call = Some(call.to_owned());
                StepContent::Text {
                    text: terminal.text.clone(),
                }
            }
        }
    }
}

fn text_of(content: Content) -> String {
    match content {
        Content::Text(text) => text,
        Content::Media { mime, .. } => format!("[{mime}]"),
        Content::Link { name, uri } => format!("{name} {uri}"),
        Content::File { uri, .. } => uri,
    }
}

fn shortened(mut text: String) -> String {
    if text.len() > RESULT_BYTES_MAX {
        let end = text.floor_char_boundary(RESULT_BYTES_MAX);
        text.truncate(end);
        text.push_str("\n[the rest is not shown]");
    }
    text
}

/// A turn as it is stored, and as it goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::web) struct Turn {
    /// Its id.
    pub(super) id: String,
    /// When it began.
    pub(super) at: jiff::Timestamp,
    /// The person's message.
    pub(super) message: String,
    /// What happened since; pieces of text that follow each other are one.
    pub(super) events: Vec<TurnEvent>,
}

impl Turn {
    /// Adds an event, so that the turn stays as short as it can be.
    fn add(&mut self, event: TurnEvent) {
        if let TurnEvent::TextDelta { text: added } = &event
            && let Some(TurnEvent::TextDelta { text }) = self.events.last_mut()
        {
            text.push_str(added);
            return;
        }
        let replaces = |earlier: &TurnEvent| match (&event, earlier) {
            (TurnEvent::Usage { .. }, TurnEvent::Usage { .. }) => true,
            (
                TurnEvent::ToolUpdate { id, .. } | TurnEvent::ToolResult { id, .. },
                TurnEvent::ToolUpdate { id: earlier, .. },
            ) => id == earlier,
            _ => false,
        };
        self.events.retain(|earlier| !replaces(earlier));
        self.events.push(event);
    }

    /// Returns whether it has ended.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.events.last(), Some(TurnEvent::Done { .. }))
    }
}

/// A turn of this server's run, with each event as it is sent.
#[derive(Debug)]
pub(super) struct TurnLog {
    state: Mutex<TurnLogState>,
    /// How many events there are.
    count: watch::Sender<usize>,
}

#[derive(Debug)]
struct TurnLogState {
    turn: Turn,
    /// The names and the data of the events.
    event_data: Vec<(String, String)>,
    bytes: usize,
}

impl TurnLog {
    pub(super) fn new(turn: Turn) -> Self {
        let log = Self {
            state: Mutex::new(TurnLogState {
                turn: Turn {
                    events: Vec::new(),
                    ..turn.clone()
                },
                event_data: Vec::new(),
                bytes: 0,
            }),
            count: watch::Sender::new(0),
        };
        for event in turn.events {
            log.add(event);
        }
        log
    }

    fn state(&self) -> MutexGuard<'_, TurnLogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event; returns whether there is room for more.
    pub(super) fn add(&self, event: TurnEvent) -> bool {
        let value = serde_json::to_value(&event).unwrap_or_default();
        let name = value["type"].as_str().unwrap_or_default().to_owned();
        let data = value.to_string();
        let mut state = self.state();
        state.bytes += data.len();
        let has_room = state.bytes <= TURN_BYTES_MAX;
        state.event_data.push((name, data));
        state.turn.add(event);
        self.count.send_replace(state.event_data.len());
        has_room
    }

    /// Returns the turn until now.
    pub(super) fn turn(&self) -> Turn {
        self.state().turn.clone()
    }

    /// Returns the turn's id.
    pub(super) fn id(&self) -> String {
        self.state().turn.id.clone()
    }

    /// Returns whether the turn has ended.
    pub(super) fn is_over(&self) -> bool {
        self.state().turn.is_over()
    }

    /// Returns the events after the first `after` ones, until the turn is over.
    pub(super) fn stream(
        self: Arc<Self>,
        after: usize,
    ) -> impl Stream<Item = Result<Event, Infallible>> + Send + use<> {
        let count = self.count.subscribe();
        futures_util::stream::unfold((self, count, after), |(log, mut count, at)| async move {
            loop {
                let _ = count.borrow_and_update();
                {
                    let state = log.state();
                    if let Some((name, data)) = state.event_data.get(at) {
                        let event = Event::default().event(name).data(data);
                        let event = event.id((at + 1).to_string());
                        drop(state);
                        return Some((Ok(event), (log, count, at + 1)));
                    }
                    if state.turn.is_over() {
                        return None;
                    }
                }
                count.changed().await.ok()?;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use serde_json::json;

    use super::*;

    fn turn() -> Turn {
        Turn {
            id: "t".to_owned(),
            at: jiff::Timestamp::UNIX_EPOCH,
            message: "plot".to_owned(),
            events: Vec::new(),
        }
    }

    fn text(text: &str) -> TurnEvent {
        TurnEvent::TextDelta {
            text: text.to_owned(),
        }
    }

    fn done() -> TurnEvent {
        TurnEvent::Done {
            reason: "end_turn".to_owned(),
        }
    }

    #[test]
    fn a_call_begins_goes_on_and_ends() {
        let mut reader = UpdateReader::default();
        let mut change = |state, output| {
            let update = Update::Tool(ToolChange {
                id: "1".to_owned(),
                title: Some("update cell a".to_owned()),
                state: Some(state),
                output,
                ..ToolChange::default()
            });
            serde_json::to_value(reader.event(update)).unwrap()
        };
        let start = change(
            ToolState::Waiting,
            Some(json!(["line 1 runs a shell command: !ls"])),
        );
        assert_eq!(start["type"], "tool_start");
        assert_eq!(start["warnings"][0], "line 1 runs a shell command: !ls");
        assert_eq!(change(ToolState::Running, None)["type"], "tool_update");
        let fields = json!({
            "op": "ab12",
            "changes": [{"cell": "3f2c", "index": 0, "what": "edited", "before": null, "after": null}],
        });
        let over = change(ToolState::Done, Some(fields));
        assert_eq!(
            (&over["type"], &over["op"]),
            (&json!("tool_result"), &json!("ab12"))
        );
        assert_eq!(over["changes"], json!([{"cell": "3f2c", "what": "edited"}]));
    }

    #[test]
    fn a_running_call_shows_the_last_line_of_its_terminal_and_an_ended_one_all() {
        let mut reader = UpdateReader::default();
        let tool = |state, content| {
            Update::Tool(ToolChange {
                id: "1".to_owned(),
                state: Some(state),
                content,
                ..ToolChange::default()
            })
        };
        let terminal = |text: &str| Update::Terminal {
            id: "t".to_owned(),
            text: text.to_owned(),
        };
        let text = |event: Option<TurnEvent>| {
            let event = serde_json::to_value(event).unwrap();
            let text = event["content"][0]["text"].as_str().unwrap_or_default();
            (
                event["type"].as_str().unwrap_or_default().to_owned(),
                text.to_owned(),
            )
        };
        let assert_event = |event, name: &str, expected: &str| {
            assert_eq!(text(event), (name.to_owned(), expected.to_owned()));
        };
        assert_eq!(
            reader.event(terminal("$ make\n")),
            None,
            "no call shows it yet"
        );
        let content = vec![ToolContent::Terminal("t".to_owned())];
        assert_event(
            reader.event(tool(ToolState::Running, Some(content))),
            "tool_start",
            "$ make\n",
        );
        assert_event(
            reader.event(terminal("$ make\ncc a\ncc b\n")),
            "tool_update",
            "cc b",
        );
        assert_event(
            reader.event(tool(ToolState::Done, None)),
            "tool_result",
            "$ make\ncc a\ncc b\n",
        );
        assert_eq!(
            reader.event(terminal("$ make\n…\n")),
            None,
            "the call is over"
        );
    }

    #[tokio::test]
    async fn a_later_reader_gets_the_remaining_events() {
        let log = Arc::new(TurnLog::new(turn()));
        log.add(text("one "));
        let from_first = log.clone().stream(0);
        let from_second = log.clone().stream(1);
        log.add(text("two"));
        log.add(done());
        assert_eq!(from_first.count().await, 3);
        assert_eq!(from_second.count().await, 2);
        assert_eq!(log.clone().stream(3).count().await, 0);
        let stored = log.turn();
        assert_eq!(stored.events, [text("one two"), done()]);
        let restored = Arc::new(TurnLog::new(stored));
        assert!(restored.is_over());
        assert_eq!(restored.stream(0).count().await, 2);
    }

    #[test]
    fn a_turn_with_too_many_bytes_is_reported() {
        let log = TurnLog::new(turn());
        let piece = text(&"x".repeat(1 << 20));
        let added = (0..20).filter(|_| log.add(piece.clone()));
        assert_eq!(added.count(), 7);
    }
}

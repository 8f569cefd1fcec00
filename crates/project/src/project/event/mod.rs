//! The journal: who did what, as typed events, one line of JSON each.
//!
//! An execution is identified by its kernel's generation and its request's `msg_id`. Its sender writes
//! [`EventKind::Requested`] and [`EventKind::Done`]; an observer of iopub writes [`EventKind::BegunOutside`] and a `done`
//! with [`CellEnd::ObservedOk`]. If several processes write about one execution, the sender's events take
//! precedence over an observer's.
//!
//! [`Journal`] appends to a series of files, [`Events`] reads them backwards from the end, [`EventFollower`]
//! reads from a position on and follows new events. Torn lines and lines of kinds that this version does not
//! know are skipped.

mod call;
mod change;
mod follower;
pub mod journal;
mod present;
mod reader;

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};
use serde::{Deserialize, Deserializer, Serialize};

pub use call::ToolCall;
pub use change::{CellStep, NotebookChange, OverwrittenEdit};
pub use follower::EventFollower;
pub use journal::Journal;
pub use present::{Present, RunningExecution};
pub use reader::{Events, Position};

/// One event of a session's kernel or of its notebook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// When it happened.
    pub at: Timestamp,
    /// The session's key: its notebook's path in the project. An edit has the key of the edited notebook, even if
    /// its kernel belongs to another session.
    pub session: String,
    /// The generation of the session's kernel that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The actor's name.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "optional_name"
    )]
    pub by: Option<String>,
    /// The agent's session. People see only the name, but two sessions are two actors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_session: Option<String>,
    /// The notebook whose cell was run, if it is not the session's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notebook: Option<String>,
    /// The kind of event.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The kinds of event, each with its own fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    /// A front end's cell waits at its proxy until another client's cell has ended. The proxy then sends it, which is
    /// a [`EventKind::Requested`], or the wait ends with a [`EventKind::Done`].
    Queued(ExecutionStart),
    /// A client of `nb` or of a proxy sent an execute request.
    Requested(ExecutionStart),
    /// The kernel began to run a request of a client that is connected to it directly.
    BegunOutside(ExecutionStart),
    /// The code of a front end's cell requests a line of input from the person there.
    Prompted {
        /// The request's id.
        msg_id: String,
        /// The prompt.
        prompt: String,
    },
    /// The person has answered.
    Answered {
        /// The request's id.
        msg_id: String,
    },
    /// An execution ended.
    Done(ExecutionEnd),
    /// `nb` inspected the kernel with code that does not appear in its history.
    Peeked {
        /// The code; omitted if the user's settings say that no code is stored.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<String>,
    },
    /// A kernel was started.
    Opened,
    /// The kernel was replaced by a new one, whose generation the event has.
    Restarted,
    /// The kernel was shut down.
    Stopped,
    /// The kernel exited unexpectedly.
    Died {
        /// The reason, in words for a reader.
        reason: String,
        /// The cell that was running.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cell: Option<String>,
    },
    /// The running cell was interrupted.
    Interrupted,
    /// A front end's interrupt removed its own cells that waited for the kernel.
    Withdrew {
        /// The number of cells.
        cells: usize,
        /// The ids of their requests; none in events of earlier versions.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        msg_ids: Vec<String>,
    },
    /// `nb mv` moved the notebook, which has the event's key since.
    Moved {
        /// Its key before.
        from: String,
    },
    /// A command of `nb` changed the notebook.
    Edited(NotebookChange),
    /// Another program saved the notebook with changed cells.
    Saved(NotebookChange),
    /// An agent's tool was called.
    Called(ToolCall),
    /// The agent's actions before this event were the answer to a message in a chat.
    Messaged(ChatTurn),
}

/// A message in a chat, and the cell that it stands in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ChatTurn {
    /// The chat: its notebook, as far as its front end names it.
    pub chat: String,
    /// The cell: its id, or its number in brackets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// How the message begins; omitted if the user's settings say that no code is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// An execute request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecutionStart {
    /// The request's id.
    pub msg_id: String,
    /// The notebook cell that its client named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// The job that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The code; omitted for code that a front end runs for itself, and if the user's settings say that no code is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// False for code that a front end runs for itself.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub store_history: bool,
    /// Whether the kernel was idle when the request was sent: all earlier executions had ended.
    #[serde(default, skip_serializing_if = "is_no")]
    pub alone: bool,
}

/// The end of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecutionEnd {
    /// The request's id.
    pub msg_id: String,
    /// How it ended.
    pub status: CellEnd,
    /// False for code that a front end runs for itself.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub store_history: bool,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// The execution count, if the writer got the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_count: Option<u64>,
}

/// How the execution of a cell, or of code outside the notebook, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CellEnd {
    /// The code ran to its end.
    Ok,
    /// The code raised.
    Error,
    /// An interrupt ended it.
    Interrupted,
    /// It was not run, since a cell before it in the kernel's queue had failed, or since the kernel ended before.
    Aborted,
    /// It was withdrawn before the kernel began with it.
    Withdrawn,
    /// It was not run, since a cell before it in its job had failed.
    NotRun,
    /// It was not run, since its kernel did not run.
    NoKernel,
    /// It was not run, since an edit had changed what was to be run.
    Edited,
    /// The kernel went idle without a reply.
    NoReply,
    /// The kernel ended while it ran.
    KernelDied,
    /// The kernel has ended it, and no recorder received the reply.
    UnknownEnd,
    /// An observer saw its end, and no error among its outputs.
    ObservedOk,
    /// An observer saw its end, and an error among its outputs.
    ObservedError,
    /// The kernel was found idle: no client saw the end.
    Unobserved,
    /// An end that only another version of `nb` knows, or a kernel's own status.
    #[serde(other)]
    Unknown,
}

impl Event {
    /// Returns an event that happens now.
    pub fn now(session: &str, kind: EventKind) -> Self {
        Self {
            at: Timestamp::now(),
            session: session.to_owned(),
            generation: None,
            by: None,
            by_session: None,
            notebook: None,
            kind,
        }
    }

    /// Returns the id of the request that the event is about, if it is an execution's.
    pub fn msg_id(&self) -> Option<&str> {
        match &self.kind {
            EventKind::Queued(start)
            | EventKind::Requested(start)
            | EventKind::BegunOutside(start) => Some(&start.msg_id),
            EventKind::Done(end) => Some(&end.msg_id),
            EventKind::Prompted { msg_id, .. } | EventKind::Answered { msg_id } => Some(msg_id),
            _ => None,
        }
    }

    /// Returns the request, if its sender wrote the event.
    pub fn request(&self) -> Option<&ExecutionStart> {
        match &self.kind {
            EventKind::Requested(start) => Some(start),
            _ => None,
        }
    }

    /// Returns the request, if its sender or an observer wrote the event.
    pub fn start(&self) -> Option<&ExecutionStart> {
        match &self.kind {
            EventKind::Requested(start) | EventKind::BegunOutside(start) => Some(start),
            _ => None,
        }
    }

    /// Returns the end of an execution.
    pub fn end(&self) -> Option<&ExecutionEnd> {
        match &self.kind {
            EventKind::Done(end) => Some(end),
            _ => None,
        }
    }

    /// Returns the change of a notebook, by `nb` or by another program.
    pub fn change(&self) -> Option<&NotebookChange> {
        match &self.kind {
            EventKind::Edited(change) | EventKind::Saved(change) => Some(change),
            _ => None,
        }
    }

    /// Like [`Event::change`], by value.
    pub fn into_change(self) -> Option<NotebookChange> {
        match self.kind {
            EventKind::Edited(change) | EventKind::Saved(change) => Some(change),
            _ => None,
        }
    }

    /// Returns the key of the notebook whose cell was run.
    pub fn notebook(&self) -> &str {
        self.notebook.as_ref().unwrap_or(&self.session)
    }

    /// Returns the id of the actor; see [`split_actor`].
    pub fn actor(&self) -> Option<String> {
        let by = self.by.as_deref()?;
        Some(actor_id(by, self.by_session.as_deref()))
    }

    /// Returns the event as it is written: with the actor's name and session in separate fields, and without
    /// code if no code is stored.
    fn to_write(&self, keeps_code: bool) -> Self {
        let mut event = self.clone();
        if let Some((name, Some(session))) = self.by.as_deref().map(split_actor) {
            event.by_session = Some(session.to_owned());
            event.by = Some(name.to_owned());
        }
        match &mut event.kind {
            EventKind::Queued(start)
            | EventKind::Requested(start)
            | EventKind::BegunOutside(start)
                if !keeps_code =>
            {
                start.code = None;
            }
            EventKind::Peeked { code } if !keeps_code => *code = None,
            EventKind::Called(call) if !keeps_code => call.remove_code(),
            EventKind::Messaged(turn) if !keeps_code => turn.message = None,
            _ => {}
        }
        event
    }
}

/// Reads an actor's name without control characters: others may have written the file, and a name must not
/// begin lines of its own where it is printed.
pub(super) fn optional_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    let name = Option::<String>::deserialize(deserializer)?;
    Ok(name.map(|name| name.replace(char::is_control, " ")))
}

/// Like [`optional_name`], for a name that must be there.
pub(super) fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    Ok(name.replace(char::is_control, " "))
}

/// Like [`optional_name`], for a list.
pub(super) fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?.into_iter();
    Ok(names
        .map(|name| name.replace(char::is_control, " "))
        .collect())
}

/// Splits an actor's id into the name and, if it has one, the session: an id is `claude` or
/// `claude#1a2b3c4d`.
pub fn split_actor(id: &str) -> (&str, Option<&str>) {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match id.rsplit_once('#') {
        Some((name, session)) if session.len() == 8 && session.bytes().all(is_hex) => {
            (name, Some(session))
        }
        _ => (id, None),
    }
}

/// Returns the id of an actor; the reverse of [`split_actor`].
pub fn actor_id(name: &str, session: Option<&str>) -> String {
    match session {
        Some(session) => format!("{name}#{session}"),
        None => name.to_owned(),
    }
}

impl ExecutionStart {
    /// Returns a request with its id only.
    pub fn new(msg_id: &str) -> Self {
        Self {
            msg_id: msg_id.to_owned(),
            cell: None,
            job: None,
            code: None,
            store_history: true,
            alone: false,
        }
    }
}

impl ExecutionEnd {
    /// Returns the end of a request.
    pub fn new(msg_id: &str, status: CellEnd, took: Option<Duration>) -> Self {
        let took_ms = took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        Self {
            msg_id: msg_id.to_owned(),
            status,
            store_history: true,
            took_ms,
            execution_count: None,
        }
    }
}

impl CellEnd {
    /// Returns whether the kernel began to run the cell.
    pub fn has_begun(self) -> bool {
        !matches!(
            self,
            Self::Aborted | Self::Withdrawn | Self::NotRun | Self::NoKernel | Self::Edited
        )
    }

    /// Parses the status of a reply.
    pub fn of_word(word: &str) -> Self {
        let word: StrDeserializer<'_, Error> = word.into_deserializer();
        Self::deserialize(word).unwrap_or(Self::Unknown)
    }

    /// Returns the word in journals and answers: the reverse of [`CellEnd::of_word`].
    pub fn word(self) -> String {
        let word = serde_json::to_value(self).unwrap_or_default();
        word.as_str().unwrap_or_default().to_owned()
    }

    /// Returns whether the request's sender or recorder reported it, who know more than an
    /// observer.
    pub fn is_certain(self) -> bool {
        !matches!(
            self,
            Self::ObservedOk | Self::ObservedError | Self::Unobserved
        )
    }

    /// Returns the end to show: an observer's report counts as the end.
    pub fn shown(self) -> Self {
        match self {
            Self::ObservedOk => Self::Ok,
            Self::ObservedError => Self::Error,
            known => known,
        }
    }
}

fn yes() -> bool {
    true
}

fn is_yes(it: &bool) -> bool {
    *it
}

fn is_no(it: &bool) -> bool {
    !*it
}

/// Returns the execute requests among events that come newest first. Leaves out front ends' own code,
/// and requests that were aborted or withdrawn before the kernel began to run them.
pub fn requests(events: impl Iterator<Item = Event>) -> impl Iterator<Item = Event> {
    let mut aborted = HashSet::new();
    events.filter(move |event| match &event.kind {
        EventKind::Done(end) => {
            if !end.status.has_begun() {
                aborted.insert(end.msg_id.clone());
            }
            false
        }
        EventKind::Requested(start) => start.store_history && !aborted.contains(&start.msg_id),
        _ => false,
    })
}

/// Events for tests.
#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures {
    use super::Event;
    use crate::project::Project;

    /// Returns an event with these fields; by default it happens now and belongs to `a.ipynb`.
    pub fn event(mut fields: serde_json::Value) -> Event {
        let all = fields.as_object_mut().unwrap();
        all.entry("at")
            .or_insert_with(|| jiff::Timestamp::now().to_string().into());
        all.entry("session").or_insert_with(|| "a.ipynb".into());
        all.retain(|_, value| !value.is_null());
        serde_json::from_value(fields).unwrap()
    }

    /// Returns a project in a folder that is removed when the first value is dropped.
    pub fn project() -> (tempfile::TempDir, Project) {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        (temp, project)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_one_flat_object_and_unknown_fields_do_no_harm() {
        let line = json!({
            "at": "2026-01-02T03:04:05Z", "session": "a", "event": "requested", "msg_id": "1",
            "alone": true,
        });
        let mut later = line.clone();
        later["of_a_later_version"] = json!(1);
        let read: Event = serde_json::from_value(later).unwrap();
        assert!(read.request().unwrap().store_history);
        assert_eq!(serde_json::to_value(&read).unwrap(), line);
        let opened =
            json!({"at": "2026-01-02T03:04:05Z", "session": "a", "event": "opened", "x": 1});
        let read: Event = serde_json::from_value(opened).unwrap();
        assert_eq!(read.kind, EventKind::Opened);
    }

    #[test]
    fn an_actor_is_a_name_and_perhaps_a_session() {
        for (id, want) in [
            ("claude", ("claude", None)),
            ("claude#1a2b3c4d", ("claude", Some("1a2b3c4d"))),
            ("team#1", ("team#1", None)),
            ("a#b#00000000", ("a#b", Some("00000000"))),
        ] {
            assert_eq!(split_actor(id), want);
            assert_eq!(actor_id(want.0, want.1), id);
        }
        let mut event = Event::now("a.ipynb", EventKind::Opened);
        event.by = Some("claude#1a2b3c4d".to_owned());
        let written = event.to_write(true);
        assert_eq!(written.by.as_deref(), Some("claude"));
        assert_eq!(written.actor(), event.by);
    }

    #[test]
    fn a_name_in_a_file_begins_no_line() {
        let event = json!({
            "at": "2026-01-02T03:04:05Z", "session": "a", "event": "opened",
            "by": "ada\n2026-01-02  bo\u{1b}[2K",
        });
        let event: Event = serde_json::from_value(event).unwrap();
        assert_eq!(event.by.as_deref(), Some("ada 2026-01-02  bo [2K"));
        let lost = json!({
            "at": "2026-01-02T03:04:05Z", "cell": "a", "op": "1", "by": "ada\r\nbo", "what": "edited",
            "revision": null,
        });
        let lost: OverwrittenEdit = serde_json::from_value(lost).unwrap();
        assert_eq!(lost.by, "ada  bo");
    }

    #[test]
    fn an_end_has_the_word_of_a_reply() {
        assert_eq!(CellEnd::of_word("ok"), CellEnd::Ok);
        assert_eq!(CellEnd::of_word("kernel_died"), CellEnd::KernelDied);
        assert_eq!(CellEnd::of_word("of a later version"), CellEnd::Unknown);
        let end = json!({"msg_id": "1", "status": "of a later version"});
        let end: ExecutionEnd = serde_json::from_value(end).unwrap();
        assert_eq!(end.status, CellEnd::Unknown);
    }
}

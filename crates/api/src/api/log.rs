//! The log of a notebook and its kernel: the journal as a list for people.
//!
//! Several programs write about one execution: its sender, and each observer. The log has one entry for it.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::problem::Problem;
use crate::activity::actor::Actor;
use crate::activity::{labels, notification};
use crate::editing::view;
use crate::execution::cell_lookup::{CellLookup, is_uri};
use crate::notebook::{Document, Revision};
use crate::project::Project;
use crate::project::event::{
    CellEnd, ChatTurn, Event, EventKind, ExecutionEnd, ExecutionStart, NotebookChange, ToolCall,
};

/// Which entries of the log are returned.
#[derive(Clone, Debug, Default)]
pub struct LogRequest {
    /// The start of the time span.
    pub since: LogSince,
    /// Only the actions of this actor: a name, `human` for a person at any front end, or `agent` for any
    /// agent.
    pub by: Option<String>,
    /// The largest number of entries, counted from the newest; 0 is all.
    pub count: usize,
    /// Whether the calls of agents' tools are returned, and nothing else.
    pub audit: bool,
}

/// The start of a log's time span.
#[derive(Clone, Copy, Debug, Default)]
pub enum LogSince {
    /// From the beginning.
    #[default]
    Beginning,
    /// The caller's last notifications.
    LastNotification,
    /// This moment.
    At(Timestamp),
}

/// What happened to a notebook and on its kernel.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogAnswer {
    /// The notebook's key in its project.
    pub notebook: String,
    /// Its file.
    pub path: PathBuf,
    /// Its revision; none where it cannot be read.
    pub revision: Option<Revision>,
    /// What happened, the newest last.
    pub log: Vec<LogEntry>,
}

impl Answer for LogAnswer {}

/// One thing that happened.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogEntry {
    /// When; of an execution, when it was asked for.
    pub at: Timestamp,
    /// Who did it, where that is known.
    pub by: Option<String>,
    /// What it was.
    #[serde(flatten)]
    pub event: LogEvent,
}

/// The kinds of what happens.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase", tag = "event")]
pub enum LogEvent {
    /// Code was run.
    Ran(LoggedExecution),
    /// A command of `nb` changed cells.
    Edited(NotebookChange),
    /// Another program saved the notebook with other cells than it had.
    Saved(NotebookChange),
    /// Something was done to the kernel, or became of it.
    Kernel {
        /// `opened`, `restarted`, `stopped`, `died`, `interrupted`, `withdrew` (an interrupt that
        /// took back cells that waited), …
        #[serde(rename = "kernel")]
        event: &'static str,
        /// Which of the session's kernels it was.
        generation: Option<u64>,
    },
    /// `nb mv` moved the notebook.
    Moved {
        /// Its key before.
        from: String,
    },
    /// An agent called a tool of `nb mcp`.
    Called(ToolCall),
    /// What an agent did here before was for a message in a chat.
    Messaged(ChatTurn),
}

/// Code that was run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoggedExecution {
    /// The notebook; none if a client ran the code on the kernel directly, without `nb` or a proxy.
    pub notebook: Option<String>,
    /// The cell's id.
    pub cell: Option<String>,
    /// What its client called the cell, where that is not an id: VS Code has addresses of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The beginning of the cell's id, or of the code.
    pub label: String,
    /// The code, where it is kept.
    pub code: Option<String>,
    /// How it ended; none while that is not known.
    pub status: Option<CellEnd>,
    /// How long it took.
    pub took_ms: Option<u64>,
    /// Which of the session's kernels ran it.
    pub generation: Option<u64>,
    /// The job that it belongs to.
    pub job: Option<String>,
    /// Whether a client that is connected directly to the kernel, without `nb` or a proxy, ran it.
    pub past_nb: bool,
}

/// The filters of a log.
#[derive(Clone, Debug, Default)]
struct LogFilter {
    /// The earliest time of an entry.
    since: Option<Timestamp>,
    /// See [`LogRequest::by`].
    by: Option<String>,
    /// See [`LogRequest::count`].
    count: usize,
    /// See [`LogRequest::audit`].
    audit: bool,
}

/// How many entries before the start of the time span are searched for the starts of executions that ended
/// within it.
const BEGINNINGS: usize = 2000;

/// Returns the log of a notebook and its kernel, from the journal.
///
/// # Errors
/// No notebook can be chosen.
pub async fn log(caller: &Caller, request: LogRequest) -> Result<LogAnswer, Problem> {
    let file = caller.notebook_file().await?;
    let LogRequest {
        since,
        by,
        count,
        audit,
    } = request;
    blocking(caller, move |caller| {
        let (project, key) = (&file.project, &file.key);
        let since = match since {
            LogSince::Beginning => None,
            LogSince::LastNotification => notification::last_notified(project, key, caller.by()),
            LogSince::At(moment) => Some(moment),
        };
        let filter = LogFilter {
            since,
            by,
            count,
            audit,
        };
        // Opening the view records what was saved since the last command. A notebook that cannot be read
        // still has a log.
        let document = view::open(&file, caller.by()).map(|view| view.document);
        let document = document.ok();
        Ok(LogAnswer {
            log: entries(project, key, &filter, document.as_ref()),
            revision: document.map(|document| document.revision()),
            notebook: file.key,
            path: file.real,
        })
    })
    .await
}

/// Returns the entries, newest last, without code that front ends run for their own purposes. If there is a
/// document, cells get their ids from it.
fn entries(
    project: &Project,
    key: &str,
    filter: &LogFilter,
    document: Option<&Document>,
) -> Vec<LogEntry> {
    let owner = project.state().map(|state| state.owner_key(key));
    let owner = owner.unwrap_or_else(|_| key.to_owned());
    // A notebook that shares another's kernel sees what runs there, but not the other notebook's edits.
    let is_own = |event: &Event| event.session == key || event.change().is_none();
    let sessions = [key, &*owner];
    let mut all = match filter.audit {
        true => log_entries(project.calls_of(&sessions), filter),
        false => log_entries(project.events_of(&sessions).filter(is_own), filter),
    };
    if filter.count > 0 {
        all.truncate(filter.count);
    }
    if let Some(document) = document {
        name_cells(&mut all, key, document);
    }
    all.reverse();
    all
}

/// Sets the ids of cells that VS Code ran. `list` is newest first.
fn name_cells(list: &mut [LogEntry], notebook: &str, document: &Document) {
    let ran = |entry: &LogEntry| match &entry.event {
        LogEvent::Ran(it) if it.notebook.as_deref() == Some(notebook) => {
            Some((it.address.clone()?, it.code.clone()?))
        }
        _ => None,
    };
    let named: Vec<_> = list.iter().filter_map(ran).collect();
    if named.is_empty() {
        return;
    }
    let pairs = named.iter().map(|(name, code)| (&**name, &**code));
    let addresses = CellLookup::of(document, pairs);
    for entry in list {
        if let LogEvent::Ran(it) = &mut entry.event
            && it.notebook.as_deref() == Some(notebook)
            && let Some(place) = it
                .address
                .as_deref()
                .and_then(|name| addresses.position(name))
        {
            it.cell = Some(document.cells()[place].id().to_owned());
            it.label = labels::named(it.cell.as_deref(), it.code.as_deref());
        }
    }
}

/// The key of an execution: the kernel's generation and the request's id.
type Key = (Option<u64>, String);

/// Makes log entries from events. Both are newest first.
fn log_entries(events: impl Iterator<Item = Event>, filter: &LogFilter) -> Vec<LogEntry> {
    let mut list: Vec<Option<LogEntry>> = Vec::new();
    // How many entries of `list` are not `None`.
    let mut shown = 0;
    let mut ends: HashMap<Key, ExecutionEnd> = HashMap::new();
    // For each execution, its index in `list` and whether its sender wrote the entry.
    let mut index_of: HashMap<Key, (usize, bool)> = HashMap::new();
    let (mut open, mut older_events) = (None, 0);
    for event in events {
        if matches!(event.kind, EventKind::Called(_)) != filter.audit {
            continue;
        }
        let key = (
            event.generation,
            event.msg_id().unwrap_or_default().to_owned(),
        );
        if filter.since.is_some_and(|since| event.at < since) {
            // These executions ended within the time span and may have begun before it.
            let open = open.get_or_insert_with(|| {
                let keys = ends.keys().filter(|key| !index_of.contains_key(*key));
                keys.cloned().collect::<HashSet<_>>()
            });
            older_events += 1;
            if older_events > BEGINNINGS || open.is_empty() {
                break;
            }
            if event.end().is_some() || !open.contains(&key) {
                continue;
            }
            if event.request().is_some() {
                open.remove(&key);
            }
        }
        // One entry more than requested: the newest execution may have been observed first.
        let enough = filter.count > 0 && filter.by.is_none() && shown > filter.count;
        if let Some(start) = event.start() {
            let is_sender = event.request().is_some();
            match index_of.get_mut(&key) {
                // The sender's event knows more than an observer's.
                Some((at, from_sender)) if is_sender && !*from_sender => {
                    *from_sender = true;
                    let seen = list.get_mut(*at).and_then(Option::take);
                    shown -= usize::from(seen.is_some());
                    if start.store_history {
                        // Its place in the log is that of the request.
                        list.push(Some(ran(&event, start, ends.get(&key))));
                        *at = list.len() - 1;
                        shown += 1;
                    }
                }
                Some(_) => {}
                None if !start.store_history => {}
                None if enough => break,
                None => {
                    list.push(Some(ran(&event, start, ends.get(&key))));
                    index_of.insert(key, (list.len() - 1, is_sender));
                    shown += 1;
                }
            }
            continue;
        }
        match event.kind {
            EventKind::Done(end) => {
                if ends
                    .get(&key)
                    .is_none_or(|known| !known.status.is_certain())
                {
                    ends.insert(key, end);
                }
            }
            _ if enough => break,
            _ => {
                let entry = other_entry(event);
                shown += usize::from(entry.is_some());
                list.extend(entry.map(Some));
            }
        }
    }
    let list = list.into_iter().flatten();
    list.filter(|it| filter.by.as_deref().is_none_or(|by| is_by(it, by)))
        .collect()
}

fn is_by(entry: &LogEntry, word: &str) -> bool {
    let is_known = !matches!(&entry.event, LogEvent::Ran(it) if it.past_nb);
    let by = entry.by.as_deref();
    by.is_some_and(|by| by == word || (is_known && Actor::from(by).is_meant(word)))
}

fn ran(event: &Event, start: &ExecutionStart, end: Option<&ExecutionEnd>) -> LogEntry {
    let past_nb = matches!(event.kind, EventKind::BegunOutside(_));
    let (address, cell) = match start.cell.clone() {
        Some(name) if is_uri(&name) => (Some(name), None),
        name => (None, name),
    };
    let actor = match past_nb {
        true => Actor::of_username(event.by.as_deref()),
        false => Actor::parse(event.by.as_deref()),
    };
    LogEntry {
        at: event.at,
        by: Some(actor.name()),
        event: LogEvent::Ran(LoggedExecution {
            notebook: (!past_nb).then(|| event.notebook().to_owned()),
            cell,
            address,
            label: labels::label(start),
            code: start.code.clone(),
            status: end.map(|end| end.status.shown()),
            took_ms: end.and_then(|end| end.took_ms),
            generation: event.generation,
            job: start.job.clone(),
            past_nb,
        }),
    }
}

/// Returns the entry for an event that is not part of an execution.
fn other_entry(event: Event) -> Option<LogEntry> {
    let generation = event.generation;
    let kernel = |event| LogEvent::Kernel { event, generation };
    let log_event = match event.kind {
        EventKind::Requested(_) | EventKind::BegunOutside(_) | EventKind::Done(_) => return None,
        // What becomes of it has an entry of its own.
        EventKind::Queued(_) => return None,
        EventKind::Prompted { .. } | EventKind::Answered { .. } => return None,
        EventKind::Edited(change) => LogEvent::Edited(change),
        EventKind::Saved(change) => LogEvent::Saved(change),
        EventKind::Peeked { .. } => kernel("peeked"),
        EventKind::Opened => kernel("opened"),
        EventKind::Restarted => kernel("restarted"),
        EventKind::Stopped => kernel("stopped"),
        EventKind::Died { .. } => kernel("died"),
        EventKind::Interrupted => kernel("interrupted"),
        EventKind::Withdrew { .. } => kernel("withdrew"),
        EventKind::Moved { from } => LogEvent::Moved { from },
        EventKind::Called(call) => LogEvent::Called(call),
        EventKind::Messaged(turn) => LogEvent::Messaged(turn),
    };
    Some(LogEntry {
        at: event.at,
        by: event.by,
        event: log_event,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::project::event::fixtures;

    fn fields(event: &str, id: &str, by: &str, minute: u8) -> Value {
        json!({
            "at": format!("2026-01-02T10:{minute:02}:00Z"), "event": event, "generation": 1,
            "msg_id": id, "by": by,
        })
    }

    fn entry(event: &str, id: &str, by: &str, minute: u8) -> Event {
        fixtures::event(fields(event, id, by, minute))
    }

    fn entry_with(mut fields: Value, name: &str, value: Value) -> Event {
        fields[name] = value;
        fixtures::event(fields)
    }

    fn done(id: &str, status: &str, minute: u8) -> Event {
        entry_with(fields("done", id, "x", minute), "status", status.into())
    }

    fn described(entries: &[Event], filter: &LogFilter) -> Vec<String> {
        let list = log_entries(entries.iter().rev().cloned(), filter);
        let described = list.into_iter().rev().map(|entry| {
            let by = entry.by.unwrap_or_default();
            match entry.event {
                LogEvent::Ran(it) => format!("{by} ran {} {:?}", it.label, it.status),
                LogEvent::Kernel { event, .. } => format!("{by} {event}"),
                other => format!("{by} {other:?}"),
            }
        });
        described.collect()
    }

    #[test]
    fn an_execution_is_one_however_many_write_of_it() {
        let own = fields("requested", "1", "human (VS Code)", 1);
        let own = entry_with(own, "cell", "3f2c11aa".into());
        let startup = fields("requested", "2", "human (VS Code)", 2);
        let startup = entry_with(startup, "store_history", false.into());
        let code = fields("requested", "3", "claude", 3);
        let code = entry_with(code, "code", "\nx = 1\ny".into());
        let entries = [
            entry("opened", "", "human", 0),
            own,
            entry("begun_outside", "1", "username", 1),
            done("1", "ok", 2),
            done("1", "observed_ok", 2),
            startup,
            done("2", "ok", 2),
            entry("begun_outside", "3", "username", 3),
            code,
            done("3", "observed_ok", 4),
            done("3", "error", 4),
            entry(
                "begun_outside",
                "4",
                "9f2c6f7e-0000-4000-8000-000000000000",
                5,
            ),
        ];
        let all = described(&entries, &LogFilter::default());
        let want = [
            "human opened",
            "human (VS Code) ran 3f2c Some(Ok)",
            "claude ran \"x = 1\" Some(Error)",
            "another client ran a cell None",
        ];
        assert_eq!(all, want);
        let human = LogFilter {
            by: Some("human".to_owned()),
            ..LogFilter::default()
        };
        assert_eq!(described(&entries, &human), want[..2]);
        let agent = LogFilter {
            by: Some("agent".to_owned()),
            ..LogFilter::default()
        };
        assert_eq!(described(&entries, &agent), want[2..3]);
    }

    #[test]
    fn the_log_has_the_order_of_the_journal() {
        let mut before = entry("interrupted", "", "ada", 9);
        before.at = "2026-01-02T12:00:00Z".parse().unwrap();
        let entries = [
            // The clock was set back after this.
            before,
            entry("requested", "1", "claude", 1),
            entry("restarted", "", "ada", 2),
            // An observer reads late that the cell began.
            entry("begun_outside", "1", "username", 3),
        ];
        let want = ["ada interrupted", "claude ran a cell None", "ada restarted"];
        assert_eq!(described(&entries, &LogFilter::default()), want);
    }

    #[test]
    fn what_came_past_us_says_so_and_how_it_ended() {
        let failed = done("1", "observed_error", 3);
        let entries = [
            entry("begun_outside", "1", "ada", 1),
            entry("begun_outside", "2", "ada", 2),
            failed,
            done("2", "observed_ok", 3),
        ];
        let list = log_entries(entries.iter().rev().cloned(), &LogFilter::default());
        let ran = list.into_iter().rev().map(|it| match it.event {
            LogEvent::Ran(ran) => (ran.past_nb, ran.notebook, ran.status.unwrap()),
            other => panic!("{other:?}"),
        });
        let want = [CellEnd::Error, CellEnd::Ok].map(|status| (true, None, status));
        assert_eq!(ran.collect::<Vec<_>>(), want);
        for (by, count) in [("ada", 2), ("agent", 0), ("human", 0)] {
            let filter = LogFilter {
                by: Some(by.to_owned()),
                ..LogFilter::default()
            };
            assert_eq!(described(&entries, &filter).len(), count, "{by}");
        }
    }

    #[test]
    fn what_has_ended_since_is_told_though_it_began_before() {
        let entries = [
            entry("requested", "1", "ada", 1),
            done("1", "ok", 1),
            entry("requested", "2", "ada", 2),
            entry("opened", "", "ada", 2),
            entry("requested", "3", "ada", 3),
            done("2", "ok", 5),
            done("3", "error", 6),
            entry("requested", "4", "ada", 6),
        ];
        let filter = LogFilter {
            since: Some("2026-01-02T10:04:00Z".parse().unwrap()),
            ..LogFilter::default()
        };
        let ran = |status| format!("ada ran a cell {status:?}");
        let want = [ran(Some(CellEnd::Ok)), ran(Some(CellEnd::Error)), ran(None)];
        assert_eq!(described(&entries, &filter), want);
    }
}

//! The present state of a kernel according to the journal: what it runs, who has run code on it, and
//! when something last happened.

use std::collections::{HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Event, EventKind, ExecutionStart, Position, requests};
use crate::project::beneath;
use crate::project::folder::{PRESENT, Project};
use crate::project::state_folder::short_name;

/// An execution whose end is not in the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningExecution {
    /// The key of the notebook whose cell it is.
    pub notebook: String,
    /// The request's id.
    pub msg_id: String,
    /// The actor who requested it, if known.
    pub by: Option<String>,
    /// The notebook cell that its client named.
    pub cell: Option<String>,
    /// Its source, if code is stored.
    pub code: Option<String>,
    /// The job that it belongs to.
    pub job: Option<String>,
    /// False for code that a front end runs for itself.
    pub store_history: bool,
    /// When it was requested, or when an observer saw it begin.
    pub since: Timestamp,
    /// The prompt of its input request at a front end. A job's prompt is in the job's record.
    pub prompt: Option<String>,
}

impl RunningExecution {
    fn of(start: ExecutionStart, notebook: String, by: Option<String>, since: Timestamp) -> Self {
        Self {
            notebook,
            msg_id: start.msg_id,
            by,
            cell: start.cell,
            code: start.code,
            job: start.job,
            store_history: start.store_history,
            since,
            prompt: None,
        }
    }
}

/// The present state of a session's kernel according to the journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Present {
    /// The execution whose end is not in the journal. It runs only if the kernel is busy: the process that
    /// should have written the end may have been killed.
    pub running: Option<RunningExecution>,
    /// The requests queued behind it, oldest first, without code that front ends run for
    /// themselves.
    pub queued: Vec<RunningExecution>,
    /// The cells that wait at the proxies of front ends, oldest first. A proxy that was killed leaves its own here.
    pub waiting: Vec<RunningExecution>,
    /// When something last happened.
    pub last: Option<Timestamp>,
}

impl Project {
    /// Returns the present state of this generation of a session's kernel.
    ///
    /// The journal may have been read long before: the reader of a long part leaves a checkpoint, from which
    /// on the next reader reads.
    pub fn present(&self, session: &str, generation: u64) -> Present {
        let name = format!("{}.json", short_name(&self.current_key(session)));
        let file = self.dir().join(PRESENT).join(name);
        let events = self.events(session);
        let end = events.end();
        let known: Option<Checkpoint> = beneath::read_json(&file, beneath::SMALL);
        let is_valid = |it: &Checkpoint| it.generation == generation && it.position <= end;
        let known = known.filter(is_valid).unwrap_or_default();
        let mut events = events.after(known.position);
        let mut kept = Vec::new();
        let all = events.by_ref().chain(known.events).inspect(|event| {
            if kept.len() < MOST_KEPT && is_kept(event) {
                kept.push(event.clone());
            }
        });
        let present = present(all, generation);
        if events.bytes_read() > LONG_PART {
            let checkpoint = Checkpoint {
                generation,
                position: end,
                events: kept,
            };
            let written = self.make_folder(PRESENT);
            let written = written.and_then(|_| beneath::write_json(&file, &checkpoint));
            let _ = written.inspect_err(
                |error| tracing::warn!(%error, "a checkpoint of the journal cannot be stored"),
            );
        }
        present
    }

    /// Returns the names of those who have run code in this generation, without front ends' own
    /// code.
    pub fn authors(&self, session: &str, generation: u64) -> Vec<String> {
        authors(self.events(session), generation)
    }
}

impl Event {
    /// Returns whether no event of this generation can be older than this one.
    pub fn starts_generation(&self, generation: u64) -> bool {
        let event_generation = self.generation.unwrap_or(generation);
        match self.kind {
            EventKind::Opened | EventKind::Restarted => event_generation <= generation,
            // The ends of an earlier kernel's cells may be written later than this kernel's start.
            EventKind::Requested(_) => event_generation < generation,
            _ => false,
        }
    }
}

/// `present/<name>.json`: what [`present`] needs of the journal before a position, for one session.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Checkpoint {
    /// The generation of the kernel.
    generation: u64,
    /// The position of the first event that is not in `events`.
    position: Position,
    /// The events, newest first.
    events: Vec<Event>,
}

/// How many bytes of the journal are read before a checkpoint is made.
const LONG_PART: u64 = 8 << 10;

/// How many events a checkpoint has at most. Older requests have ended.
const MOST_KEPT: usize = 2000;

/// Returns whether an event belongs into a checkpoint.
fn is_kept(event: &Event) -> bool {
    !matches!(
        event.kind,
        EventKind::Edited(_)
            | EventKind::Saved(_)
            | EventKind::Moved { .. }
            | EventKind::Called(_)
            | EventKind::Messaged(_)
            | EventKind::Peeked { .. }
    )
}

/// How much earlier the `requested` event of a request can be than that of a request which ran before it. The
/// times differ when two recorders see an idle kernel and send at the same moment.
const RACE: SignedDuration = SignedDuration::from_secs(1);

/// If an event is so much later than one after it in the journal, the clock was set back between them. A writer
/// that waits for the journal's lock is late by less.
const SET_BACK: SignedDuration = SignedDuration::from_mins(1);

/// Returns the present state from events that come newest first.
///
/// A kernel runs one request after the other, and the journal has them nearly in that order: a sender
/// writes at once, but an observer writes when it reads the kernel's messages, perhaps after the end.
fn present(events: impl Iterator<Item = Event>, generation: u64) -> Present {
    let mut present = Present::default();
    let (mut ended, mut aborted, mut sent) = (HashSet::new(), HashSet::new(), HashSet::new());
    // The last question of each cell; `None` if it is answered.
    let mut prompts: HashMap<String, Option<String>> = HashMap::new();
    // Whether an observer saw the running request begin; without that it may still be in the queue.
    let mut has_begun = false;
    let mut any_ended = false;
    // Requests from before this time have ended.
    let mut from: Option<Timestamp> = None;
    for event in events {
        if present.last.is_none() && is_activity(&event) {
            present.last = Some(event.at);
        }
        let is_over = |from| event.at < from || event.at.duration_since(from) > SET_BACK;
        if event.starts_generation(generation) || from.is_some_and(is_over) {
            break;
        }
        if event.generation.is_some_and(|it| it != generation) {
            continue;
        }
        if let Some(end) = event.end() {
            // The end of a request that never ran says nothing about the requests before it.
            let list = match end.status.has_begun() {
                true => &mut ended,
                false => &mut aborted,
            };
            list.insert(end.msg_id.clone());
            // An observer wrote only after the end that the request had begun.
            if present
                .running
                .take_if(|it| it.msg_id == end.msg_id)
                .is_some()
            {
                has_begun = false;
            }
        }
        let notebook = event.notebook().to_owned();
        let (start, is_from_sender) = match event.kind {
            EventKind::Requested(start) => (start, true),
            EventKind::BegunOutside(start) => (start, false),
            EventKind::Queued(start) => {
                let id = &start.msg_id;
                if !sent.contains(id) && !ended.contains(id) && !aborted.contains(id) {
                    let request = RunningExecution::of(start, notebook, event.by, event.at);
                    present.waiting.push(request);
                }
                continue;
            }
            EventKind::Prompted { msg_id, prompt } => {
                prompts.entry(msg_id).or_insert(Some(prompt));
                continue;
            }
            EventKind::Answered { msg_id } => {
                prompts.entry(msg_id).or_insert(None);
                continue;
            }
            _ => continue,
        };
        if is_from_sender {
            sent.insert(start.msg_id.clone());
        }
        let has_ended = ended.contains(&start.msg_id);
        if start.alone || (is_from_sender && has_ended) {
            from = from.max(event.at.checked_sub(RACE).ok());
        }
        any_ended |= has_ended;
        if has_ended || aborted.contains(&start.msg_id) {
            continue;
        }
        let running = present.running.as_ref();
        let is_same = running.is_some_and(|it| it.msg_id == start.msg_id);
        let is_running = match is_from_sender {
            // If none was seen to begin, the oldest request runs.
            true => is_same || !has_begun,
            // A request that began before another which has ended has ended too.
            false if has_begun || any_ended => false,
            // If the sender's event is known, it has more details than an observer's.
            false => {
                has_begun = true;
                !is_same
            }
        };
        let is_cell = start.store_history;
        let cell = RunningExecution {
            prompt: prompts.get(&start.msg_id).cloned().flatten(),
            ..RunningExecution::of(start, notebook, event.by, event.at)
        };
        if is_from_sender && is_cell {
            present.queued.push(cell.clone());
        }
        if is_running {
            present.running = Some(cell);
        }
    }
    if let Some(running) = &present.running {
        present.queued.retain(|cell| cell.msg_id != running.msg_id);
    }
    present.queued.reverse();
    present.waiting.reverse();
    present
}

/// Returns whether an event counts as use of the kernel.
fn is_activity(event: &Event) -> bool {
    match event.kind {
        EventKind::Queued(_)
        | EventKind::Requested(_)
        | EventKind::BegunOutside(_)
        | EventKind::Done(_) => true,
        EventKind::Prompted { .. } | EventKind::Answered { .. } => true,
        EventKind::Opened | EventKind::Restarted => true,
        EventKind::Interrupted | EventKind::Withdrew { .. } => true,
        EventKind::Stopped
        | EventKind::Died { .. }
        | EventKind::Peeked { .. }
        | EventKind::Called(_)
        | EventKind::Messaged(_) => false,
        EventKind::Edited(_) | EventKind::Saved(_) | EventKind::Moved { .. } => false,
    }
}

/// Returns the authors, from events that come newest first.
fn authors(events: impl Iterator<Item = Event>, generation: u64) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let events = events.take_while(|event| !event.starts_generation(generation));
    let events = events.filter(|event| event.generation.is_none_or(|it| it == generation));
    for by in requests(events).filter_map(|event| event.by) {
        if !found.contains(&by) {
            found.push(by);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::project::event::fixtures;

    fn event(event: &str, id: &str, by: &str) -> Event {
        fixtures::event(json!({"event": event, "generation": 2, "msg_id": id, "by": by}))
    }

    fn before(event: &str, id: &str, by: &str) -> Event {
        fixtures::event(json!({"event": event, "generation": 1, "msg_id": id, "by": by}))
    }

    fn done(id: &str, status: &str) -> Event {
        let end = json!({"event": "done", "generation": 2, "msg_id": id, "status": status});
        fixtures::event(end)
    }

    fn running(events: &[Event]) -> Option<(String, Option<String>)> {
        let present = present(events.iter().rev().cloned(), 2);
        present.running.map(|cell| (cell.msg_id, cell.by))
    }

    fn queued(events: &[Event]) -> Vec<String> {
        let present = present(events.iter().rev().cloned(), 2);
        let queued = present.queued.into_iter();
        queued.map(|cell| cell.msg_id).collect()
    }

    fn is(id: &str, by: &str) -> Option<(String, Option<String>)> {
        Some((id.to_owned(), Some(by.to_owned())))
    }

    #[test]
    fn a_request_without_an_end_runs() {
        assert_eq!(running(&[]), None);
        let mut events = vec![
            event("restarted", "", "ada"),
            event("requested", "1", "ada"),
        ];
        assert_eq!(running(&events), is("1", "ada"));
        // This one is behind it in the queue.
        events.push(event("requested", "2", "bob"));
        assert_eq!(running(&events), is("1", "ada"));
        events.push(done("1", "error"));
        assert_eq!(running(&events), is("2", "bob"));
        // A client's username is not the name of the actor.
        events.push(event("begun_outside", "2", "username"));
        assert_eq!(running(&events), is("2", "bob"));
        events.push(done("2", "ok"));
        assert_eq!(running(&events), None);
    }

    #[test]
    fn a_request_that_an_observer_reports_after_its_end_does_not_run() {
        let mut events = vec![
            event("requested", "1", "ada"),
            done("1", "kernel_died"),
            event("begun_outside", "1", "username"),
        ];
        assert_eq!(running(&events), None);
        events.insert(1, event("requested", "2", "bob"));
        assert_eq!(running(&events), is("2", "bob"));
    }

    #[test]
    fn a_question_stands_until_it_is_answered() {
        let prompt = |events: &[Event]| {
            let present = present(events.iter().rev().cloned(), 2);
            present.running.and_then(|cell| cell.prompt)
        };
        let prompted = |text: &str| {
            let event = json!({
                "event": "prompted", "generation": 2, "msg_id": "1", "by": "ada", "prompt": text,
            });
            fixtures::event(event)
        };
        let mut events = vec![
            event("requested", "1", "ada"),
            event("begun_outside", "1", "username"),
        ];
        assert_eq!(prompt(&events), None);
        events.push(prompted("Name? "));
        assert_eq!(prompt(&events).as_deref(), Some("Name? "));
        events.push(event("requested", "2", "bob"));
        assert_eq!(prompt(&events).as_deref(), Some("Name? "));
        events.push(event("answered", "1", "ada"));
        assert_eq!(prompt(&events), None);
        events.push(prompted("Sure? "));
        assert_eq!(prompt(&events).as_deref(), Some("Sure? "));
        events.push(done("1", "ok"));
        assert_eq!(prompt(&events), None);
    }

    #[test]
    fn a_request_behind_the_running_one_is_queued() {
        let startup = json!({
            "event": "requested", "generation": 2, "msg_id": "3", "by": "human (VS Code)",
            "store_history": false,
        });
        let mut events = vec![
            event("requested", "1", "ada"),
            event("requested", "2", "bob"),
            fixtures::event(startup),
            event("requested", "4", "eve"),
            event("begun_outside", "1", "username"),
        ];
        assert_eq!(running(&events), is("1", "ada"));
        assert_eq!(queued(&events), ["2", "4"]);
        events.push(done("4", "withdrawn"));
        events.push(event("requested", "5", "eve"));
        events.push(done("5", "aborted"));
        assert_eq!(queued(&events), ["2"]);
    }

    #[test]
    fn a_cell_waits_until_it_is_sent_or_its_wait_ends() {
        let waiting = |events: &[Event]| {
            let present = present(events.iter().rev().cloned(), 2);
            let waiting = present.waiting.into_iter();
            waiting.map(|it| it.msg_id).collect::<Vec<_>>()
        };
        let by = "human (VS Code)";
        let mut events = vec![
            before("queued", "0", by),
            alone("1", "claude"),
            event("queued", "2", by),
            event("queued", "3", by),
            event("queued", "4", by),
        ];
        assert_eq!(waiting(&events), ["2", "3", "4"]);
        assert_eq!(running(&events), is("1", "claude"));
        assert!(queued(&events).is_empty());
        let withdrew =
            json!({"event": "withdrew", "generation": 2, "by": by, "cells": 1, "msg_ids": ["3"]});
        events.extend([done("3", "withdrawn"), fixtures::event(withdrew)]);
        assert_eq!(waiting(&events), ["2", "4"]);
        assert_eq!(running(&events), is("1", "claude"));
        events.extend([done("1", "ok"), event("requested", "2", by)]);
        assert_eq!(waiting(&events), ["4"]);
        assert_eq!(running(&events), is("2", by));
        events.extend([done("4", "aborted"), done("2", "ok")]);
        assert!(waiting(&events).is_empty());
        assert_eq!(running(&events), None);
    }

    #[test]
    fn a_long_journal_is_read_once() {
        let (_temp, project) = fixtures::project();
        let mut journal = project.journal().unwrap();
        let edited = fixtures::event(json!({
            "event": "edited", "before": "0123456789", "after": "0123456789", "changes": [],
            "op": "x".repeat(1000),
        }));
        let edits = vec![edited; 100];
        let running = || project.present("a.ipynb", 2).running.map(|it| it.msg_id);
        let file = project.dir().join(PRESENT);
        let file = file.join(format!("{}.json", short_name("a.ipynb")));
        journal.append(&event("opened", "", "ada")).unwrap();
        journal.append(&event("requested", "1", "ada")).unwrap();
        assert_eq!(running().as_deref(), Some("1"));
        assert!(!file.exists());
        journal.append_all(&edits).unwrap();
        assert_eq!(running().as_deref(), Some("1"));
        let checkpoint: Checkpoint = beneath::read_json(&file, beneath::SMALL).unwrap();
        assert_eq!(checkpoint.position, project.events("a.ipynb").end());
        assert_eq!(checkpoint.events.len(), 2);
        // What comes after it counts.
        journal.append(&done("1", "ok")).unwrap();
        journal.append(&event("requested", "2", "bob")).unwrap();
        assert_eq!(running().as_deref(), Some("2"));
        journal.append_all(&edits).unwrap();
        assert_eq!(running().as_deref(), Some("2"));
        journal.append(&done("2", "ok")).unwrap();
        assert_eq!(running(), None);
        // A checkpoint of another generation, or of a journal that was removed, does not.
        assert_eq!(project.present("a.ipynb", 3).running, None);
        std::fs::remove_file(project.journal_file()).unwrap();
        assert_eq!(project.present("a.ipynb", 2), Present::default());
    }

    #[test]
    fn an_unrecorded_end_is_known_from_later_events() {
        // A proxy saw it begin; the client that sent it writes no journal.
        let mut events = vec![event("begun_outside", "1", "console")];
        assert_eq!(running(&events), is("1", "console"));
        events.push(event("requested", "2", "bob"));
        events.push(done("2", "ok"));
        assert_eq!(running(&events), None);
        // Its sender was killed; the next sender saw an idle kernel before it sent, some time
        // later.
        let alone = json!({
            "event": "requested", "generation": 2, "msg_id": "2", "by": "bob", "alone": true,
        });
        let mut killed = event("requested", "1", "ada");
        killed.at -= RACE * 2;
        let events = vec![killed, fixtures::event(alone)];
        assert_eq!(running(&events), is("2", "bob"));
        // The second was removed from the queue and did not run, so the first may still run.
        let events = [
            event("requested", "1", "ada"),
            event("requested", "2", "bob"),
            done("2", "aborted"),
        ];
        assert_eq!(running(&events), is("1", "ada"));
    }

    /// Returns a request that was sent while the kernel was idle.
    fn alone(id: &str, by: &str) -> Event {
        fixtures::event(json!({
            "event": "requested", "generation": 2, "msg_id": id, "by": by, "alone": true,
        }))
    }

    #[test]
    fn an_end_that_an_observer_writes_late_hides_no_cell_that_was_asked_for_meanwhile() {
        // The queued job's recorder joined in the middle of the cell, and read the cell's end after it
        // had sent.
        let events = [
            event("requested", "1", "human (VS Code)"),
            alone("2", "claude"),
            event("begun_outside", "1", "username"),
            done("1", "observed_ok"),
        ];
        assert_eq!(running(&events), is("2", "claude"));
        let more = [&events[..], &[done("1", "ok")]].concat();
        assert_eq!(running(&more), is("2", "claude"));
        let ended = [&more[..], &[done("2", "ok")]].concat();
        assert_eq!(running(&ended), None);
        // A person's cell in the kernel's queue.
        let mut queued = events;
        queued[1] = event("requested", "2", "human (VS Code)");
        assert_eq!(running(&queued), is("2", "human (VS Code)"));
    }

    #[test]
    fn of_two_that_saw_the_kernel_idle_at_once_each_runs_in_its_turn() {
        for order in [["1", "2"], ["2", "1"]] {
            let asked = order.map(|id| alone(id, if id == "1" { "ada" } else { "bob" }));
            // The recorder of the second one sees the first one begin.
            let first = [&asked[..], &[event("begun_outside", "1", "ada")]].concat();
            assert_eq!(running(&first), is("1", "ada"), "{order:?}");
            let second = [&first[..], &[done("1", "ok")]].concat();
            assert_eq!(running(&second), is("2", "bob"), "{order:?}");
            let none = [&second[..], &[done("2", "ok")]].concat();
            assert_eq!(running(&none), None, "{order:?}");
        }
    }

    #[test]
    fn a_request_from_before_the_clock_was_set_back_has_ended() {
        let mut killed = event("requested", "1", "ada");
        killed.at += RACE * 3600;
        assert_eq!(running(&[killed.clone()]), is("1", "ada"));
        assert_eq!(running(&[killed, alone("2", "bob")]), is("2", "bob"));
    }

    #[test]
    fn a_withdrawn_request_does_not_end_the_running_one() {
        let events = [
            event("requested", "1", "human (VS Code)"),
            event("requested", "2", "bob"),
            done("2", "withdrawn"),
        ];
        assert_eq!(running(&events), is("1", "human (VS Code)"));
        assert_eq!(
            authors(events.iter().rev().cloned(), 2),
            ["human (VS Code)"]
        );
    }

    #[test]
    fn cells_of_an_earlier_kernel_do_not_run() {
        let early = before("requested", "1", "ada");
        let mut late = done("1", "error");
        late.generation = Some(1);
        let events = [early.clone(), event("restarted", "", "bob")];
        assert_eq!(running(&events), None);
        let events = [
            early,
            event("restarted", "", "bob"),
            event("requested", "2", "bob"),
            late,
        ];
        assert_eq!(running(&events), is("2", "bob"));
    }

    #[test]
    fn authors_are_those_whose_code_ran_for_themselves() {
        let startup = json!({
            "event": "requested", "generation": 2, "msg_id": "1", "by": "human (VS Code)",
            "store_history": false,
        });
        let events = [
            before("requested", "0", "eve"),
            event("opened", "", "eve"),
            fixtures::event(startup),
            event("requested", "2", "ada"),
            done("2", "ok"),
            event("requested", "3", "bob"),
            done("3", "aborted"),
            event("requested", "4", "ada"),
            event("begun_outside", "4", "username"),
        ];
        assert_eq!(authors(events.iter().rev().cloned(), 2), ["ada"]);
    }
}

//! What the journal tells of a kernel as it is now: what it runs, who has run code on it, since when
//! nothing has happened.

use std::collections::HashSet;

use jiff::Timestamp;

use super::{Event, EventKind, Outcome};
use crate::project::folder::Project;

/// An execution whose end nobody has told.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningCell {
    /// The request's id.
    pub msg_id: String,
    /// Who asked for it, where that is known.
    pub by: Option<String>,
    /// The notebook cell that its client named.
    pub cell: Option<String>,
    /// Its source, where that is kept.
    pub code: Option<String>,
    /// When it was asked for, or seen to begin.
    pub since: Timestamp,
}

/// What the journal tells of a session's kernel as it is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Present {
    /// The execution whose end nobody has told. It runs only where the kernel is busy: whoever would have
    /// told its end may have been killed.
    pub running: Option<RunningCell>,
    /// When something happened last.
    pub last: Option<Timestamp>,
}

impl Project {
    /// Returns what the journal tells of this generation of a session's kernel.
    pub fn present(&self, session: &str, generation: u64) -> Present {
        present(self.events(session), generation)
    }

    /// Returns who has run code in this generation, front ends' own code aside; each name once.
    pub fn authors(&self, session: &str, generation: u64) -> Vec<String> {
        authors(self.events(session), generation)
    }
}

/// Returns whether a session had no event of this generation before this one.
fn begins(event: &Event, generation: u64) -> bool {
    let of = event.generation.unwrap_or(generation);
    match event.kind {
        EventKind::Opened | EventKind::Restarted => of <= generation,
        // Ends of an earlier kernel's cells may be told late.
        EventKind::Asked(_) => of < generation,
        _ => false,
    }
}

/// `events` come newest first.
fn present(events: impl Iterator<Item = Event>, generation: u64) -> Present {
    let mut present = Present::default();
    let mut ended = HashSet::new();
    let mut aborted = HashSet::new();
    for event in events {
        if present.last.is_none() && is_activity(&event) {
            present.last = Some(event.at);
        }
        if begins(&event, generation) {
            break;
        }
        if event.generation.is_some_and(|of| of != generation) {
            continue;
        }
        if let Some(end) = event.end() {
            // A request that was thrown out of the queue says nothing about those before it.
            let list = match end.status {
                Outcome::Aborted => &mut aborted,
                _ => &mut ended,
            };
            list.insert(end.msg_id.clone());
        }
        let Some(start) = event.start() else { continue };
        if ended.contains(&start.msg_id) {
            // A kernel runs one after the other: what was asked before has ended.
            break;
        }
        let alone = start.alone;
        if !aborted.contains(&start.msg_id) {
            // The oldest is the one that runs; those after it are in the queue.
            take(&mut present.running, event);
        }
        if alone {
            break;
        }
    }
    present
}

/// Takes this execution for the one that runs. Its sender knows more of it than an observer.
fn take(running: &mut Option<RunningCell>, event: Event) {
    let (start, is_asked) = match event.kind {
        EventKind::Asked(start) => (start, true),
        EventKind::Seen(start) => (start, false),
        _ => return,
    };
    let is_known = matches!(running, Some(known) if known.msg_id == start.msg_id);
    if is_asked || !is_known {
        *running = Some(RunningCell {
            msg_id: start.msg_id,
            by: event.by,
            cell: start.cell,
            code: start.code,
            since: event.at,
        });
    }
}

/// Returns whether an event is a sign of somebody's work on the kernel.
fn is_activity(event: &Event) -> bool {
    match event.kind {
        EventKind::Asked(_) | EventKind::Seen(_) | EventKind::Done(_) => true,
        EventKind::Opened | EventKind::Restarted => true,
        EventKind::Interrupted | EventKind::Withdrew { .. } => true,
        EventKind::Stopped | EventKind::Died { .. } | EventKind::Peeked { .. } => false,
        EventKind::Edited(_) | EventKind::Saved(_) => false,
    }
}

/// `events` come newest first.
fn authors(events: impl Iterator<Item = Event>, generation: u64) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut aborted = HashSet::new();
    for event in events {
        if begins(&event, generation) {
            break;
        }
        if event.generation.is_some_and(|of| of != generation) {
            continue;
        }
        match (event.kind, event.by) {
            (EventKind::Done(end), _) if end.status == Outcome::Aborted => {
                aborted.insert(end.msg_id);
            }
            (EventKind::Asked(start), Some(by))
                if start.store_history
                    && !aborted.contains(&start.msg_id)
                    && !found.contains(&by) =>
            {
                found.push(by);
            }
            _ => {}
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

    fn is(id: &str, by: &str) -> Option<(String, Option<String>)> {
        Some((id.to_owned(), Some(by.to_owned())))
    }

    #[test]
    fn what_was_asked_and_not_ended_runs() {
        assert_eq!(running(&[]), None);
        let mut told = vec![event("restarted", "", "ada"), event("asked", "1", "ada")];
        assert_eq!(running(&told), is("1", "ada"));
        // Behind it in the queue.
        told.push(event("asked", "2", "bob"));
        assert_eq!(running(&told), is("1", "ada"));
        told.push(done("1", "error"));
        assert_eq!(running(&told), is("2", "bob"));
        // Its client's name for itself is not the name of who asked.
        told.push(event("seen", "2", "username"));
        assert_eq!(running(&told), is("2", "bob"));
        told.push(done("2", "ok"));
        assert_eq!(running(&told), None);
    }

    #[test]
    fn an_end_that_nobody_told_is_known_from_what_came_after() {
        // Seen by a proxy; whoever asked writes no journal.
        let mut told = vec![event("seen", "1", "console")];
        assert_eq!(running(&told), is("1", "console"));
        told.push(event("asked", "2", "bob"));
        told.push(done("2", "ok"));
        assert_eq!(running(&told), None);
        // Its asker was killed; the next one saw an idle kernel before it asked.
        let alone = json!({
            "event": "asked", "generation": 2, "msg_id": "2", "by": "bob", "alone": true,
        });
        let told = vec![event("asked", "1", "ada"), fixtures::event(alone)];
        assert_eq!(running(&told), is("2", "bob"));
        // Thrown out of the queue: it did not run, so that the first may still run.
        let told = [
            event("asked", "1", "ada"),
            event("asked", "2", "bob"),
            done("2", "aborted"),
        ];
        assert_eq!(running(&told), is("1", "ada"));
    }

    #[test]
    fn cells_of_an_earlier_kernel_do_not_run() {
        let early = before("asked", "1", "ada");
        let mut late = done("1", "error");
        late.generation = Some(1);
        let told = [early.clone(), event("restarted", "", "bob")];
        assert_eq!(running(&told), None);
        let told = [
            early,
            event("restarted", "", "bob"),
            event("asked", "2", "bob"),
            late,
        ];
        assert_eq!(running(&told), is("2", "bob"));
    }

    #[test]
    fn authors_are_those_whose_code_ran_for_themselves() {
        let startup = json!({
            "event": "asked", "generation": 2, "msg_id": "1", "by": "human (VS Code)",
            "store_history": false,
        });
        let told = [
            before("asked", "0", "eve"),
            event("opened", "", "eve"),
            fixtures::event(startup),
            event("asked", "2", "ada"),
            done("2", "ok"),
            event("asked", "3", "bob"),
            done("3", "aborted"),
            event("asked", "4", "ada"),
            event("seen", "4", "username"),
        ];
        assert_eq!(authors(told.iter().rev().cloned(), 2), ["ada"]);
    }
}

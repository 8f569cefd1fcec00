//! The runs of a notebook's present kernel, according to the journal.
//!
//! The runs of all clients count: jobs, front ends behind a proxy, and clients that only an observer saw. Gaps in
//! the execution counts show runs that no observer saw.

use std::collections::HashSet;

use jiff::Timestamp;

use crate::execution::cell_lookup::CellLookup;
use crate::execution::replay::ends;
use crate::graph::{End, PastRun};
use crate::notebook::Document;
use crate::project::event::{CellEnd, Event, EventKind, Events, ExecutionStart, Position};
use crate::project::{Project, Session, StateError};

/// How many bytes of the journal are read: about 50,000 runs.
const READ_BYTES: u64 = 16 << 20;

/// How many events of a kernel are kept, as many as [`READ_BYTES`] have.
const MOST_KEPT: usize = 100_000;

/// The events of a notebook's kernel that were read before: the next reader reads only later ones.
#[derive(Debug, Default)]
pub(super) struct KernelEvents {
    generation: u64,
    /// When the kernel was started: the journal may have been deleted, and another kernel may have the generation.
    started_at: Option<Timestamp>,
    /// The position of the first event that was not read.
    end: Position,
    /// Whether the journal has the kernel's beginning.
    is_whole: bool,
    /// The events of requests, oldest first.
    events: Vec<Event>,
}

/// A run of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KernelRun {
    pub(super) past: PastRun,
    /// The request's id; none for runs that no observer saw.
    pub(super) msg_id: Option<String>,
    /// Whether it runs, or waits to be run.
    pub(super) is_open: bool,
    /// When it was requested; none for runs that no observer saw.
    pub(super) at: Option<Timestamp>,
    /// Whether it was the run of a cell, which the notebook need not have any more.
    pub(super) is_cell: bool,
}

/// Returns what the present kernel of a notebook, or its last one, has run, in order. It is empty if the
/// notebook never had a kernel. `known` has what was read before for the same notebook.
///
/// # Errors
/// The project's state cannot be read.
pub(super) fn past_runs(
    project: &Project,
    notebook: &str,
    document: &Document,
    known: &mut KernelEvents,
) -> Result<Vec<KernelRun>, StateError> {
    let state = project.state()?;
    let owner = state.owner_key(notebook);
    let Some(session) = state.session(&owner) else {
        return Ok(Vec::new());
    };
    known.read(project.events(&owner), &session);
    let past = Past {
        notebook,
        owner: &owner,
        // The kernel of another program may have run code before nb knew it.
        is_whole: session.is_owned(),
    };
    Ok(past.runs(known, document))
}

impl KernelEvents {
    /// Reads the events that are not known yet of a session's kernel.
    fn read(&mut self, events: Events, session: &Session) {
        let end = events.end();
        let is_same =
            (self.generation, self.started_at) == (session.generation, session.started_at);
        // If the journal is shorter than it was, it is a new one.
        if !is_same || self.end > end {
            *self = Self {
                generation: session.generation,
                started_at: session.started_at,
                ..Self::default()
            };
        }
        let events = events.after(self.end).within(READ_BYTES);
        self.end = end;
        self.add(events);
    }

    /// Adds events, which come newest first, to those that are known.
    fn add(&mut self, events: impl Iterator<Item = Event>) {
        let mut new = Vec::new();
        for event in events {
            let event_generation = event.generation.unwrap_or(self.generation);
            // The ends of an earlier kernel's cells may be written after this kernel's beginning.
            let is_of_earlier = event_generation < self.generation && event.request().is_some();
            let is_beginning = event_generation == self.generation
                && matches!(event.kind, EventKind::Opened | EventKind::Restarted);
            if is_of_earlier || is_beginning {
                self.is_whole = true;
                self.events.clear();
                break;
            }
            if event_generation == self.generation && event.msg_id().is_some() {
                new.push(event);
            }
        }
        self.events.extend(new.into_iter().rev());
        let extra = self.events.len().saturating_sub(MOST_KEPT);
        if extra > 0 {
            self.events.drain(..extra);
            self.is_whole = false;
        }
    }
}

/// The notebook whose runs are collected.
struct Past<'a> {
    notebook: &'a str,
    owner: &'a str,
    /// Whether `nb` started the kernel.
    is_whole: bool,
}

impl Past<'_> {
    /// Returns the runs that the events show.
    fn runs(&self, known: &KernelEvents, document: &Document) -> Vec<KernelRun> {
        // The newest first.
        let kernel_events = known.events.iter().rev();
        let kernel_events: Vec<_> = kernel_events.collect();
        let ends = ends(&kernel_events);
        let asked = kernel_events.iter().filter_map(|event| event.request());
        let asked: HashSet<_> = asked.map(|start| &*start.msg_id).collect();
        let starts = kernel_events.iter().filter_map(|event| {
            let start = event.start()?;
            let end = ends.get(&*start.msg_id).map(|end| end.status);
            let counts = start.store_history
                && (event.request().is_some() || !asked.contains(&*start.msg_id))
                && end.is_none_or(CellEnd::has_begun);
            let is_here = event.notebook.as_deref().unwrap_or(self.owner) == self.notebook;
            counts.then_some((start, is_here, event.at))
        });
        let starts: Vec<_> = starts.collect();
        let sent_names = starts.iter().filter(|(_, is_here, _)| *is_here);
        let sent_names = sent_names
            .filter_map(|(start, ..)| Some((start.cell.as_deref()?, start.code.as_deref()?)));
        let lookup = CellLookup::of(document, sent_names);
        let has_end = |start: &ExecutionStart| ends.contains_key(&*start.msg_id);
        let last_end = starts.iter().position(|(start, ..)| has_end(start));
        let mut runs = Vec::new();
        // A kernel counts from 1; of a kernel whose beginning is not known, nothing is.
        let mut count = Some(0);
        if !(known.is_whole && self.is_whole) {
            runs.push(unseen());
            count = None;
        }
        for (at, (start, is_here, sent_at)) in starts.iter().enumerate().rev() {
            let end = ends.get(&*start.msg_id);
            let execution_count = end.and_then(|end| end.execution_count);
            count = count.map(|count| count + 1);
            if let (Some(execution_count), Some(known)) = (execution_count, count)
                && execution_count > known
            {
                runs.push(unseen());
            }
            count = execution_count.or(count);
            let place = start.cell.as_deref().filter(|_| *is_here);
            let place = place.and_then(|name| lookup.position(name));
            let past = PastRun {
                cell: place.map(|place| document.cells()[place].id().to_owned()),
                code: start.code.clone(),
                end: match end {
                    Some(end) => end_of(end.status),
                    // It runs, or waits to be run.
                    None if last_end.is_none_or(|last| at < last) => End::Whole,
                    None => End::Unknown,
                },
            };
            runs.push(KernelRun {
                is_open: end.is_none() && past.end == End::Whole,
                past,
                msg_id: Some(start.msg_id.clone()),
                at: Some(*sent_at),
                is_cell: start.cell.is_some() && *is_here,
            });
        }
        runs
    }
}

/// Runs that no observer saw.
fn unseen() -> KernelRun {
    let past = PastRun {
        cell: None,
        code: None,
        end: End::Unknown,
    };
    KernelRun {
        past,
        msg_id: None,
        is_open: false,
        at: None,
        is_cell: false,
    }
}

fn end_of(status: CellEnd) -> End {
    match status {
        CellEnd::Ok | CellEnd::ObservedOk => End::Whole,
        CellEnd::Error | CellEnd::Interrupted | CellEnd::ObservedError | CellEnd::KernelDied => {
            End::Failed
        }
        _ => End::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::notebook::tests::fixtures::cells;
    use crate::project::event::fixtures::event;

    /// Makes one event of each line: `2 asked 7 aaaa code`, `2 done 7 ok`, `2 done 7 ok 3`.
    fn past(lines: &[&str], is_whole: bool) -> Vec<PastRun> {
        let events = lines.iter().map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let word = |at: usize| words.get(at).filter(|word| **word != "-");
            let is_end = words[1] == "done";
            event(json!({
                "event": words[1], "generation": words[0].parse::<u64>().unwrap(), "msg_id": word(2),
                "status": word(3).filter(|_| is_end), "cell": word(3).filter(|_| !is_end),
                "code": word(4).filter(|_| !is_end), "notebook": word(5),
                "execution_count": word(4).filter(|_| is_end).map(|it| it.parse::<u64>().unwrap()),
            }))
        });
        let mut events: Vec<_> = events.collect();
        events.reverse();
        let document = cells("aaaa:1 bbbb:2 cccc:3");
        let past = Past {
            notebook: "a.ipynb",
            owner: "a.ipynb",
            is_whole,
        };
        let known = |parts: &[&[Event]]| {
            let mut known = KernelEvents {
                generation: 2,
                ..KernelEvents::default()
            };
            for part in parts {
                known.add(part.iter().cloned());
            }
            let runs = past.runs(&known, &document).into_iter();
            runs.map(|run| run.past).collect::<Vec<_>>()
        };
        let runs = known(&[&events]);
        // It is the same if a part of the events was read before.
        for at in 0..events.len() {
            let (new, old) = events.split_at(at);
            assert_eq!(known(&[old, new]), runs);
        }
        runs
    }

    fn run(cell: &str, code: &str, end: End) -> PastRun {
        let known = |text: &str| (text != "-").then(|| text.to_owned());
        PastRun {
            cell: known(cell),
            code: known(code),
            end,
        }
    }

    #[test]
    fn everybodys_runs_of_this_kernel_are_in_order() {
        let lines = [
            "1 requested 0 aaaa 1",
            "1 done 0 ok",
            "2 opened",
            "2 requested 1 aaaa old",
            "2 done 1 ok",
            "2 requested 2 v:/a#W1 2",
            "2 begun_outside 2 - 2",
            "2 done 2 observed_ok",
            "2 done 2 error",
            "2 requested 3 cccc 3",
            "2 done 3 aborted",
            "2 begun_outside 4 - x",
            "2 done 4 observed_error",
            "2 requested 5 aaaa 1 b.ipynb",
            "2 requested 6 - -",
            "2 done 6 ok",
            "2 requested 7 cccc 3",
        ];
        let want = [
            run("aaaa", "old", End::Whole),
            run("bbbb", "2", End::Failed),
            run("-", "x", End::Failed),
            run("-", "1", End::Unknown),
            run("-", "-", End::Whole),
            run("cccc", "3", End::Whole),
        ];
        assert_eq!(past(&lines, true), want);
    }

    #[test]
    fn gaps_in_the_execution_counts_show_unobserved_runs() {
        let lines = [
            "2 restarted",
            "2 requested 1 aaaa 1",
            "2 done 1 ok 1",
            "2 requested 2 v:/a#W1 2",
            "2 done 2 ok",
            "2 requested 3 aaaa 1",
            "2 done 3 ok 3",
            "2 requested 4 cccc 3",
            "2 done 4 ok 6",
        ];
        let runs = past(&lines, true);
        let unseen: Vec<_> = (0..)
            .zip(&runs)
            .filter(|(_, run)| run.code.is_none())
            .collect();
        assert_eq!(unseen, [(3, &super::unseen().past)]);
        assert_eq!(runs.len(), 5);
        // A kernel that another program started, or whose beginning is not in the journal.
        assert_eq!(past(&lines, false)[0], super::unseen().past);
        assert_eq!(past(&lines[1..], true)[0], super::unseen().past);
    }
}

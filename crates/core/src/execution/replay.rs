//! Finds what to run again after a kernel has ended: the code that ran in it without error, in the
//! same order.
//!
//! The journal records what ran, and the notebook has the cells as they are now: each run is repeated
//! with the cell's present text. What cannot be repeated is reported, not guessed: code outside the
//! notebook, cells that were removed, and what failed or was still running at the end.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::Serialize;

use super::cell_lookup::CellLookup;
use super::exec::{ExecError, job_cell, living};
use crate::activity::labels;
use crate::notebook::Document;
use crate::project::Project;
use crate::project::event::{CellEnd, Event, EventKind, ExecutionEnd};
use crate::project::jobs::JobCell;

/// The runs of a kernel that has ended, and those of them that can be repeated.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Replay {
    /// The kernel's generation.
    pub generation: u64,
    /// When and how it ended, according to the journal.
    pub ended: Option<EndedKernel>,
    /// The ids of the cells to run, in order; a cell that ran several times is listed several times.
    pub cells: Vec<String>,
    /// The cells among them whose text has changed since they ran.
    pub changed: Vec<String>,
    /// The cell or code that was running when the kernel ended.
    pub running: Option<String>,
    /// The cells that ran, but never without an error.
    pub failed: Vec<String>,
    /// The number of runs of cells that the notebook no longer has, or has with another text.
    pub gone: usize,
    /// The number of runs of code outside the notebook: `nb run`, a console.
    pub scratch: usize,
    /// The number of runs of other notebooks' cells.
    pub elsewhere: usize,
}

/// How a kernel ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EndedKernel {
    /// When it was noticed.
    pub at: Timestamp,
    /// `died`, `restarted` or `stopped`.
    pub how: String,
    /// The actor who ended it.
    pub by: Option<String>,
}

impl Replay {
    /// Returns what ran in the last kernel of a notebook before its present one, if anything did.
    ///
    /// # Errors
    /// The notebook has no running kernel according to its record; or the project cannot be read.
    pub async fn of(
        project: &Project,
        notebook: &str,
        document: &Document,
    ) -> Result<Option<Self>, ExecError> {
        let (state, session) = living(project, notebook).await?;
        let owner = state.owner_key(notebook);
        let of = KernelPast {
            notebook,
            owner: &owner,
            generation: session.generation,
        };
        Ok(of.replay(project.events(&owner), document))
    }

    /// Returns the cells for the job that runs them again.
    pub fn job(&self, document: &Document) -> Vec<JobCell> {
        let cells = document.cells().iter().enumerate();
        let places: HashMap<_, _> = cells
            .map(|(index, cell)| (cell.id(), (index, cell)))
            .collect();
        let cells = self.cells.iter().filter_map(|id| places.get(id.as_str()));
        cells.map(|(index, cell)| job_cell(*index, cell)).collect()
    }
}

/// The notebook and the kernel whose past is read.
struct KernelPast<'a> {
    notebook: &'a str,
    owner: &'a str,
    /// The generation of the present kernel.
    generation: u64,
}

/// A run of one of the notebook's cells that ended without error.
struct Run<'a> {
    place: usize,
    code: Option<&'a str>,
}

impl KernelPast<'_> {
    /// Computes the replay from events that come newest first.
    fn replay(&self, past: impl Iterator<Item = Event>, document: &Document) -> Option<Replay> {
        let mut kernel_ends: Vec<(u64, EndedKernel)> = Vec::new();
        let mut generation = None;
        let mut events = Vec::new();
        for event in past {
            let event_generation = event.generation.unwrap_or_default();
            let is_earlier = event.request().is_some_and(|it| it.store_history)
                && event_generation < self.generation;
            if is_earlier && event_generation < *generation.get_or_insert(event_generation) {
                break;
            }
            kernel_ends.extend(ended_by(&event));
            events.push(event);
        }
        let generation = generation?;
        let mut replay = Replay {
            generation,
            ended: kernel_ends
                .into_iter()
                .find(|it| it.0 == generation)
                .map(|it| it.1),
            ..Replay::default()
        };
        let is_of_kernel = |event: &&Event| event.generation == Some(generation);
        let events: Vec<_> = events.iter().filter(is_of_kernel).collect();
        let sent_names = events.iter().filter(|event| self.is_here(event));
        let sent_names = sent_names.filter_map(|event| event.start());
        let sent_names =
            sent_names.filter_map(|it| Some((it.cell.as_deref()?, it.code.as_deref()?)));
        let lookup = CellLookup::of(document, sent_names);
        let ends = ends(&events);
        let died = events.iter().find_map(|event| match &event.kind {
            EventKind::Died { cell, .. } => Some(cell.as_deref()),
            _ => None,
        });
        // A proxy reports a front end's cell as failed when the kernel ends.
        let ran_last = died.flatten().and_then(|cell| lookup.position(cell));
        replay.running = ran_last.map(|place| document.cells()[place].id().to_owned());
        let mut runs: Vec<Run<'_>> = Vec::new();
        let mut failed: Vec<usize> = Vec::new();
        for event in events.iter().rev() {
            if matches!(event.kind, EventKind::BegunOutside(_)) && !has_request(&events, event) {
                replay.scratch += 1;
            }
            let Some(start) = event.request().filter(|start| start.store_history) else {
                continue;
            };
            let end = ends.get(&*start.msg_id).map(|end| end.status);
            if end.is_some_and(|end| !end.has_begun()) {
                continue;
            }
            let place = match (&start.cell, &start.code) {
                _ if !self.is_here(event) => {
                    replay.elsewhere += 1;
                    continue;
                }
                (Some(name), _) => lookup.position(name),
                // A front end that sends no cell ids runs the notebook's cells all the same.
                (None, Some(code)) if start.job.is_none() => lookup.with_only_source(code),
                _ => None,
            };
            match (place, end) {
                (place, None | Some(CellEnd::KernelDied | CellEnd::Unobserved)) => {
                    let label = place.map(|place| document.cells()[place].id().to_owned());
                    let label = label.unwrap_or_else(|| labels::label(start));
                    replay.running.get_or_insert(label);
                }
                (None, Some(CellEnd::Ok)) if start.cell.is_none() => replay.scratch += 1,
                (None, Some(CellEnd::Ok)) => replay.gone += 1,
                (None, _) => {}
                (Some(place), Some(CellEnd::Ok)) => runs.push(Run {
                    place,
                    code: start.code.as_deref(),
                }),
                (Some(place), Some(_)) => failed.push(place),
            }
        }
        let id = |place: usize| document.cells()[place].id().to_owned();
        for place in failed {
            let ran = runs.iter().any(|run| run.place == place) || ran_last == Some(place);
            if !ran && !replay.failed.contains(&id(place)) {
                replay.failed.push(id(place));
            }
        }
        for run in without_repeated_attempts(runs) {
            let now = document.cells()[run.place].source();
            let is_same = run.code.is_none_or(|code| *code == *now);
            let id = id(run.place);
            // Only the last run of the cell counts.
            replay.changed.retain(|changed| *changed != id);
            if !is_same {
                replay.changed.push(id.clone());
            }
            replay.cells.push(id);
        }
        Some(replay)
    }

    /// Says whether an execution was of this notebook's cells, according to the journal.
    fn is_here(&self, event: &Event) -> bool {
        event.notebook.as_deref().unwrap_or(self.owner) == self.notebook
    }
}

/// Removes repeated attempts: if a cell ran several times in a row, each time with another text,
/// only its last run is repeated. With the same text each run counts, as in `x += 1`.
fn without_repeated_attempts(runs: Vec<Run<'_>>) -> Vec<Run<'_>> {
    let mut kept: Vec<Run<'_>> = Vec::new();
    for run in runs {
        kept.pop_if(|last| last.place == run.place && last.code != run.code);
        kept.push(run);
    }
    kept
}

/// Returns the end of each request, by its id. The sender's event takes precedence over an
/// observer's.
pub fn ends<'a>(events: &[&'a Event]) -> HashMap<&'a str, &'a ExecutionEnd> {
    let mut ends: HashMap<&str, &ExecutionEnd> = HashMap::new();
    for end in events.iter().filter_map(|event| event.end()) {
        let known = ends.entry(&end.msg_id).or_insert(end);
        if !known.status.is_certain() {
            *known = end;
        }
    }
    ends
}

fn has_request(events: &[&Event], seen: &Event) -> bool {
    let mut asked = events.iter().filter(|event| event.request().is_some());
    asked.any(|asked| asked.msg_id() == seen.msg_id())
}

/// Returns the generation of the kernel that ended by an event, and how it ended.
fn ended_by(event: &Event) -> Option<(u64, EndedKernel)> {
    let generation = event.generation.unwrap_or_default();
    let (generation, how) = match event.kind {
        // The event is written when the next kernel is ready.
        EventKind::Restarted => (generation.saturating_sub(1), "restarted"),
        EventKind::Died { .. } => (generation, "died"),
        EventKind::Stopped => (generation, "stopped"),
        _ => return None,
    };
    let ended = EndedKernel {
        at: event.at,
        how: how.to_owned(),
        by: event.by.clone(),
    };
    Some((generation, ended))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::notebook::tests::fixtures::cells;
    use crate::project::event::fixtures;

    /// Makes one event of each line: `1 requested 7 aaaa code`, `1 done 7 ok`.
    fn past(lines: &[&str]) -> Vec<Event> {
        let event = |line: &&str| {
            let words: Vec<_> = line.split(' ').collect();
            let word = |at: usize| words.get(at).filter(|word| **word != "-");
            let is_end = words[1] == "done";
            fixtures::event(json!({
                "event": words[1], "generation": words[0].parse::<u64>().unwrap(), "by": "ada",
                "msg_id": word(2), "status": word(3).filter(|_| is_end), "reason": "",
                "cell": word(3).filter(|_| !is_end), "code": word(4), "notebook": word(5),
                "job": word(6),
            }))
        };
        lines.iter().map(event).collect()
    }

    fn replay(generation: u64, lines: &[&str]) -> Option<Replay> {
        let past_kernel = KernelPast {
            notebook: "a.ipynb",
            owner: "a.ipynb",
            generation,
        };
        let past = past(lines);
        let replay = past_kernel.replay(
            past.into_iter().rev(),
            &cells("aaaa:1 bbbb:2 cccc:3 dddd:4"),
        );
        let without_end = |replay| Replay {
            ended: None,
            ..replay
        };
        replay.map(without_end)
    }

    fn ran(generation: u64, cells: &[&str]) -> Replay {
        Replay {
            generation,
            cells: cells.iter().map(ToString::to_string).collect(),
            ..Replay::default()
        }
    }

    #[test]
    fn runs_without_errors_are_repeated_in_order() {
        let died = [
            "1 requested 0 dddd 4",
            "1 done 0 ok",
            "2 requested 1 cccc 3",
            "2 done 1 ok",
            "2 requested 2 aaaa 1",
            "2 done 2 ok",
            "2 requested 3 bbbb 2",
            "2 done 3 error",
            "2 requested 4 aaaa 1",
            "2 done 4 ok",
            "2 requested 5 dddd 4",
            "2 requested 6 cccc 3",
            "2 died - dddd",
            "2 done 6 error",
            "3 opened",
        ];
        let want = Replay {
            running: Some("dddd".to_owned()),
            failed: vec!["bbbb".to_owned()],
            ..ran(2, &["cccc", "aaaa", "aaaa"])
        };
        assert_eq!(replay(3, &died), Some(want.clone()));
        // Runs in the present kernel change nothing, nor do kernels in which nothing ran.
        let more = [&died[..], &["5 requested 9 bbbb 2", "5 done 9 ok"]].concat();
        assert_eq!(replay(5, &more), Some(want));
        assert_eq!(replay(1, &died), None);
        assert_eq!(replay(2, &died), Some(ran(1, &["dddd"])));
    }

    #[test]
    fn a_cell_that_was_worked_on_runs_once_and_as_it_is_now() {
        let lines = [
            "1 requested 1 aaaa old",
            "1 done 1 ok",
            "1 requested 2 aaaa older",
            "1 done 2 ok",
            "1 requested 3 aaaa 1",
            "1 done 3 ok",
            "1 requested 4 bbbb before",
            "1 done 4 ok",
            "1 requested 5 aaaa 1",
            "1 done 5 ok",
        ];
        let want = Replay {
            changed: vec!["bbbb".to_owned()],
            ..ran(1, &["aaaa", "bbbb", "aaaa"])
        };
        assert_eq!(replay(2, &lines), Some(want));
    }

    #[test]
    fn runs_outside_the_notebook_are_counted() {
        let lines = [
            "1 requested 1 - 2 - 7f3a",
            "1 done 1 ok",
            "1 requested 2 gone 7",
            "1 done 2 ok",
            "1 requested 3 aaaa 1 b.ipynb",
            "1 done 3 ok",
            "1 begun_outside 4 - 1",
            "1 done 4 observed_ok",
            "1 requested 5 v:/a#W1 2",
            "1 begun_outside 5 - 2",
            "1 done 5 ok",
            "1 requested 6 - 3",
            "1 done 6 ok",
            "1 requested 7 v:/a#W7 nowhere",
            "1 done 7 ok",
            "1 requested 8 aaaa 1",
            "1 done 8 aborted",
        ];
        let want = Replay {
            scratch: 2,
            gone: 2,
            elsewhere: 1,
            ..ran(1, &["bbbb", "cccc"])
        };
        assert_eq!(replay(2, &lines), Some(want));
    }

    #[test]
    fn the_last_recorded_end_of_the_kernel_counts() {
        let lines = [
            "1 restarted",
            "2 requested 1 aaaa 1",
            "2 restarted",
            "3 requested 1 aaaa 1",
            "4 restarted",
        ];
        let list = past(&lines);
        let past_kernel = KernelPast {
            notebook: "a.ipynb",
            owner: "a.ipynb",
            generation: 4,
        };
        let empty = r#"{"cells":[],"metadata":{},"nbformat":4,"nbformat_minor":5}"#;
        let document = Document::parse(empty.to_owned()).unwrap();
        let replay = past_kernel
            .replay(list.clone().into_iter().rev(), &document)
            .unwrap();
        let ended = replay.ended.unwrap();
        assert_eq!((ended.at, &*ended.how), (list[4].at, "restarted"));
    }
}

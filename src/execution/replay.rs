//! What is run again when a kernel has ended: what ran in it without error, in that order.
//!
//! The journal tells what ran, the notebook what the cells are now: each run is repeated with the text
//! that the cell has at present. What cannot be repeated is told, never guessed: code outside the
//! notebook, cells that are gone, what failed or was still running at the end.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::Serialize;

use super::exec::{ExecError, job_cell, living};
use super::meant::Meant;
use crate::activity::company;
use crate::notebook::Document;
use crate::project::Project;
use crate::project::jobs::JobCell;
use crate::project::journal::Entry;

/// What ran in a kernel that has ended, and of it what can be run again.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Replay {
    /// Which of the session's kernels it was.
    pub generation: u64,
    /// When and how it ended, as far as the journal tells.
    pub ended: Option<Ended>,
    /// The ids of the cells that are run, in order; one that ran several times is there several times.
    pub cells: Vec<String>,
    /// Those of them whose text is not what ran.
    pub changed: Vec<String>,
    /// What was running when the kernel ended.
    pub running: Option<String>,
    /// The cells that ran, but never without an error.
    pub failed: Vec<String>,
    /// How many runs were of cells that the notebook does not have any more, or has with another text.
    pub gone: usize,
    /// How many were of code outside the notebook: `nb run`, a console.
    pub scratch: usize,
    /// How many were of other notebooks' cells.
    pub elsewhere: usize,
}

/// How a kernel ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ended {
    /// When it was noticed.
    pub at: Timestamp,
    /// `died`, `restarted` or `stopped`.
    pub how: String,
    /// Who did it.
    pub by: Option<String>,
}

impl Replay {
    /// Returns what ran in the last kernel of a notebook before its present one, if anything did.
    ///
    /// # Errors
    /// The notebook has no kernel that lives, as far as is recorded; or the project cannot be read.
    pub async fn of(
        project: &Project,
        notebook: &str,
        document: &Document,
    ) -> Result<Option<Self>, ExecError> {
        let (state, session) = living(project, notebook).await?;
        let owner = state.owner_key(notebook);
        let past = project.past(&owner).map(|placed| placed.entry);
        let of = Of {
            notebook,
            owner: &owner,
            generation: session.generation,
        };
        Ok(of.replay(past, document))
    }

    /// Returns what a job is given to run.
    pub fn job(&self, document: &Document) -> Vec<JobCell> {
        let places: HashMap<_, _> = document.cells().iter().map(|it| (it.id(), it)).collect();
        let cells = self.cells.iter().filter_map(|id| places.get(id.as_str()));
        cells.map(|cell| job_cell(cell)).collect()
    }
}

/// Whose past it is.
struct Of<'a> {
    notebook: &'a str,
    owner: &'a str,
    /// The present kernel's.
    generation: u64,
}

/// A run of one of the notebook's cells that raised nothing.
struct Run<'a> {
    place: usize,
    code: Option<&'a str>,
}

impl Of<'_> {
    /// `past` comes newest first.
    fn replay(&self, past: impl Iterator<Item = Entry>, document: &Document) -> Option<Replay> {
        let mut ends_of: Vec<(u64, Ended)> = Vec::new();
        let mut generation = None;
        let mut entries = Vec::new();
        for entry in past {
            let of = entry.generation.unwrap_or_default();
            let earlier = entry.store_history && of < self.generation;
            match entry.event.as_str() {
                "asked" if earlier && of < *generation.get_or_insert(of) => break,
                "restarted" | "died" | "stopped" => ends_of.push(ended_by(&entry)),
                _ => {}
            }
            entries.push(entry);
        }
        let generation = generation?;
        let mut replay = Replay {
            generation,
            ended: ends_of
                .into_iter()
                .find(|it| it.0 == generation)
                .map(|it| it.1),
            ..Replay::default()
        };
        let of_it = |entry: &&Entry| entry.generation == Some(generation);
        let entries: Vec<_> = entries.iter().filter(of_it).collect();
        let named = entries.iter().filter(|entry| self.is_here(entry));
        let named = named.filter_map(|it| Some((it.cell.as_deref()?, it.code.as_deref()?)));
        let meant = Meant::of(document, named);
        let ends = ends(&entries);
        let died = entries.iter().find(|entry| entry.event == "died");
        // A proxy tells a front end's cell as failed when the kernel goes.
        let ran_last = died.and_then(|died| meant.place(died.cell.as_deref()?));
        replay.running = ran_last.map(|place| document.cells()[place].id().to_owned());
        let mut runs: Vec<Run<'_>> = Vec::new();
        let mut failed: Vec<usize> = Vec::new();
        for entry in entries.iter().rev() {
            if entry.event == "seen" && !is_asked(&entries, entry) {
                replay.scratch += 1;
            }
            if entry.event != "asked" || !entry.store_history {
                continue;
            }
            let id = entry.msg_id.as_deref().unwrap_or_default();
            let end = ends.get(id).map(|end| end.status.as_deref().unwrap_or(""));
            if matches!(end, Some("aborted" | "withdrawn")) {
                continue;
            }
            let place = match (&entry.cell, &entry.code) {
                _ if !self.is_here(entry) => {
                    replay.elsewhere += 1;
                    continue;
                }
                (Some(name), _) => meant.place(name),
                // A front end that names no cells: what it runs are the notebook's all the same.
                (None, Some(code)) if entry.job.is_none() => meant.only(code),
                _ => None,
            };
            match (place, end) {
                (place, None | Some("kernel_died" | "unseen")) => {
                    let label = place.map(|place| document.cells()[place].id().to_owned());
                    let label = label.unwrap_or_else(|| company::label(entry));
                    replay.running.get_or_insert(label);
                }
                (None, Some("ok")) if entry.cell.is_none() => replay.scratch += 1,
                (None, Some("ok")) => replay.gone += 1,
                (None, _) => {}
                (Some(place), Some("ok")) => runs.push(Run {
                    place,
                    code: entry.code.as_deref(),
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
        for run in settled(runs) {
            let now = document.cells()[run.place].source();
            let is_same = run.code.is_none_or(|code| *code == *now);
            let id = id(run.place);
            // What ran last of it counts.
            replay.changed.retain(|changed| *changed != id);
            if !is_same {
                replay.changed.push(id.clone());
            }
            replay.cells.push(id);
        }
        Some(replay)
    }

    /// Says whether an execution was of the notebook's own cells, as far as is told.
    fn is_here(&self, entry: &Entry) -> bool {
        entry.notebook.as_deref().unwrap_or(self.owner) == self.notebook
    }
}

/// A cell that was worked on is run once: of several runs in a row, each with another text, only the
/// last is repeated. With the same text each counts, as in `x += 1`.
fn settled(runs: Vec<Run<'_>>) -> Vec<Run<'_>> {
    let mut settled: Vec<Run<'_>> = Vec::new();
    for run in runs {
        settled.pop_if(|last| last.place == run.place && last.code != run.code);
        settled.push(run);
    }
    settled
}

/// Returns how each request ended, by its id; who asked for it knows more than who has seen it.
fn ends<'a>(entries: &[&'a Entry]) -> HashMap<&'a str, &'a Entry> {
    let mut ends: HashMap<&str, &Entry> = HashMap::new();
    for entry in entries.iter().filter(|entry| entry.event == "done") {
        let id = entry.msg_id.as_deref().unwrap_or_default();
        let known = ends.entry(id).or_insert(entry);
        if matches!(known.status.as_deref(), Some("seen" | "unseen")) {
            *known = entry;
        }
    }
    ends
}

fn is_asked(entries: &[&Entry], seen: &Entry) -> bool {
    let mut asked = entries.iter().filter(|entry| entry.event == "asked");
    asked.any(|asked| asked.msg_id == seen.msg_id)
}

/// Returns which of the kernels it was that ended, and how.
fn ended_by(entry: &Entry) -> (u64, Ended) {
    let generation = entry.generation.unwrap_or_default();
    let generation = match entry.event.as_str() {
        // Written when its successor was ready.
        "restarted" => generation.saturating_sub(1),
        _ => generation,
    };
    let ended = Ended {
        at: entry.at,
        how: entry.event.clone(),
        by: entry.by.clone().filter(|by| !by.is_empty()),
    };
    (generation, ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::tests::fixtures::cells;

    /// One line an entry: `1 asked 7 aaaa code`, `1 done 7 ok`.
    fn past(lines: &[&str]) -> Vec<Entry> {
        let entry = |line: &&str| {
            let words: Vec<_> = line.split(' ').collect();
            let mut entry = Entry::now(words[1], "a.ipynb");
            entry.generation = words[0].parse().ok();
            let word = |at: usize| words.get(at).filter(|word| **word != "-");
            entry.msg_id = word(2).map(ToString::to_string);
            entry.by = Some("ada".to_owned());
            if words[1] == "done" {
                entry.status = word(3).map(ToString::to_string);
            } else {
                entry.cell = word(3).map(ToString::to_string);
                entry.code = word(4).map(ToString::to_string);
            }
            entry.notebook = word(5).map(ToString::to_string);
            entry.job = word(6).map(ToString::to_string);
            entry
        };
        lines.iter().map(entry).collect()
    }

    fn replay(generation: u64, lines: &[&str]) -> Option<Replay> {
        let of = Of {
            notebook: "a.ipynb",
            owner: "a.ipynb",
            generation,
        };
        let past = past(lines);
        let replay = of.replay(
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
    fn what_raised_nothing_runs_again_in_its_order() {
        let died = [
            "1 asked 0 dddd 4",
            "1 done 0 ok",
            "2 asked 1 cccc 3",
            "2 done 1 ok",
            "2 asked 2 aaaa 1",
            "2 done 2 ok",
            "2 asked 3 bbbb 2",
            "2 done 3 error",
            "2 asked 4 aaaa 1",
            "2 done 4 ok",
            "2 asked 5 dddd 4",
            "2 asked 6 cccc 3",
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
        // What runs in the present kernel changes nothing, nor do kernels in which nothing ran.
        let more = [&died[..], &["5 asked 9 bbbb 2", "5 done 9 ok"]].concat();
        assert_eq!(replay(5, &more), Some(want));
        assert_eq!(replay(1, &died), None);
        assert_eq!(replay(2, &died), Some(ran(1, &["dddd"])));
    }

    #[test]
    fn a_cell_that_was_worked_on_runs_once_and_as_it_is_now() {
        let lines = [
            "1 asked 1 aaaa old",
            "1 done 1 ok",
            "1 asked 2 aaaa older",
            "1 done 2 ok",
            "1 asked 3 aaaa 1",
            "1 done 3 ok",
            "1 asked 4 bbbb before",
            "1 done 4 ok",
            "1 asked 5 aaaa 1",
            "1 done 5 ok",
        ];
        let want = Replay {
            changed: vec!["bbbb".to_owned()],
            ..ran(1, &["aaaa", "bbbb", "aaaa"])
        };
        assert_eq!(replay(2, &lines), Some(want));
    }

    #[test]
    fn what_is_no_cell_of_the_notebook_is_counted() {
        let lines = [
            "1 asked 1 - 2 - 7f3a",
            "1 done 1 ok",
            "1 asked 2 gone 7",
            "1 done 2 ok",
            "1 asked 3 aaaa 1 b.ipynb",
            "1 done 3 ok",
            "1 seen 4 - 1",
            "1 done 4 seen",
            "1 asked 5 v:/a#W1 2",
            "1 seen 5 - 2",
            "1 done 5 ok",
            "1 asked 6 - 3",
            "1 done 6 ok",
            "1 asked 7 v:/a#W7 nowhere",
            "1 done 7 ok",
            "1 asked 8 aaaa 1",
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
    fn how_the_kernel_ended_is_the_last_that_was_told_of_it() {
        let lines = [
            "1 restarted",
            "2 asked 1 aaaa 1",
            "2 restarted",
            "3 asked 1 aaaa 1",
            "4 restarted",
        ];
        let list = past(&lines);
        let of = Of {
            notebook: "a.ipynb",
            owner: "a.ipynb",
            generation: 4,
        };
        let empty = r#"{"cells":[],"metadata":{},"nbformat":4,"nbformat_minor":5}"#;
        let document = Document::parse(empty.to_owned()).unwrap();
        let replay = of
            .replay(list.clone().into_iter().rev(), &document)
            .unwrap();
        let ended = replay.ended.unwrap();
        assert_eq!((ended.at, &*ended.how), (list[4].at, "restarted"));
    }
}

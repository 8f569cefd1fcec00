//! Putting what executions left into their notebook.

use std::collections::HashSet;
use std::path::Path;

use jiff::Timestamp;

use super::recorder::hash;
use crate::editing::language;
use crate::editing::notebook_file::NotebookFile;
use crate::editing::transaction;
use crate::editing::unsaved::{self, Unsaved};
use crate::notebook::{
    Cell, CellExecution, CellType, Document, EditError, MimeBundle, Widgets, stale_note,
};
use crate::task::causes::with_causes;

/// What an execution left of a cell.
#[derive(Clone, Debug)]
pub(super) struct Leaving {
    /// Which of the job's cells it is.
    pub(super) at: usize,
    /// The cell, where its id is known.
    pub(super) cell: Option<String>,
    /// What was run.
    pub(super) code: String,
    /// Its outputs, count and times.
    pub(super) execution: CellExecution,
    /// When the kernel began with it.
    pub(super) begun: Option<Timestamp>,
    /// It was a front end's, of which only the text is certain: it goes where just one cell says
    /// that.
    pub(super) by_text: bool,
    /// It was run again since, by whom the notebook need not tell.
    pub(super) ran_since: bool,
    /// Somebody has asked for it again since: where the notebook has a later number, that is from
    /// there. VS Code writes no times.
    pub(super) asked_since: bool,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Put {
    /// What did not go in, and why.
    pub(super) missed: Vec<(usize, String)>,
    /// What went in beside a note that the cell says something else by now.
    pub(super) stale: Vec<usize>,
    /// How many bytes were written.
    pub(super) bytes: usize,
}

impl Put {
    /// Returns why a cell's outputs did not go in, if they did not.
    pub(super) fn missed(&self, at: usize) -> Option<String> {
        let missed = self.missed.iter().find(|(missed, _)| *missed == at);
        missed.map(|(_, why)| why.clone())
    }
}

/// Puts what executions left into a notebook. Blocks while others write it. What a front end ran is
/// not written beside unsaved changes of its own, except with `force`.
///
/// # Errors
/// Why nothing could be written, in words.
pub(super) fn put(
    path: &Path,
    all: &[Leaving],
    widgets: &Widgets,
    force: bool,
) -> Result<Put, String> {
    let page = NotebookFile::of(path).map_err(|error| with_causes(&error))?;
    if !force
        && all.iter().any(|it| it.by_text)
        && let Unsaved::Found(_) = unsaved::look(&page)
    {
        return Err("VS Code has unsaved changes of this notebook".to_owned());
    }
    let spoken = language::known(&page);
    let ids: HashSet<&str> = all.iter().filter_map(|it| it.cell.as_deref()).collect();
    let mut put = Put::default();
    // What somebody saves in the middle may be another text of the very cell.
    until_quiet(|| {
        let mut round = Put::default();
        let written =
            transaction::write_running(&page, false, &|id| ids.contains(id), |document| {
                round = Put::default();
                let mut after = document.clone();
                for leaving in all {
                    match leaving.put(&mut after, force)? {
                        Went::In => {}
                        Went::Stale => round.stale.push(leaving.at),
                        Went::Not(why) => round.missed.push((leaving.at, why)),
                    }
                }
                if !widgets.is_empty() {
                    after.put_widgets(widgets)?;
                }
                // Where no execution of it went in, the notebook stays as it was.
                let any_went_in = round.missed.len() < all.len();
                if let Some(language) = spoken.as_ref().filter(|_| any_went_in) {
                    language::add(&mut after, language)?;
                }
                Ok::<_, EditError>(after)
            });
        let written = written.map_err(|error| with_causes(&error))?;
        if written.wrote {
            put.bytes += written.after.chunks().map(<[u8]>::len).sum::<usize>();
        }
        (put.missed, put.stale) = (round.missed, round.stale);
        Ok(written.theirs.is_none())
    })?;
    Ok(put)
}

/// How often a notebook is written that others save at the same moment.
const ROUNDS: u32 = 20;

/// Writes again while others save in the middle; `write` returns whether nobody has.
///
/// # Errors
/// Why nothing could be written, or that somebody saves each time.
fn until_quiet(mut write: impl FnMut() -> Result<bool, String>) -> Result<(), String> {
    for _ in 0..ROUNDS {
        if write()? {
            return Ok(());
        }
    }
    Err(format!(
        "another program saved the notebook each of the {ROUNDS} times that it was written"
    ))
}

/// What an output of an earlier execution is to show.
#[derive(Clone, Debug)]
pub(super) struct Update {
    /// The cell's id.
    pub(super) cell: String,
    /// The hash of what ran.
    pub(super) source: String,
    /// The number that the kernel gave it.
    pub(super) execution_count: u64,
    /// How many outputs it left.
    pub(super) outputs: usize,
    /// Which of them.
    pub(super) places: Vec<usize>,
    /// What they show now.
    pub(super) shown: MimeBundle,
}

/// Updates what outputs of earlier executions show, where they are as those left them: nothing of a
/// cell is touched that was edited, cleared or run again since. Returns how many bytes were written.
///
/// # Errors
/// Why nothing could be written, in words.
pub(super) fn update(path: &Path, all: &[Update]) -> Result<usize, String> {
    let page = NotebookFile::of(path).map_err(|error| with_causes(&error))?;
    let mut bytes = 0;
    until_quiet(|| {
        let written = transaction::write(&page, false, |document| {
            let mut after = document.clone();
            for update in all {
                update.put(&mut after)?;
            }
            Ok::<_, EditError>(after)
        });
        let written = written.map_err(|error| with_causes(&error))?;
        if written.wrote {
            bytes += written.after.chunks().map(<[u8]>::len).sum::<usize>();
        }
        Ok(written.theirs.is_none())
    })?;
    Ok(bytes)
}

impl Update {
    fn put(&self, document: &mut Document) -> Result<(), EditError> {
        let mut cells = document.cells().iter();
        let Some(index) = cells.position(|cell| self.is_of(cell)) else {
            return Ok(());
        };
        document.set_displayed(index, &self.places, &self.shown)?;
        Ok(())
    }

    /// Says whether it is the cell, as that execution left it.
    fn is_of(&self, cell: &Cell) -> bool {
        cell.id() == self.cell
            && cell.cell_type() == CellType::Code
            && cell.execution_count() == Some(self.execution_count)
            && cell.outputs().count() == self.outputs
            && hash(&cell.source()) == self.source
    }
}

/// What became of one.
enum Went {
    In,
    Stale,
    Not(String),
}

impl Leaving {
    fn put(&self, document: &mut Document, force: bool) -> Result<Went, EditError> {
        let index = match self.place(document) {
            Ok(index) => index,
            Err(why) => return Ok(Went::Not(why.to_owned())),
        };
        let Some(cell) = document.cells().get(index) else {
            return Ok(Went::Not(GONE.to_owned()));
        };
        if cell.cell_type() != CellType::Code {
            return Ok(Went::Not("the cell is no code any more".to_owned()));
        }
        let is_later = self
            .begun
            .is_some_and(|begun| cell.execution_began().is_some_and(|other| other > begun));
        let is_of_later = self.asked_since
            && self
                .execution
                .execution_count
                .is_some_and(|count| cell.execution_count().is_some_and(|other| other > count));
        if !force && (is_later || is_of_later || self.ran_since) {
            return Ok(Went::Not("the cell was run again since".to_owned()));
        }
        if cell.source() == self.code {
            document.set_execution(index, &self.execution)?;
            return Ok(Went::In);
        }
        let mut execution = self.execution.clone();
        execution.outputs.insert(0, stale_note());
        execution.execution_count = None;
        document.set_execution(index, &execution)?;
        Ok(Went::Stale)
    }

    /// Finds the cell; else says why it is not there.
    fn place(&self, document: &Document) -> Result<usize, &'static str> {
        let says = |cell: &Cell| cell.cell_type() == CellType::Code && cell.source() == self.code;
        let mut cells = document.cells().iter();
        let named = self.cell.as_ref();
        let named = named.and_then(|id| cells.position(|cell| cell.id() == id));
        if !self.by_text {
            return named.ok_or(GONE);
        }
        if let Some(named) = named.filter(|at| document.cells().get(*at).is_some_and(says)) {
            return Ok(named);
        }
        let cells = document.cells().iter().enumerate();
        let mut same = cells.filter(|(_, cell)| says(cell));
        match (same.next(), same.next()) {
            (Some((at, _)), None) => Ok(at),
            (None, _) => Err("no cell of the notebook has this text any more"),
            (Some(_), Some(_)) => Err("more than one cell of the notebook has this text"),
        }
    }
}

const GONE: &str = "the cell is not in the notebook any more";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::Json;
    use crate::notebook::tests::fixtures::cells;

    fn leaving(cell: Option<&str>, code: &str, by_text: bool) -> Leaving {
        let output = r#"{"output_type":"stream","name":"stdout","text":"printed"}"#;
        Leaving {
            at: 0,
            cell: cell.map(str::to_owned),
            code: code.to_owned(),
            execution: CellExecution {
                outputs: vec![Json::parse(output).unwrap()],
                execution_count: Some(3),
                times: None,
            },
            begun: None,
            by_text,
            ran_since: false,
            asked_since: false,
        }
    }

    fn went(document: &mut Document, leaving: &Leaving) -> String {
        match leaving.put(document, false).unwrap() {
            Went::In => "in".to_owned(),
            Went::Stale => "stale".to_owned(),
            Went::Not(why) => why,
        }
    }

    #[test]
    fn a_front_ends_cell_is_found_by_its_text_where_just_one_has_it() {
        let mut document = cells("a:x b:y c:y");
        let address = Some("vscode-notebook-cell:/a.ipynb#W0");
        assert_eq!(went(&mut document, &leaving(address, "x", true)), "in");
        assert_eq!(document.cells()[0].execution_count(), Some(3));
        // JupyterLab names it as the file does.
        assert_eq!(went(&mut document, &leaving(Some("c"), "y", true)), "in");
        let two = went(&mut document, &leaving(address, "y", true));
        assert!(two.contains("more than one"), "{two}");
        // A cell that says something else by now is not the one that ran.
        let none = went(&mut document, &leaving(Some("a"), "z", true));
        assert!(none.contains("no cell"), "{none}");
        assert_eq!(
            went(&mut document, &leaving(Some("a"), "z", false)),
            "stale"
        );
        assert_eq!(document.cells()[0].execution_count(), None);
        assert!(document.cells()[0].has_stale_note());
        assert!(!document.cells()[1].has_stale_note());
    }

    #[test]
    fn a_notebook_that_others_save_each_time_is_not_written_for_ever() {
        let mut writes = 0;
        let error = until_quiet(|| {
            writes += 1;
            Ok(false)
        });
        assert!(error.unwrap_err().contains("another program saved"));
        assert_eq!(writes, ROUNDS);
        let mut left = 3;
        let quiet = until_quiet(|| {
            left -= 1;
            Ok(left == 0)
        });
        assert_eq!((quiet, left), (Ok(()), 0));
        assert!(until_quiet(|| Err("no".to_owned())).is_err());
    }

    #[test]
    fn only_what_an_execution_left_is_updated() {
        let mut folded = crate::notebook::OutputAccumulator::default();
        let content = br#"{"data":{"text/plain":"new"},"transient":{"display_id":"d"}}"#;
        let told = folded.take("display_data", content);
        let crate::notebook::OutputChange::Displayed { shown, .. } = told else {
            panic!("{told:?}");
        };
        let outputs = [
            r#"{"output_type":"stream","name":"stdout","text":"x"}"#,
            r#"{"output_type":"execute_result","execution_count":3,"data":{"text/plain":"old"},"metadata":{}}"#,
        ];
        let execution = CellExecution {
            outputs: outputs.map(|it| Json::parse(it).unwrap()).to_vec(),
            execution_count: Some(3),
            times: Json::parse(r#"{"iopub.status.busy":"2026-01-01T10:00:00Z"}"#).ok(),
        };
        let mut before = cells("a:x b:x");
        before.set_execution(0, &execution).unwrap();
        let update = Update {
            cell: "a".to_owned(),
            source: hash("x"),
            execution_count: 3,
            outputs: 2,
            places: vec![0, 1],
            shown,
        };
        let mut after = before.clone();
        update.put(&mut after).unwrap();
        let texts: Vec<_> = after.cells()[0].read_outputs().map(|it| it.text).collect();
        assert_eq!(texts, ["x", "new"]);
        assert_eq!(after.cells()[0].execution_count(), Some(3));
        assert!(after.cells()[0].execution_began().is_some());
        let untouched = [
            Update {
                execution_count: 4,
                ..update.clone()
            },
            Update {
                outputs: 1,
                ..update.clone()
            },
            Update {
                source: hash("y"),
                ..update.clone()
            },
            Update {
                cell: "b".to_owned(),
                ..update
            },
        ];
        for update in untouched {
            let mut after = before.clone();
            update.put(&mut after).unwrap();
            assert_eq!(after.to_bytes(), before.to_bytes(), "{update:?}");
        }
    }

    #[test]
    fn a_later_execution_stays() {
        let mut document = cells("a:x");
        let at = |time: &str| Some(time.parse().unwrap());
        let mut mine = leaving(Some("a"), "x", false);
        mine.begun = at("2026-01-01T10:00:00Z");
        mine.execution.times =
            Json::parse(r#"{"iopub.status.busy":"2026-01-01T10:00:00Z","iopub.status.idle":"2026-01-01T10:30:00Z"}"#).ok();
        assert_eq!(went(&mut document, &mine), "in");
        // Its own times are none of another's.
        assert_eq!(went(&mut document, &mine), "in");
        let before = Leaving {
            begun: at("2026-01-01T09:59:59Z"),
            ..mine.clone()
        };
        assert_eq!(went(&mut document, &before), "the cell was run again since");
        // A front end that writes no times has written its own.
        let mut theirs = mine.execution.clone();
        (theirs.execution_count, theirs.times) = (Some(4), None);
        document.set_execution(0, &theirs).unwrap();
        let asked = Leaving {
            asked_since: true,
            ..mine.clone()
        };
        assert_eq!(went(&mut document, &asked), "the cell was run again since");
        // After a restart numbers begin anew, and nobody has asked for it since.
        assert_eq!(went(&mut document, &mine), "in");
        assert_eq!(went(&mut document, &asked), "in");
        let known = Leaving {
            ran_since: true,
            ..mine
        };
        assert_eq!(went(&mut document, &known), "the cell was run again since");
    }
}

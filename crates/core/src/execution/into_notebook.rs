//! Writes the results of executions into their notebook.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::activity::labels::cell_with_actor;
use crate::editing::editor_back_off::open_cell_of_vs_code;
use crate::editing::language;
use crate::editing::notebook_file::NotebookFile;
use crate::editing::transaction::{self, SILENT_ROOM, WriteError};
use crate::editing::unsaved::{self, Unsaved};
use crate::notebook::{
    Cell, CellExecution, CellType, Document, DocumentEditError, MimeBundle, Output, Widgets,
    stale_note,
};
use crate::task::causes::with_causes;

/// The result of a cell's execution.
#[derive(Clone, Debug)]
pub(super) struct ExecutionResult {
    /// The index of the cell in its job.
    pub(super) at: usize,
    /// The cell's id, if known.
    pub(super) cell: Option<String>,
    /// The code that ran.
    pub(super) code: String,
    /// The outputs, the execution count and the times.
    pub(super) execution: CellExecution,
    /// When the kernel began to run it.
    pub(super) begun: Option<Timestamp>,
    /// The time in the notebook of the run before this one, if it had one: it may come from another machine's
    /// clock.
    pub(super) earlier_run: Option<Timestamp>,
    /// Whether a front end sent it, so that only the text is certain: the result is written only if
    /// exactly one cell has that text.
    pub(super) by_text: bool,
    /// Whether the cell was run again since, even if the notebook does not show it.
    pub(super) ran_since: bool,
    /// Whether an actor has requested to run the cell again since: then a later execution count in the
    /// notebook comes from that run. VS Code writes no times.
    pub(super) asked_since: bool,
    /// Whether the result was written before, and more outputs have come since: they are written only if the
    /// cell still has the code and the execution count of this run, so that it was not edited, cleared or run again.
    pub(super) is_late: bool,
    /// Whether outputs of this run may be missing, since a process that stored them was killed: where the
    /// notebook has these and more, it stays.
    pub(super) is_partial: bool,
    /// The execution count as far as it is known, also while the cell runs.
    pub(super) counted: Option<u64>,
}

/// The outcome of writing several results.
#[derive(Debug, Default)]
pub(super) struct WriteReport {
    /// The cells whose results were not written, and why.
    pub(super) missed: Vec<(usize, String)>,
    /// The cells whose results were written with a note that the cell's source has changed.
    pub(super) stale: Vec<usize>,
    /// How many bytes were written.
    pub(super) bytes: usize,
    /// How long the writing took.
    pub(super) took: Duration,
}

impl WriteReport {
    /// Returns why a cell's outputs were not written, if they were not.
    pub(super) fn missed(&self, at: usize) -> Option<String> {
        let missed = self.missed.iter().find(|(missed, _)| *missed == at);
        missed.map(|(_, why)| why.clone())
    }
}

/// Why results were not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotPut {
    /// The reason, in words.
    pub(super) why: String,
    /// What holds the results back, if they are written once that has ended.
    pub(super) held_by: Option<Hold>,
}

/// What holds results back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// JupyterLab may have the notebook open in a room.
    Room,
    /// A cell of VS Code waits or runs.
    Cell,
}

/// Beside what results may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// Beside no [`Hold`].
    Nothing,
    /// Beside cells of VS Code: the results were held back for long enough.
    Cells,
    /// Beside anything, also unsaved changes of a front end, and over the results of later runs.
    Anything,
}

impl NotPut {
    fn of<E: std::error::Error>(error: &WriteError<E>) -> Self {
        match error {
            WriteError::InRoom { room, .. } => Self {
                why: room.to_string(),
                held_by: Some(Hold::Room),
            },
            WriteError::SilentRoom { .. } => Self {
                why: SILENT_ROOM.to_owned(),
                held_by: Some(Hold::Room),
            },
            _ => with_causes(error).into(),
        }
    }

    /// Returns why results are held back now, if a cell of VS Code waits or runs. Blocks for a moment if VS Code may be
    /// about to save.
    fn by_cell(notebook: &NotebookFile) -> Option<Self> {
        let cell = cell_with_actor(&open_cell_of_vs_code(notebook)?);
        let why = format!(
            "{cell} has not ended, and VS Code drops cells that wait when the file changes"
        );
        let held_by = Some(Hold::Cell);
        Some(Self { why, held_by })
    }

    /// Returns the reason, and when the outputs are written, for a reader.
    pub(super) fn of_outputs(&self) -> String {
        let Self { why, held_by } = self;
        match held_by {
            None => why.clone(),
            Some(Hold::Room) => format!("{why}; they are written once its tab is closed"),
            Some(Hold::Cell) => format!("{why}; they are written once it has ended"),
        }
    }
}

impl From<String> for NotPut {
    fn from(why: String) -> Self {
        Self { why, held_by: None }
    }
}

/// Writes the results of executions into a notebook. Blocks while other processes write it. Results
/// of a front end's cells are not written while it has unsaved changes of the notebook.
///
/// # Errors
/// The reason why nothing could be written, in words.
pub(super) fn put(
    path: &Path,
    by: &str,
    all: &[ExecutionResult],
    widgets: &Widgets,
    beside: Beside,
) -> Result<WriteReport, NotPut> {
    let notebook = NotebookFile::of(path).map_err(|error| with_causes(&error))?;
    if beside == Beside::Nothing
        && let Some(held) = NotPut::by_cell(&notebook)
    {
        return Err(held);
    }
    let force = beside == Beside::Anything;
    let begun = Instant::now();
    if !force
        && all.iter().any(|it| it.by_text)
        && let unsaved @ Unsaved::Found(_) = unsaved::find(&notebook)
    {
        let why = format!("{} has unsaved changes of this notebook", unsaved.editor());
        return Err(why.into());
    }
    let language = language::of_kernel(&notebook);
    let now = Timestamp::now();
    let ids: HashSet<&str> = all.iter().filter_map(|it| it.cell.as_deref()).collect();
    let mut report = WriteReport::default();
    // A save between the read and the write may change the text of one of these cells.
    repeat_while_others_save(|| {
        let mut round = WriteReport::default();
        let written =
            transaction::write_running(&notebook, by, force, &|id| ids.contains(id), |document| {
                round = WriteReport::default();
                let mut after = document.clone();
                for result in all {
                    match result.put(&mut after, force, now)? {
                        Placement::Written => {}
                        Placement::Stale => round.stale.push(result.at),
                        Placement::Missed(why) => round.missed.push((result.at, why)),
                    }
                }
                if !widgets.is_empty() {
                    after.put_widgets(widgets)?;
                }
                // If no result is written, the notebook is not changed at all.
                let any_went_in = round.missed.len() < all.len();
                if let Some(language) = language.as_ref().filter(|_| any_went_in) {
                    language::add(&mut after, language)?;
                }
                Ok::<_, DocumentEditError>(after)
            });
        let written = written.map_err(|error| NotPut::of(&error))?;
        if written.wrote {
            report.bytes += written.after.chunks().map(<[u8]>::len).sum::<usize>();
        }
        (report.missed, report.stale) = (round.missed, round.stale);
        Ok(written.theirs.is_none())
    })?;
    report.took = begun.elapsed();
    Ok(report)
}

/// How many times to write a notebook that other programs save at the same moment.
const MOST_WRITES: u32 = 20;

/// Repeats a write while other programs save at the same moment; `write` returns true if none did.
///
/// # Errors
/// The reason why nothing could be written, or that another program saved each time.
fn repeat_while_others_save(mut write: impl FnMut() -> Result<bool, NotPut>) -> Result<(), NotPut> {
    for _ in 0..MOST_WRITES {
        if write()? {
            return Ok(());
        }
    }
    let why = format!(
        "another program saved the notebook each of the {MOST_WRITES} times that it was written"
    );
    Err(why.into())
}

/// The new content of a display id, for outputs of an earlier execution.
#[derive(Clone, Debug)]
pub(super) struct Update {
    /// The cell's id.
    pub(super) cell: String,
    /// The hash of the source that ran.
    pub(super) source: String,
    /// The execution count.
    pub(super) execution_count: u64,
    /// How many outputs it had.
    pub(super) outputs: usize,
    /// The indices of the outputs to update.
    pub(super) places: Vec<usize>,
    /// The new content.
    pub(super) shown: MimeBundle,
}

/// Updates outputs of earlier executions. Cells that were edited, cleared or run again since are not
/// changed.
///
/// # Errors
/// The reason why nothing could be written, in words.
pub(super) fn update(path: &Path, by: &str, all: &[Update]) -> Result<WriteReport, NotPut> {
    let notebook = NotebookFile::of(path).map_err(|error| with_causes(&error))?;
    if let Some(held) = NotPut::by_cell(&notebook) {
        return Err(held);
    }
    let begun = Instant::now();
    let mut report = WriteReport::default();
    repeat_while_others_save(|| {
        let written = transaction::write_running(&notebook, by, false, &|_| false, |document| {
            let mut after = document.clone();
            for update in all {
                update.put(&mut after)?;
            }
            Ok::<_, DocumentEditError>(after)
        });
        let written = written.map_err(|error| NotPut::of(&error))?;
        if written.wrote {
            report.bytes += written.after.chunks().map(<[u8]>::len).sum::<usize>();
        }
        Ok(written.theirs.is_none())
    })?;
    report.took = begun.elapsed();
    Ok(report)
}

impl Update {
    fn put(&self, document: &mut Document) -> Result<(), DocumentEditError> {
        let mut cells = document.cells().iter();
        let Some(index) = cells.position(|cell| self.is_of(cell)) else {
            return Ok(());
        };
        document.set_displayed(index, &self.places, &self.shown)?;
        Ok(())
    }

    /// Says whether a cell is the one that ran, with the outputs of that execution.
    fn is_of(&self, cell: &Cell) -> bool {
        cell.id() == self.cell
            && cell.cell_type() == CellType::Code
            && cell.execution_count() == Some(self.execution_count)
            && cell.outputs().count() == self.outputs
            && hash(&cell.source()) == self.source
    }
}

/// Returns a hash of a source, which need not be stored itself.
pub(super) fn hash(source: &str) -> String {
    hex::encode(Sha256::digest(source))
}

/// The outcome of writing one result.
enum Placement {
    Written,
    Stale,
    Missed(String),
}

impl ExecutionResult {
    fn put(
        &self,
        document: &mut Document,
        force: bool,
        now: Timestamp,
    ) -> Result<Placement, DocumentEditError> {
        let index = match self.position(document) {
            Ok(index) => index,
            Err(why) => return Ok(Placement::Missed(why.to_owned())),
        };
        let Some(cell) = document.cells().get(index) else {
            return Ok(Placement::Missed(CELL_GONE.to_owned()));
        };
        if cell.cell_type() != CellType::Code {
            return Ok(Placement::Missed("the cell is no code any more".to_owned()));
        }
        let has_later_start = cell
            .execution_began()
            .is_some_and(|began| self.is_later_run(began, now));
        let has_later_count = self.asked_since
            && self
                .execution
                .execution_count
                .is_some_and(|count| cell.execution_count().is_some_and(|other| other > count));
        if !force && (has_later_start || has_later_count || self.ran_since) {
            return Ok(Placement::Missed("the cell was run again since".to_owned()));
        }
        let is_same =
            cell.execution_count() == self.execution.execution_count && cell.source() == self.code;
        if self.is_late && !is_same {
            return Ok(Placement::Missed(
                "the cell does not have the outputs of this run any more".to_owned(),
            ));
        }
        if !force && self.is_partial && self.is_within(cell) {
            return Ok(Placement::Missed(
                "the notebook has more outputs of this run".to_owned(),
            ));
        }
        if cell.source() == self.code {
            document.set_execution(index, &self.execution)?;
            return Ok(Placement::Written);
        }
        let mut execution = self.execution.clone();
        execution.outputs.insert(0, stale_note());
        execution.execution_count = None;
        document.set_execution(index, &execution)?;
        Ok(Placement::Stale)
    }

    /// Says whether a time in the notebook is that of a later run. The time before this run is not, nor is
    /// a time in the future: another machine's clock may be ahead, or this one's was set back.
    fn is_later_run(&self, began: Timestamp, now: Timestamp) -> bool {
        self.begun.is_some_and(|begun| began > begun)
            && self.earlier_run != Some(began)
            && began <= now
    }

    /// Says whether a cell seems to have the outputs of this run, and more of them.
    fn is_within(&self, cell: &Cell) -> bool {
        let Some(count) = cell.execution_count() else {
            return false;
        };
        let theirs = text_of(cell.read_outputs());
        let own = text_of(self.execution.outputs.iter().map(Output::read));
        self.counted.is_none_or(|counted| counted == count)
            && cell.source() == self.code
            && theirs.len() > own.len()
            && theirs.starts_with(&own)
    }

    /// Returns the position of the cell, or the reason why it is not found.
    fn position(&self, document: &Document) -> Result<usize, &'static str> {
        let has_text =
            |cell: &Cell| cell.cell_type() == CellType::Code && cell.source() == self.code;
        let mut cells = document.cells().iter();
        let named = self.cell.as_ref();
        let named = named.and_then(|id| cells.position(|cell| cell.id() == id));
        if !self.by_text {
            return named.ok_or(CELL_GONE);
        }
        if let Some(named) = named.filter(|at| document.cells().get(*at).is_some_and(has_text)) {
            return Ok(named);
        }
        let cells = document.cells().iter().enumerate();
        let mut with_text = cells.filter(|(_, cell)| has_text(cell));
        match (with_text.next(), with_text.next()) {
            (Some((at, _)), None) => Ok(at),
            (None, _) => Err("no cell of the notebook has this text any more"),
            (Some(_), Some(_)) => Err("more than one cell of the notebook has this text"),
        }
    }
}

/// Returns the text of outputs, without the lines by which `nb` says that some are missing.
fn text_of(outputs: impl Iterator<Item = Output>) -> String {
    let text: String = outputs.map(|output| output.text).collect();
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !line.starts_with("[nb] ")).collect()
}

const CELL_GONE: &str = "the cell is not in the notebook any more";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::Json;
    use crate::notebook::tests::fixtures::cells;

    fn result(cell: Option<&str>, code: &str, by_text: bool) -> ExecutionResult {
        let output = r#"{"output_type":"stream","name":"stdout","text":"printed"}"#;
        ExecutionResult {
            at: 0,
            cell: cell.map(str::to_owned),
            code: code.to_owned(),
            execution: CellExecution {
                outputs: vec![Json::parse(output).unwrap()],
                execution_count: Some(3),
                times: None,
            },
            begun: None,
            earlier_run: None,
            by_text,
            ran_since: false,
            asked_since: false,
            is_late: false,
            is_partial: false,
            counted: Some(3),
        }
    }

    fn placement(document: &mut Document, result: &ExecutionResult) -> String {
        match result.put(document, false, Timestamp::now()).unwrap() {
            Placement::Written => "in".to_owned(),
            Placement::Stale => "stale".to_owned(),
            Placement::Missed(why) => why,
        }
    }

    #[test]
    fn a_front_ends_cell_is_found_by_its_text_where_just_one_has_it() {
        let mut document = cells("a:x b:y c:y");
        let address = Some("vscode-notebook-cell:/a.ipynb#W0");
        assert_eq!(placement(&mut document, &result(address, "x", true)), "in");
        assert_eq!(document.cells()[0].execution_count(), Some(3));
        // JupyterLab sends the id that the file has.
        assert_eq!(
            placement(&mut document, &result(Some("c"), "y", true)),
            "in"
        );
        let two = placement(&mut document, &result(address, "y", true));
        assert!(two.contains("more than one"), "{two}");
        // A cell with another source is not the one that ran.
        let none = placement(&mut document, &result(Some("a"), "z", true));
        assert!(none.contains("no cell"), "{none}");
        assert_eq!(
            placement(&mut document, &result(Some("a"), "z", false)),
            "stale"
        );
        assert_eq!(document.cells()[0].execution_count(), None);
        assert!(document.cells()[0].has_stale_note());
        assert!(!document.cells()[1].has_stale_note());
    }

    #[test]
    fn a_notebook_that_others_save_each_time_is_not_written_for_ever() {
        let mut writes = 0;
        let error = repeat_while_others_save(|| {
            writes += 1;
            Ok(false)
        });
        assert!(error.unwrap_err().why.contains("another program saved"));
        assert_eq!(writes, MOST_WRITES);
        let mut left = 3;
        let quiet = repeat_while_others_save(|| {
            left -= 1;
            Ok(left == 0)
        });
        assert_eq!((quiet, left), (Ok(()), 0));
        assert!(repeat_while_others_save(|| Err("no".to_owned().into())).is_err());
    }

    #[test]
    fn only_what_an_execution_left_is_updated() {
        let mut folded = crate::notebook::OutputAccumulator::default();
        let content = br#"{"data":{"text/plain":"new"},"transient":{"display_id":"d"}}"#;
        let change = folded.take("display_data", content);
        let crate::notebook::OutputChange::Displayed { shown, .. } = change else {
            panic!("{change:?}");
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
    fn late_outputs_bring_nothing_back_that_was_cleared() {
        let mut document = cells("a:x b:y");
        let late = |cell, code, is_late| ExecutionResult {
            is_late,
            ..result(Some(cell), code, false)
        };
        assert_ne!(placement(&mut document, &late("a", "x", true)), "in");
        assert_eq!(placement(&mut document, &late("a", "x", false)), "in");
        assert_eq!(placement(&mut document, &late("a", "x", true)), "in");
        assert_eq!(document.cells()[1].outputs().count(), 0);
        // Neither does code that is not stored, nor code that was edited since, get a note about its text.
        for code in ["", "edited"] {
            assert_ne!(placement(&mut document, &late("a", code, true)), "stale");
            assert!(!document.cells()[0].has_stale_note());
            assert_eq!(document.cells()[0].execution_count(), Some(3));
        }
    }

    #[test]
    fn outputs_of_which_some_are_missing_do_not_replace_all_of_them() {
        let stream = |name: &str, text: &str| {
            let output = format!(r#"{{"output_type":"stream","name":"{name}","text":"{text}"}}"#);
            Json::parse(&output).unwrap()
        };
        let note = || stream("stderr", r"[nb] it was killed: some may be missing\n");
        let saved = |text: &str, count| {
            let mut document = cells("a:x");
            let execution = CellExecution {
                outputs: vec![stream("stdout", text)],
                execution_count: Some(count),
                times: None,
            };
            document.set_execution(0, &execution).unwrap();
            document
        };
        let partial = |text: &str, counted| ExecutionResult {
            is_partial: true,
            counted,
            execution: CellExecution {
                outputs: vec![stream("stdout", text), note()],
                execution_count: None,
                times: None,
            },
            ..result(Some("a"), "x", true)
        };
        let more = "the notebook has more outputs of this run";
        let mut all = saved(r"1\n2\n", 3);
        assert_eq!(placement(&mut all, &partial(r"1\n", Some(3))), more);
        assert_eq!(placement(&mut all, &partial("", None)), more);
        // Those of another run, or fewer, are replaced.
        for (text, count) in [(r"1\n2\n", 2), (r"0\n2\n", 3), (r"1\n", 3)] {
            let mut other = saved(text, count);
            assert_eq!(placement(&mut other, &partial(r"1\n", Some(3))), "in");
        }
        let result = partial(r"1\n", Some(3));
        let forced = result.put(&mut all, true, Timestamp::now()).unwrap();
        assert!(matches!(forced, Placement::Written));
    }

    #[test]
    fn outputs_replace_those_of_an_earlier_run_whose_clock_was_ahead() {
        let at = |time: &str| -> Timestamp { time.parse().unwrap() };
        let saved = || {
            let mut document = cells("a:x");
            let ran = CellExecution {
                outputs: Vec::new(),
                execution_count: Some(9),
                times: Json::parse(r#"{"iopub.status.busy":"2026-01-01T10:03:00Z"}"#).ok(),
            };
            document.set_execution(0, &ran).unwrap();
            document
        };
        let ran = ExecutionResult {
            begun: Some(at("2026-01-01T10:00:00Z")),
            ..result(Some("a"), "x", false)
        };
        let place = |result: &ExecutionResult, now: &str| {
            let placed = result.put(&mut saved(), false, at(now)).unwrap();
            matches!(placed, Placement::Written)
        };
        // In the future: either that machine's clock is ahead, or this one's was set back.
        assert!(place(&ran, "2026-01-01T10:00:05Z"));
        // A long run ends when that time is past. The notebook had it before the run.
        assert!(!place(&ran, "2026-01-01T10:04:00Z"));
        let known = ExecutionResult {
            earlier_run: Some(at("2026-01-01T10:03:00Z")),
            ..ran
        };
        assert!(place(&known, "2026-01-01T10:04:00Z"));
    }

    #[test]
    fn a_later_execution_stays() {
        let mut document = cells("a:x");
        let at = |time: &str| Some(time.parse().unwrap());
        let mut mine = result(Some("a"), "x", false);
        mine.begun = at("2026-01-01T10:00:00Z");
        mine.execution.times =
            Json::parse(r#"{"iopub.status.busy":"2026-01-01T10:00:00Z","iopub.status.idle":"2026-01-01T10:30:00Z"}"#).ok();
        assert_eq!(placement(&mut document, &mine), "in");
        // The execution's own times are not those of a later one.
        assert_eq!(placement(&mut document, &mine), "in");
        let before = ExecutionResult {
            begun: at("2026-01-01T09:59:59Z"),
            ..mine.clone()
        };
        assert_eq!(
            placement(&mut document, &before),
            "the cell was run again since"
        );
        // A front end that writes no times has written a result of its own.
        let mut theirs = mine.execution.clone();
        (theirs.execution_count, theirs.times) = (Some(4), None);
        document.set_execution(0, &theirs).unwrap();
        let asked = ExecutionResult {
            asked_since: true,
            ..mine.clone()
        };
        assert_eq!(
            placement(&mut document, &asked),
            "the cell was run again since"
        );
        // After a restart counts start again, and nobody has asked for the cell since.
        assert_eq!(placement(&mut document, &mine), "in");
        assert_eq!(placement(&mut document, &asked), "in");
        let known = ExecutionResult {
            ran_since: true,
            ..mine
        };
        assert_eq!(
            placement(&mut document, &known),
            "the cell was run again since"
        );
    }
}

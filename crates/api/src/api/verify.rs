//! `verify`: runs notebooks from top to bottom in a fresh kernel, and says whether they give what they show.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::open::{RequestedConfinement, confinement};
use super::problem::Problem;
use super::stale::{CellNames, FIRST_LINE, StaleReason};
use super::time::milliseconds;
use crate::editing::gather::gather;
use crate::editing::notebook_file::NotebookFile;
use crate::execution::exec::{self, CellSelection, MAX_OUTPUT, has_tag, may_raise};
use crate::execution::fresh_run::{FreshCell, FreshRun};
use crate::execution::run::KernelException;
use crate::lifecycle::fresh::{FreshKernel, FreshOptions};
use crate::lifecycle::open::OpenOptions;
use crate::notebook::{
    Cell, CellType, ComparableOutputs, DiffLine, Document, Json, OutputsDifference, Revision,
    changed_lines, first_line,
};
use crate::project::event::CellEnd;
use crate::project::jobs::JobCell;
use crate::stale::notebook_graph::{Analysis, NotebookGraph};
use crate::stale::past::{GoneCode, KernelPast};

/// The tag of cells that are not run.
const SKIP: &str = "nb-skip";

/// The tag of cells whose outputs are not compared.
const ANY_OUTPUT: &str = "nb-any-output";

/// How many lines of a difference are in an answer, and how many characters of each.
const MOST_LINES: usize = 100;
const LONGEST_LINE: usize = 500;

/// How many reasons are given for one cell.
const MOST_REASONS: usize = 3;

/// Which notebooks are verified, and how.
#[derive(Clone, Debug, Default)]
pub struct VerifyRequest {
    /// The notebooks; a folder stands for all notebooks below it. If empty, the notebook that the caller means.
    pub paths: Vec<PathBuf>,
    /// The kernelspec to start; `None` is the one that the notebook's kernel has.
    pub kernel: Option<String>,
    /// The Python to start.
    pub python: Option<PathBuf>,
    /// How the fresh kernel is confined.
    pub confinement: RequestedConfinement,
    /// The time in seconds after which a cell is interrupted.
    pub max_time: Option<f64>,
    /// Whether the notebooks run in their own folders.
    pub in_place: bool,
}

/// The caller's part while notebooks are verified.
pub trait VerifyObserver {
    /// Is called when a cell begins.
    fn begins(&self, progress: &VerifyProgress<'_>);

    /// Waits until the caller wants no more. Cancel safe.
    fn stopped(&self) -> impl Future<Output = ()>;
}

/// The cell that is run.
#[derive(Clone, Copy, Debug)]
pub struct VerifyProgress<'a> {
    /// The notebook.
    pub notebook: &'a str,
    /// The number of the cell among those that run, from 1, and how many there are.
    pub cell: (usize, usize),
    /// The first line of the cell.
    pub line: &'a str,
    /// Whether it is run once more, since outputs differ.
    pub is_again: bool,
}

/// What came of verifying notebooks.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifyAnswer {
    /// The notebooks.
    pub notebooks: Vec<VerifyOutcome>,
    /// Whether the caller ended it before all was verified.
    pub stopped: bool,
    /// What could not be read, and why.
    pub faults: Vec<String>,
}

impl Answer for VerifyAnswer {}

/// What came of one notebook.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum VerifyOutcome {
    /// It was run.
    Done(Box<VerifiedNotebook>),
    /// It could not be run.
    Failed {
        /// Why.
        error: Box<Problem>,
        /// Its name.
        notebook: String,
    },
}

/// A notebook that was run in a fresh kernel.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifiedNotebook {
    /// Its key in its project.
    pub notebook: String,
    /// Its file.
    pub path: PathBuf,
    /// Its revision.
    pub revision: Revision,
    /// The verdict on all of it.
    pub verdict: NotebookVerdict,
    /// The name of the kernel.
    pub kernel: String,
    /// The program of the kernel.
    pub program: Option<String>,
    /// The code cells that are not blank.
    pub cells: Vec<VerifiedCell>,
    /// How many times it was run: twice if outputs differed.
    pub runs: usize,
    /// What the user should know.
    pub notes: Vec<String>,
    /// How long it took.
    pub took_ms: u64,
}

/// The verdict on a notebook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NotebookVerdict {
    /// It gives what it shows, as far as that can be compared.
    Same,
    /// Outputs differ.
    Differs,
    /// A cell failed.
    Failed,
    /// The caller ended it before all cells had run.
    Stopped,
}

/// A cell of a notebook that was run in a fresh kernel.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifiedCell {
    /// Its place in the notebook, from 0.
    pub index: usize,
    /// Its id.
    pub id: String,
    /// How its source begins.
    pub first_line: String,
    /// The verdict.
    pub verdict: CellVerdict,
    /// Why it was not run or cannot be compared, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How its outputs differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<ShownDifference>,
    /// The error that it raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<KernelException>,
    /// Why it may differ or fail, by what is known of its past; the likeliest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<WhyDiffers>,
    /// What the user should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// How long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// As much of its id as other requests need.
    #[serde(skip)]
    pub short_id: String,
}

/// The verdict on a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CellVerdict {
    /// It gives what it shows.
    Same,
    /// It gives other outputs.
    Differs,
    /// It shows outputs, and gives none.
    NothingNow,
    /// It failed.
    Fails,
    /// Its outputs cannot be compared.
    NotComparable,
    /// It is tagged as one that is not run.
    Skipped,
    /// It was not run: a cell above it failed, or the caller ended the run.
    NotRun,
}

impl CellVerdict {
    /// Says whether the cell gives other outputs than the notebook shows.
    pub fn is_difference(self) -> bool {
        matches!(self, Self::Differs | Self::NothingNow)
    }
}

/// How the outputs of a cell differ.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ShownDifference {
    /// The lines that differ: those of the notebook are removed, those of the fresh kernel added.
    pub lines: Vec<DiffLine>,
    /// How many more lines differ.
    pub more: usize,
    /// The forms that differ while their text is the same: `image/png`.
    pub forms: Vec<String>,
}

/// Why a cell may give something else than the notebook shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhyDiffers {
    /// The reason in one word.
    pub why: DifferenceReason,
    /// The id of the cell above to which it applies; none for the cell itself.
    pub cell: Option<String>,
    /// All of it, in words.
    pub text: String,
}

/// Why a cell may give something else, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DifferenceReason {
    /// It reads a name that no cell above gives a value.
    NoCellGives,
    /// It is out of date.
    Stale,
    /// A file that it reads has changed since it ran.
    FileChanged,
    /// The notebook's kernel has run it more than once.
    RunAgain,
    /// The cells of the notebook ran in another order.
    OtherOrder,
}

/// Verifies notebooks, one after the other. One that cannot be run does not stop the others.
///
/// # Errors
/// The notebooks cannot be found.
pub async fn verify(
    caller: &Caller,
    request: VerifyRequest,
    observer: &impl VerifyObserver,
) -> Result<VerifyAnswer, Problem> {
    let mut answer = VerifyAnswer {
        notebooks: Vec::new(),
        stopped: false,
        faults: Vec::new(),
    };
    let mut files = Vec::new();
    if request.paths.is_empty() {
        let file = caller.notebook_file().await?;
        files.push((file.key.clone(), Ok(file)));
    } else {
        let gathered = gather(&request.paths);
        let gathered = gathered.map_err(|error| Problem::failed("find the notebooks", &error))?;
        answer.faults = gathered.faults;
        let paths = gathered.notebooks.into_iter().map(|found| found.path);
        let of = |path: PathBuf| (path.display().to_string(), NotebookFile::of(&path));
        files.extend(paths.map(of));
    }
    if let [(_, Ok(only))] = files.as_slice() {
        caller.set_target_notebook(&only.project, &only.key);
    }
    let is_only = files.len() == 1;
    for (notebook, file) in files {
        let verified = match file {
            Ok(file) => verify_one(caller, &file, &request, observer).await,
            Err(error) => Err(error.into()),
        };
        answer.notebooks.push(match verified {
            Ok(verified) => {
                answer.stopped = verified.verdict == NotebookVerdict::Stopped;
                VerifyOutcome::Done(Box::new(verified))
            }
            // For one notebook alone it is the command's own problem.
            Err(error) if is_only => return Err(error),
            Err(error) => VerifyOutcome::Failed {
                error: Box::new(error),
                notebook,
            },
        });
        if answer.stopped {
            break;
        }
    }
    Ok(answer)
}

async fn verify_one(
    caller: &Caller,
    file: &NotebookFile,
    request: &VerifyRequest,
    observer: &impl VerifyObserver,
) -> Result<VerifiedNotebook, Problem> {
    let began = Instant::now();
    let (read, asked) = (file.clone(), request.clone());
    let (document, confinement) = blocking(caller, move |_| {
        let python = asked.python.as_deref();
        let confinement = confinement(&asked.confinement, python, &read.path)?;
        Ok((read.read()?, confinement))
    })
    .await?;
    let options = FreshOptions {
        kernel: OpenOptions {
            kernel: request.kernel.clone(),
            python: request.python.clone(),
            confinement,
            timeout: caller.kernel_timeout(None)?,
            by: caller.by().to_owned(),
            ..OpenOptions::default()
        },
        in_place: request.in_place,
    };
    let mut run = NotebookRun {
        caller,
        file,
        document: &document,
        options,
        max_time: request
            .max_time
            .and_then(|it| Duration::try_from_secs_f64(it).ok()),
        observer,
        notes: Vec::new(),
        kernel: (String::new(), None),
        is_stopped: false,
    };
    let to_run = cells(&document);
    let fresh = run.perform(&to_run, false).await?;
    let mut verified = run.verdicts(&to_run, &fresh);
    let last = verified
        .iter()
        .rposition(|cell| cell.verdict.is_difference());
    let mut runs = 1;
    if let Some(last) = last.filter(|_| !run.is_stopped) {
        let until = verified.get(last).map_or(0, |cell| cell.index);
        let again: Vec<_> = to_run
            .iter()
            .filter(|it| it.index <= Some(until))
            .cloned()
            .collect();
        let again = run.perform(&again, true).await?;
        runs = 2;
        if !run.is_stopped {
            run.compare_again(&mut verified, &fresh, &again);
        }
    }
    let is_stopped = run.is_stopped;
    let (mut notes, (kernel, program)) = (run.notes, run.kernel);
    notes.dedup();
    let (owned, read) = (document.clone(), file.clone());
    let verified = blocking(caller, move |caller| {
        let mut verified = verified;
        add_reasons(caller, &read, &owned, &mut verified);
        Ok(verified)
    })
    .await?;
    let has = |is: fn(CellVerdict) -> bool| verified.iter().any(|cell| is(cell.verdict));
    Ok(VerifiedNotebook {
        notebook: file.key.clone(),
        path: file.real.clone(),
        revision: document.revision(),
        verdict: match is_stopped {
            true => NotebookVerdict::Stopped,
            false if has(|it| it == CellVerdict::Fails) => NotebookVerdict::Failed,
            false if has(CellVerdict::is_difference) => NotebookVerdict::Differs,
            false => NotebookVerdict::Same,
        },
        kernel,
        program,
        cells: verified,
        runs,
        notes,
        took_ms: milliseconds(began.elapsed()),
    })
}

/// Returns the cells that are run.
fn cells(document: &Document) -> Vec<JobCell> {
    let all = CellSelection {
        skips: true,
        ..CellSelection::default()
    };
    let mut cells = exec::cells(document, &all);
    cells.retain(|it| {
        let cell = it.index.and_then(|index| document.cells().get(index));
        cell.is_some_and(|cell| !has_tag(cell, &[SKIP.to_owned()]))
    });
    cells
}

/// A notebook that is run in fresh kernels.
struct NotebookRun<'a, O> {
    caller: &'a Caller,
    file: &'a NotebookFile,
    document: &'a Document,
    options: FreshOptions,
    max_time: Option<Duration>,
    observer: &'a O,
    notes: Vec<String>,
    /// The name and the program of the kernel.
    kernel: (String, Option<String>),
    /// Whether the caller has ended it.
    is_stopped: bool,
}

impl<O: VerifyObserver> NotebookRun<'_, O> {
    /// Runs the cells in a fresh kernel, and ends it. A caller that wants no more ends the run.
    async fn perform(
        &mut self,
        cells: &[JobCell],
        is_again: bool,
    ) -> Result<Vec<FreshCell>, Problem> {
        let starting = Box::pin(FreshKernel::start(self.file, &self.options));
        let mut kernel = tokio::select! {
            started = starting => started?,
            () = self.observer.stopped() => {
                self.is_stopped = true;
                return Ok(Vec::new());
            }
        };
        self.notes.extend_from_slice(kernel.notes());
        if let Some(spec) = kernel.spec() {
            self.kernel = (spec.display_name.clone(), spec.argv.first().cloned());
        }
        let run = FreshRun::new(cells.to_vec(), self.max_time);
        let begins = |index: usize| {
            let at = cells.iter().position(|cell| cell.index == Some(index));
            let cell = self.document.cells().get(index);
            self.observer.begins(&VerifyProgress {
                notebook: &self.file.key,
                cell: (at.unwrap_or_default() + 1, cells.len()),
                line: &cell
                    .map(|cell| first_line(&cell.source(), FIRST_LINE))
                    .unwrap_or_default(),
                is_again,
            });
        };
        let ran = tokio::select! {
            ran = Box::pin(run.perform(&mut kernel, self.caller.by(), begins)) => Some(ran),
            () = self.observer.stopped() => None,
        };
        let results = run.results(&kernel);
        match ran {
            Some(ran) => {
                kernel.end().await;
                ran?;
            }
            // What runs is not waited for.
            None => self.is_stopped = true,
        }
        Ok(results)
    }

    /// Returns the verdict on each code cell after the first run.
    fn verdicts(&self, to_run: &[JobCell], fresh: &[FreshCell]) -> Vec<VerifiedCell> {
        let short = self.document.short_ids();
        let cells = self.document.cells().iter().enumerate();
        let code = cells.filter(|(_, cell)| {
            cell.cell_type() == CellType::Code && !cell.source().trim().is_empty()
        });
        let verified = code.map(|(index, cell)| {
            let ran = fresh.iter().find(|it| it.index == index);
            let mut verified = VerifiedCell {
                index,
                id: cell.id().to_owned(),
                first_line: first_line(&cell.source(), FIRST_LINE),
                verdict: CellVerdict::NotRun,
                reason: None,
                difference: None,
                error: None,
                why: Vec::new(),
                notes: ran.map(|it| it.notes.clone()).unwrap_or_default(),
                took_ms: ran.map(|it| milliseconds(it.took)),
                short_id: short.get(index).copied().unwrap_or_default().to_owned(),
            };
            match ran {
                Some(ran) => verified.judge(cell, ran),
                None if to_run.iter().all(|it| it.index != Some(index)) => {
                    verified.verdict = CellVerdict::Skipped;
                }
                None => {}
            }
            verified
        });
        verified.collect()
    }

    /// Finds the differences that are also differences between the two fresh runs.
    fn compare_again(
        &self,
        verified: &mut [VerifiedCell],
        fresh: &[FreshCell],
        again: &[FreshCell],
    ) {
        for cell in verified
            .iter_mut()
            .filter(|cell| cell.verdict.is_difference())
        {
            let Some(stored) = self.document.cells().get(cell.index) else {
                continue;
            };
            let of = |ran: &[FreshCell]| ran.iter().find(|it| it.index == cell.index).cloned();
            let (Some(first), Some(second)) = (of(fresh), of(again)) else {
                cell.not_comparable("a second run did not reach it");
                continue;
            };
            let [first, second] = [first, second].map(|it| (it.end, comparable(it.outputs)));
            let is_certain = first.0 == second.0
                && stored_outputs(stored).differs_where_agreed(&first.1, &second.1);
            if !is_certain {
                cell.not_comparable("it gives something else each time");
            }
        }
    }
}

impl VerifiedCell {
    /// Compares what a cell gave with what the notebook shows.
    fn judge(&mut self, cell: &Cell, ran: &FreshCell) {
        let raised = may_raise(cell) && ran.end == CellEnd::Error;
        if ran.end != CellEnd::Ok && !raised {
            self.verdict = CellVerdict::Fails;
            self.error = ran.outputs.iter().rev().find_map(exception);
            return;
        }
        let (stored, fresh) = (stored_outputs(cell), comparable(ran.outputs.clone()));
        self.verdict = CellVerdict::Same;
        if stored == fresh {
            return;
        }
        if has_tag(cell, &[ANY_OUTPUT.to_owned()]) {
            return self.not_comparable("tagged nb-any-output");
        }
        if stored.is_empty() && cell.execution_count().is_none() {
            return self.not_comparable("the notebook has no outputs of it");
        }
        if stored.is_cut() && !fresh.is_cut() {
            return self.not_comparable("the notebook has only a part of its outputs");
        }
        self.verdict = match fresh.is_empty() {
            true => CellVerdict::NothingNow,
            false => CellVerdict::Differs,
        };
        self.difference = Some(ShownDifference::of(stored.difference(&fresh)));
    }

    fn not_comparable(&mut self, reason: &str) {
        self.verdict = CellVerdict::NotComparable;
        self.reason = Some(reason.to_owned());
        self.difference = None;
    }
}

impl ShownDifference {
    fn of(difference: OutputsDifference) -> Self {
        let (lines, forms) = match difference {
            OutputsDifference::Text(before, after) => (changed_lines(&before, &after), Vec::new()),
            OutputsDifference::Forms(forms) => (Vec::new(), forms),
        };
        let shortened = |line: DiffLine| {
            let short = |text: String| text.chars().take(LONGEST_LINE).collect();
            match line {
                DiffLine::Same(text) => DiffLine::Same(short(text)),
                DiffLine::Removed(text) => DiffLine::Removed(short(text)),
                DiffLine::Added(text) => DiffLine::Added(short(text)),
            }
        };
        Self {
            more: lines.len().saturating_sub(MOST_LINES),
            lines: lines.into_iter().take(MOST_LINES).map(shortened).collect(),
            forms,
        }
    }
}

fn stored_outputs(cell: &Cell) -> ComparableOutputs {
    comparable(cell.outputs().collect())
}

fn comparable(outputs: Vec<Json>) -> ComparableOutputs {
    ComparableOutputs::of(outputs, usize::try_from(MAX_OUTPUT).unwrap_or(usize::MAX))
}

/// Returns the exception that an output shows.
fn exception(output: &Json) -> Option<KernelException> {
    output.get("ename")?;
    serde_json::from_str(&output.text()).ok()
}

/// Adds to the cells that differ or fail why that may be. Without an analysis there are no reasons.
fn add_reasons(
    caller: &Caller,
    file: &NotebookFile,
    document: &Document,
    cells: &mut [VerifiedCell],
) {
    let needs_one =
        |cell: &VerifiedCell| cell.verdict.is_difference() || cell.verdict == CellVerdict::Fails;
    if !cells.iter().any(needs_one) {
        return;
    }
    let Ok(graph) = NotebookGraph::of(file, document, Analysis::Whole, &caller.cancel) else {
        return;
    };
    let reasons = Reasons {
        names: CellNames::of(document, &graph),
        past: KernelPast::of(file, document),
    };
    for cell in cells.iter_mut().filter(|cell| needs_one(cell)) {
        cell.why = reasons.of(cell.index);
    }
}

impl WhyDiffers {
    /// Makes a reason that applies to the cell itself.
    fn own(why: DifferenceReason, text: String) -> Self {
        Self {
            why,
            cell: None,
            text,
        }
    }
}

/// What is known of a notebook's cells and their past.
struct Reasons<'a> {
    names: CellNames<'a>,
    past: KernelPast,
}

impl Reasons<'_> {
    /// Returns why the cell at an index of the notebook may differ: its own reasons, else those of the cells on which it
    /// depends, the nearest first.
    fn of(&self, index: usize) -> Vec<WhyDiffers> {
        let mut found = self.certain(index);
        if found.is_empty()
            && let Some(at) = self.names.graph.cell_at(index)
        {
            let above = self.names.graph.graph.upstream(&BTreeSet::from([at]));
            for giver in above.into_iter().rev().filter(|giver| *giver != at) {
                let place = self.names.graph.place(giver).unwrap_or_default();
                found.extend(self.certain(place).into_iter().map(|it| {
                    let short = self.names.short_id(giver);
                    let text = match self.names.stale_at(place).map(|it| it.why) {
                        Some(StaleReason::Edited) if it.why == DifferenceReason::Stale => {
                            format!("ran before {short} above was edited")
                        }
                        _ if it.why == DifferenceReason::Stale => {
                            format!("{short} above: {}", it.text)
                        }
                        _ => format!("{short} above {}", it.text),
                    };
                    WhyDiffers {
                        cell: Some(self.names.id(giver)),
                        text,
                        ..it
                    }
                }));
            }
        }
        if found.is_empty() {
            let stale = self.names.stale_at(index);
            let needs = stale.filter(|it| it.why == StaleReason::NeedsStale);
            found.extend(needs.map(|it| WhyDiffers::own(DifferenceReason::Stale, it.text)));
        }
        if found.is_empty() {
            found.extend(self.counts(index));
        }
        found.truncate(MOST_REASONS);
        found
    }

    /// Returns what is known to make a cell give something else in a fresh kernel.
    fn certain(&self, index: usize) -> Vec<WhyDiffers> {
        let (Some(cell), Some(shown)) = (
            self.names.graph.at(index),
            self.names.document.cells().get(index),
        ) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for name in cell.undefined.keys() {
            let by = match self.past.gone(name) {
                Some(GoneCode::Cell) => "which a deleted cell made",
                Some(GoneCode::Outside) => "which code outside the notebook made",
                None => "which no cell above makes",
            };
            let text = format!("reads {name}, {by}");
            found.push(WhyDiffers::own(DifferenceReason::NoCellGives, text));
        }
        if let Some(path) = self.past.changed_file(shown.id()) {
            let name = path.file_name().unwrap_or_default().display();
            let text = format!("reads the file {name}, which has changed since it ran");
            found.push(WhyDiffers::own(DifferenceReason::FileChanged, text));
        }
        let runs = self.names.graph.runs_of(shown.id());
        let builds_on_itself = cell
            .reads
            .keys()
            .any(|name| cell.writes.contains(name) || cell.changes.contains(name));
        if runs > 1 && (builds_on_itself || !cell.changes.is_empty()) {
            let text = format!("was run {runs} times, and changes what it reads");
            found.push(WhyDiffers::own(DifferenceReason::RunAgain, text));
        }
        if !found.is_empty() {
            return found;
        }
        let stale = self.names.stale_at(index).filter(|it| {
            // Of a cell whose name it reads, that cell's own reason says more.
            let others = [
                StaleReason::NotRun,
                StaleReason::Failed,
                StaleReason::NeedsStale,
            ];
            !others.contains(&it.why)
        });
        found.extend(stale.map(|it| WhyDiffers::own(DifferenceReason::Stale, it.text)));
        found
    }

    /// Returns that the cells ran in another order, as the execution counts show.
    fn counts(&self, index: usize) -> Option<WhyDiffers> {
        let cells = self.names.document.cells();
        let own = cells.get(index)?.execution_count()?;
        let above = cells.iter().enumerate().take(index);
        let later = above.filter_map(|(at, cell)| Some((cell.execution_count()?, at)));
        let (count, at) = later.max().filter(|(count, _)| *count > own)?;
        let short = self.names.short.get(at).copied().unwrap_or_default();
        let text = format!("ran as In[{own}], before In[{count}] of {short} above it");
        Some(WhyDiffers::own(DifferenceReason::OtherOrder, text))
    }
}

//! What came of a job that was followed.

use std::time::Duration;

use serde::Serialize;

use super::collected::Collected;
use super::options::{FollowOptions, OutputsAs};
use super::until::Until;
use crate::api::caller::Caller;
use crate::api::envelope::Answer;
use crate::api::outputs::{self, Cut, OutputText};
use crate::execution::fold::NotebookOutput;
use crate::execution::follow::{Followed, Left};
use crate::notebook::OmittedOutput;
use crate::project::cursor::Cursor;
use crate::project::jobs::{Job, JobCell, JobFolder, JobPrompt, JobState};

/// What came of a job that was followed.
#[derive(Clone, Debug, Serialize)]
pub struct JobAnswer {
    /// The job's id.
    pub job: String,
    /// The notebook's key in its project.
    pub notebook: String,
    /// How far the job is.
    pub state: FollowedState,
    /// What each of its cells said, of what the caller had not seen.
    #[serde(flatten)]
    pub results: JobResults,
    /// The line that was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<UntilAnswer>,
    /// What its code asks.
    pub prompt: Option<JobPrompt>,
    /// Whose cell it waits for.
    pub behind: Option<String>,
    /// What the caller should know besides.
    pub notes: Vec<String>,
    /// Which of the session's kernels runs it, once that is known.
    pub kernel_generation: Option<u64>,
    /// Why following ended.
    #[serde(skip)]
    pub left: Left,
    /// The job's whole record.
    #[serde(skip)]
    pub record: Job,
    /// Where the job's files are.
    #[serde(skip)]
    pub folder: JobFolder,
    /// What the caller had seen before.
    #[serde(skip)]
    pub seen: Cursor,
    /// For how long the job was followed.
    #[serde(skip)]
    pub waited: Duration,
    /// What the caller has seen once it has this answer.
    #[serde(skip)]
    now_seen: Cursor,
}

/// What came of a request that begins a job.
#[derive(Clone, Debug, Serialize)]
#[allow(clippy::large_enum_variant, reason = "there is one of a request")]
#[serde(untagged)]
pub enum RunAnswer {
    /// It was begun, and nobody waits for it.
    Begun(BegunJob),
    /// It was followed.
    Followed(Box<JobAnswer>),
}

impl Answer for RunAnswer {
    fn tells_generation(&self) -> bool {
        matches!(self, Self::Followed(_))
    }
}

/// A job that was begun.
#[derive(Clone, Debug, Serialize)]
pub struct BegunJob {
    /// Its id.
    pub job: String,
    /// Its notebook.
    pub notebook: String,
    /// How far it is.
    pub state: JobState,
    /// Its record.
    #[serde(skip)]
    pub record: Job,
}

impl From<Job> for BegunJob {
    fn from(record: Job) -> Self {
        Self {
            job: record.id.clone(),
            notebook: record.notebook.clone(),
            state: record.state,
            record,
        }
    }
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FollowedState {
    /// It waits for others' cells, or for the kernel.
    Queued,
    /// The kernel runs it.
    Running,
    /// Its code asks something.
    WaitingInput,
    /// It is over.
    Done,
    /// Its recorder was killed: what came after that is not kept.
    Lost,
}

impl FollowedState {
    fn of(followed: &Followed) -> Self {
        match (followed.left, followed.job.state) {
            (Left::Lost, _) => Self::Lost,
            (_, JobState::Queued) => Self::Queued,
            (_, JobState::Running) => Self::Running,
            (_, JobState::WaitingInput) => Self::WaitingInput,
            (_, JobState::Done) => Self::Done,
        }
    }
}

/// The results of a job's cells.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum JobResults {
    /// Of code outside the notebook.
    Code(RunResult),
    /// Of cells of the notebook.
    Cells {
        /// One a cell, in order.
        cells: Vec<CellResult>,
    },
}

/// What one cell of a job said.
#[derive(Clone, Debug, Serialize)]
pub struct CellResult {
    /// The cell's id.
    pub cell: Option<String>,
    /// Its revision when it was asked for.
    pub revision: Option<String>,
    /// How it ran.
    #[serde(flatten)]
    pub result: RunResult,
    /// Why its outputs are not in the notebook, if they are not.
    pub unwritten: Option<String>,
}

/// How one piece of code ran.
#[derive(Clone, Debug, Serialize)]
pub struct RunResult {
    /// How it ended; none while it is not over.
    pub status: Option<String>,
    /// The number that the kernel gave it.
    pub execution_count: Option<u64>,
    /// How long it took, in milliseconds.
    pub took_ms: Option<u64>,
    /// What it said, each output shortened; where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<Vec<NotebookOutput>>,
    /// The same as one text, shortened; where that was asked for and it said anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<OutputText>,
    /// What is in neither, and is kept in the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// What a line that tells of it needs; none where it said nothing.
    #[serde(skip)]
    pub heard: Option<HeardSummary>,
}

/// How much of the outputs was too much to be collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(
    missing_docs,
    reason = "the fields are counts of what they are named for"
)]
pub struct LeftOut {
    pub bytes: u64,
    pub lines: u64,
    pub displays: u64,
}

/// What a cell said, in short.
#[derive(Clone, Debug)]
pub struct HeardSummary {
    /// How many lines it printed.
    pub lines: usize,
    /// The last of them that is not empty.
    pub last_line: String,
    /// The text of the last error that it raised.
    pub raised: Option<String>,
}

/// A line that was waited for.
#[derive(Clone, Debug, Serialize)]
pub struct UntilAnswer {
    /// The regular expression.
    pub regex: String,
    /// The line that matches it, if one came.
    pub matched: Option<String>,
}

/// How a job went, as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobVerdict {
    /// All ran without an error, or the line that was waited for came.
    Well,
    /// Code raised.
    Raised,
    /// It was interrupted, or withdrawn before it ran.
    Interrupted,
    /// There was no kernel, or it died.
    NoKernel,
    /// Another client's failing cell emptied the queue.
    Aborted,
    /// It goes on.
    StillRunning,
    /// It waits for an answer.
    Asks,
    /// How it ended is not known, or the line that was waited for never came.
    Failed,
}

impl Answer for JobAnswer {
    fn tells_generation(&self) -> bool {
        true
    }
}

impl JobAnswer {
    pub(super) fn of(
        followed: Followed,
        collected: Vec<Collected>,
        until: Option<&Until>,
        options: &FollowOptions,
        place: Place,
    ) -> Self {
        let state = FollowedState::of(&followed);
        let Followed { job, left } = followed;
        let texts = match options.outputs {
            OutputsAs::Text => texts(&job, &collected, place.seen, options.limit),
            OutputsAs::Objects | OutputsAs::Events => Vec::new(),
        };
        let mut texts = texts.into_iter();
        let mut collected = collected.into_iter();
        let results: Vec<_> = job
            .cells
            .iter()
            .map(|cell| {
                let heard = collected.next();
                let text = texts.next().flatten();
                let result = RunResult::of(&job, cell, heard.as_ref(), text, options);
                CellResult {
                    cell: cell.cell.clone(),
                    revision: cell.revision.clone(),
                    result,
                    unwritten: cell.unwritten.clone(),
                }
            })
            .collect();
        let results = match <[CellResult; 1]>::try_from(results) {
            Ok([only]) if only.cell.is_none() => JobResults::Code(only.result),
            Ok(only) => JobResults::Cells { cells: only.into() },
            Err(cells) => JobResults::Cells { cells },
        };
        let over = job.cells.iter();
        let over = over.take_while(|cell| cell.status.is_some()).count();
        Self {
            job: job.id.clone(),
            notebook: job.notebook.clone(),
            state,
            results,
            until: until.map(|until| UntilAnswer {
                regex: until.pattern().to_owned(),
                matched: until.matched().map(str::to_owned),
            }),
            prompt: job.prompt.clone(),
            behind: job.behind.clone(),
            notes: job.notes.clone(),
            kernel_generation: job.generation,
            left,
            record: job,
            folder: place.folder,
            seen: place.seen,
            waited: place.waited,
            now_seen: Cursor { at: place.at, over },
        }
    }

    /// Returns how each of the job's cells ran, in order.
    pub fn runs(&self) -> Vec<&RunResult> {
        match &self.results {
            JobResults::Code(result) => vec![result],
            JobResults::Cells { cells } => cells.iter().map(|cell| &cell.result).collect(),
        }
    }

    /// Remembers that the caller has got the answer: a later `wait` begins behind it.
    pub fn delivered(&self, caller: &Caller) {
        // Where it cannot be remembered the same is told again.
        let _ = self.folder.move_cursor(caller.by(), self.now_seen);
    }

    /// Returns how the job went: the first of its cells that went wrong says it, since those behind it
    /// were not run.
    pub fn verdict(&self) -> JobVerdict {
        let is_matched = self.until.as_ref().map(|until| until.matched.is_some());
        match (self.left, is_matched) {
            (_, Some(true)) => return JobVerdict::Well,
            (Left::StillRunning, _) => return JobVerdict::StillRunning,
            (Left::Asks, _) => return JobVerdict::Asks,
            (Left::Lost, _) => return JobVerdict::Failed,
            (Left::Over | Left::Enough, _) => {}
        }
        let statuses = self.record.cells.iter();
        let statuses = statuses.filter_map(|cell| match cell.status.as_deref() {
            Some("error") if cell.may_raise => None,
            status => status,
        });
        let mut verdicts = statuses.map(|status| match status {
            "ok" => JobVerdict::Well,
            "error" => JobVerdict::Raised,
            "interrupted" | "withdrawn" => JobVerdict::Interrupted,
            "kernel_died" | "no_kernel" => JobVerdict::NoKernel,
            "aborted" => JobVerdict::Aborted,
            _ => JobVerdict::Failed,
        });
        match verdicts.find(|verdict| *verdict != JobVerdict::Well) {
            Some(verdict) => verdict,
            None if is_matched == Some(false) => JobVerdict::Failed,
            None => JobVerdict::Well,
        }
    }
}

/// Where a job was followed, and how far.
pub(super) struct Place {
    pub(super) folder: JobFolder,
    pub(super) seen: Cursor,
    pub(super) at: u64,
    pub(super) waited: Duration,
}

impl RunResult {
    fn of(
        job: &Job,
        cell: &JobCell,
        heard: Option<&Collected>,
        text: Option<OutputText>,
        options: &FollowOptions,
    ) -> Self {
        let heard = heard.filter(|heard| heard.is_news);
        let outputs = (options.outputs == OutputsAs::Objects).then(|| {
            let mut outputs = heard.map(|heard| heard.outputs.read()).unwrap_or_default();
            outputs::for_json(&mut outputs, options.limit, &more(job));
            outputs.into_iter().map(NotebookOutput::from).collect()
        });
        let left_out = heard.map(|heard| heard.outputs.left_out());
        let left_out = left_out.filter(|it| *it != OmittedOutput::default());
        Self {
            status: cell.status.clone(),
            execution_count: cell.execution_count,
            took_ms: cell.took_ms,
            outputs,
            text,
            left_out: left_out.map(|it| LeftOut {
                bytes: it.bytes,
                lines: it.lines,
                displays: it.displays,
            }),
            heard: heard.map(|heard| HeardSummary {
                lines: heard.lines,
                last_line: heard.last_line.clone(),
                raised: heard.raised.clone(),
            }),
        }
    }

    /// Says whether a list of several results tells of this one: it said something, or did not end well
    /// since the caller looked last.
    pub fn is_told_at(&self, at: usize, seen: Cursor) -> bool {
        self.heard.is_some() || (went_wrong(self.status.as_deref()) && at >= seen.over)
    }
}

fn went_wrong(status: Option<&str>) -> bool {
    status.is_some_and(|it| it != "ok" && it != "not_run")
}

/// Returns what each cell said as text; a limit is shared by those of which something is told.
fn texts(
    job: &Job,
    collected: &[Collected],
    seen: Cursor,
    limit: Option<usize>,
) -> Vec<Option<OutputText>> {
    let several = job.cells.len() > 1;
    let cells = job.cells.iter().enumerate();
    let told: Vec<_> = cells
        .filter_map(|(at, cell)| {
            let heard = collected.get(at).filter(|heard| heard.is_news);
            let is_bad = several && went_wrong(cell.status.as_deref()) && at >= seen.over;
            (heard.is_some() || is_bad).then_some((at, heard))
        })
        .collect();
    let sizes = told.iter().map(|(_, heard)| match heard {
        Some(heard) => outputs::characters(&heard.outputs.read()),
        None => 0,
    });
    let shares = outputs::shares(&sizes.collect::<Vec<_>>(), limit);
    let mut texts = vec![None; job.cells.len()];
    for ((at, heard), share) in told.into_iter().zip(shares) {
        texts[at] = heard.map(|heard| text(job, heard, share));
    }
    texts
}

/// Returns what a cell said, as text of at most `limit` characters each way.
pub(super) fn text(job: &Job, collected: &Collected, limit: Option<usize>) -> OutputText {
    let cut = Cut {
        limit,
        left_out: collected.outputs.left_out(),
        more: more(job),
    };
    outputs::text(&collected.outputs.read(), &cut)
}

/// Returns what shows all that a job said.
fn more(job: &Job) -> String {
    format!("nb wait {} --all --stream shows all", job.id)
}

//! The result of a job that was followed.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::collected::Collected;
use super::options::{FollowOptions, OutputsAs};
use super::until::Until;
use crate::api::envelope::Answer;
use crate::api::output_fields::{OutputFields, Timing};
use crate::api::output_files::OutputFiles;
use crate::api::outputs::{self, Image, MOST_IMAGES, OutputText, TextOptions, UncutText};
use crate::api::waiting::WaitingRequest;
use crate::editing::notebook_file::NotebookFile;
use crate::execution::fold::{last_line, output, read_all};
use crate::execution::follow::{FollowEnd, Followed};
use crate::execution::run::OutputMessage;
use crate::notebook::OmittedOutput;
use crate::project::cursor::Cursor;
use crate::project::event::CellEnd;
use crate::project::jobs::{Job, JobCell, JobFolder, JobPrompt, JobState};
use crate::project::{ErrorCategory, free_bytes};

/// What came of a job that was followed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobAnswer {
    /// The job's id.
    pub job: String,
    /// The notebook's key in its project.
    pub notebook: String,
    /// How far the job is.
    pub state: FollowedState,
    /// The outputs of each of its cells that the caller had not seen.
    #[serde(flatten)]
    pub results: JobResults,
    /// The line that was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<UntilAnswer>,
    /// What its code asks.
    pub prompt: Option<JobPrompt>,
    /// Whose cell it waits for.
    pub behind: Option<String>,
    /// The job of that cell, if a job runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind_job: Option<BlockingJob>,
    /// The cells of people that wait for the kernel, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<WaitingRequest>,
    /// What the caller should know besides.
    pub notes: Vec<String>,
    /// Which of the session's kernels runs it, once that is known.
    pub kernel_generation: Option<u64>,
    /// Why following ended.
    #[serde(skip)]
    pub left: FollowEnd,
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
}

/// The job of the cell that another job waits for.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BlockingJob {
    /// Its id.
    pub job: String,
    /// Who submitted it.
    pub by: String,
    /// The last line that it printed.
    pub last_line: Option<String>,
    /// The question of its code.
    pub prompt: Option<JobPrompt>,
}

/// How many bytes at the end of a job's events are read for its last line.
const LAST_BYTES: u64 = 64 << 10;

/// Below how many free bytes a disk may be too full for a recorder.
const FULL: u64 = 1 << 20;

impl BlockingJob {
    fn of(folder: &JobFolder, job: &Job) -> Option<Self> {
        let id = job
            .behind_job
            .as_deref()
            .filter(|_| job.state == JobState::Queued)?;
        let folder = folder.other(id)?;
        let job = folder.read().ok()?;
        let messages = folder.last_messages(LAST_BYTES).unwrap_or_default();
        let last = |message| match output(message)? {
            OutputMessage::Stream(stream) => last_line(&stream.text).map(str::to_owned),
            _ => None,
        };
        Some(Self {
            job: job.id,
            by: job.by,
            last_line: messages.iter().rev().find_map(last),
            prompt: job.prompt,
        })
    }
}

/// What came of a request that begins a job.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(clippy::large_enum_variant, reason = "there is one of a request")]
#[serde(untagged)]
pub enum RunAnswer {
    /// It was begun, and is not followed.
    Begun(BegunJob),
    /// It was followed.
    Followed(Box<JobAnswer>),
}

impl Answer for RunAnswer {
    fn has_own_generation(&self) -> bool {
        matches!(self, Self::Followed(_))
    }
}

/// A job that was begun.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
            (FollowEnd::Lost, _) => Self::Lost,
            (_, JobState::Queued) => Self::Queued,
            (_, JobState::Running) => Self::Running,
            (_, JobState::WaitingInput) => Self::WaitingInput,
            (_, JobState::Done) => Self::Done,
        }
    }
}

/// The results of a job's cells.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum JobResults {
    /// Of code outside the notebook.
    Code(Box<RunResult>),
    /// Of cells of the notebook.
    Cells {
        /// One a cell, in order.
        cells: Vec<CellResult>,
    },
}

/// How one cell of a job ran, and its outputs.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunResult {
    /// How it ended; none while it is not over.
    pub status: Option<CellEnd>,
    /// The kind of error that ended it; none if none did.
    pub category: Option<ErrorCategory>,
    /// The number that the kernel gave it.
    pub execution_count: Option<u64>,
    /// When the kernel ran it; none if it is not known to have begun.
    pub timing: Option<Timing>,
    /// Its outputs that the caller had not seen, if they were requested.
    #[serde(flatten)]
    pub outputs: Option<OutputFields>,
    /// The same outputs as one shortened text, if it was requested and there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<OutputText>,
    /// The images that the text cannot show, if they were requested.
    #[serde(skip)]
    pub images: Vec<Image>,
    /// Outputs that neither contains; the job has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<OmittedOutput>,
    /// The outputs in short; none if there are none.
    #[serde(skip)]
    pub summary: Option<OutputSummary>,
}

/// The outputs of a cell, in short.
#[derive(Clone, Debug)]
pub struct OutputSummary {
    /// How many lines it printed.
    pub lines: usize,
    /// The last of them that is not empty.
    pub last_line: String,
    /// The text of the last error that it raised.
    pub raised: Option<String>,
}

/// A line that was waited for.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UntilAnswer {
    /// The regular expression.
    pub regex: String,
    /// The line that matches it, if one came.
    pub matched: Option<String>,
}

/// How a job went, as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobVerdict {
    /// All ran without an error, or the awaited line was printed.
    Succeeded,
    /// Code raised an exception.
    Raised,
    /// The job was interrupted, or withdrawn before it ran.
    Interrupted,
    /// There was no kernel, or it died.
    NoKernel,
    /// Another client's failing cell emptied the queue.
    Aborted,
    /// The notebook was edited since its cells were planned.
    Edited,
    /// The job still runs.
    StillRunning,
    /// The job's code waits for input.
    Asks,
    /// How the job ended is not known, or the awaited line was never printed.
    Failed,
}

impl Answer for JobAnswer {
    fn has_own_generation(&self) -> bool {
        true
    }
}

impl JobAnswer {
    pub(super) fn of(
        followed: Followed,
        collected: &[Collected],
        until: Option<&Until>,
        options: &FollowOptions,
        position: FollowPosition<'_>,
    ) -> Self {
        let state = FollowedState::of(&followed);
        let Followed { job, left } = followed;
        let results = cell_results(&job, collected, options, &position);
        let results = match <[CellResult; 1]>::try_from(results) {
            Ok([only]) if only.cell.is_none() => JobResults::Code(Box::new(only.result)),
            Ok(only) => JobResults::Cells { cells: only.into() },
            Err(cells) => JobResults::Cells { cells },
        };
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
            behind_job: BlockingJob::of(&position.folder, &job),
            waits: position.waits,
            notes: job.notes.clone(),
            kernel_generation: job.generation,
            left,
            record: job,
            folder: position.folder,
            seen: position.seen,
            waited: position.waited,
        }
    }

    /// Returns the results of the job's cells, in order.
    pub fn runs(&self) -> Vec<&RunResult> {
        match &self.results {
            JobResults::Code(result) => vec![result],
            JobResults::Cells { cells } => cells.iter().map(|cell| &cell.result).collect(),
        }
    }

    /// Returns how many bytes are free where the job's files are, if they are few: a recorder ends if it cannot write.
    pub fn almost_full(&self) -> Option<u64> {
        free_bytes(self.folder.path()).filter(|free| *free < FULL)
    }

    /// Returns how the job went. The first cell that went wrong decides, since those behind it were not
    /// run.
    pub fn verdict(&self) -> JobVerdict {
        let is_matched = self.until.as_ref().map(|until| until.matched.is_some());
        match (self.left, is_matched) {
            (_, Some(true)) => return JobVerdict::Succeeded,
            (FollowEnd::StillRunning | FollowEnd::BehindQuestion, _) => {
                return JobVerdict::StillRunning;
            }
            (FollowEnd::Asks, _) => return JobVerdict::Asks,
            (FollowEnd::Lost, _) => return JobVerdict::Failed,
            (FollowEnd::Over | FollowEnd::Enough, _) => {}
        }
        let statuses = self.record.cells.iter();
        let statuses = statuses.filter_map(|cell| match cell.status {
            Some(CellEnd::Error) if cell.may_raise => None,
            status => status,
        });
        let mut verdicts = statuses.map(|status| match status {
            CellEnd::Ok => JobVerdict::Succeeded,
            CellEnd::Error => JobVerdict::Raised,
            CellEnd::Interrupted | CellEnd::Withdrawn => JobVerdict::Interrupted,
            CellEnd::KernelDied | CellEnd::NoKernel => JobVerdict::NoKernel,
            CellEnd::Aborted => JobVerdict::Aborted,
            CellEnd::Edited => JobVerdict::Edited,
            _ => JobVerdict::Failed,
        });
        match verdicts.find(|verdict| *verdict != JobVerdict::Succeeded) {
            Some(verdict) => verdict,
            None if is_matched == Some(false) => JobVerdict::Failed,
            None => JobVerdict::Succeeded,
        }
    }
}

/// A position from which a job was followed.
pub(super) struct FollowPosition<'a> {
    /// The working directory, to which paths of files are relative.
    pub(super) working_dir: &'a Path,
    pub(super) folder: JobFolder,
    pub(super) seen: Cursor,
    pub(super) waited: Duration,
    pub(super) waits: Vec<WaitingRequest>,
}

impl RunResult {
    fn of(
        job: &Job,
        cell: &JobCell,
        collected: Option<&Collected>,
        options: &FollowOptions,
        media: &mut Media<'_>,
    ) -> Self {
        let collected = collected.filter(|collected| collected.has_output);
        let outputs = (options.outputs == OutputsAs::Objects).then(|| {
            let outputs = collected.map(|collected| read_all(&collected.outputs));
            let outputs = outputs.unwrap_or_default();
            let failed = cell.category.is_some();
            let note = |mime: &str, value: &Value| media.note(cell, mime, value);
            OutputFields::of(outputs, failed, options.limit, &show_all_hint(job), note)
        });
        let left_out = collected.map(|collected| collected.outputs.left_out());
        let left_out = left_out.filter(|it| *it != OmittedOutput::default());
        Self {
            status: cell.status,
            category: cell.category,
            execution_count: cell.execution_count,
            timing: Timing::of(cell),
            outputs,
            text: None,
            images: Vec::new(),
            left_out,
            summary: collected.map(|collected| OutputSummary {
                lines: collected.lines,
                last_line: collected.last_line.clone(),
                raised: collected.raised.clone(),
            }),
        }
    }

    /// Says whether a list of several results shows this one: it has outputs, or it went wrong after the
    /// caller's last cursor.
    pub fn is_listed(&self, at: usize, seen: Cursor) -> bool {
        let mut status = self.status.iter();
        let went_wrong = status.any(|it| !matches!(it, CellEnd::Ok | CellEnd::NotRun));
        self.summary.is_some() || (went_wrong && at >= seen.over)
    }
}

/// The files of a job's images and other data that no text shows.
struct Media<'a> {
    job: &'a str,
    /// `None` if the notebook is gone.
    files: Option<OutputFiles<'a>>,
}

impl Media<'_> {
    /// Writes data of a cell of the job to a file, and returns a note that names it.
    fn note(&mut self, cell: &JobCell, mime: &str, value: &Value) -> String {
        let name = cell.cell.as_deref().unwrap_or(self.job);
        match &mut self.files {
            Some(files) => files.note(name, mime, value),
            None => outputs::note(mime, value),
        }
    }
}

/// Returns how each cell of a job ran, with its outputs.
fn cell_results(
    job: &Job,
    collected: &[Collected],
    options: &FollowOptions,
    position: &FollowPosition<'_>,
) -> Vec<CellResult> {
    let file = NotebookFile::of(&job.path).ok();
    let mut media = Media {
        job: &job.id,
        files: file
            .as_ref()
            .map(|file| OutputFiles::of(file, position.working_dir)),
    };
    let cells = job.cells.iter().enumerate();
    let results = cells.map(|(at, cell)| CellResult {
        cell: cell.cell.clone(),
        revision: cell.revision.clone(),
        result: RunResult::of(job, cell, collected.get(at), options, &mut media),
        unwritten: cell.unwritten.clone(),
    });
    let mut results: Vec<_> = results.collect();
    if options.outputs == OutputsAs::Text {
        add_texts(
            job,
            collected,
            &mut results,
            position.seen,
            options,
            &mut media,
        );
    }
    results
}

/// Adds the outputs of each cell as text; the cells that are shown share one limit.
fn add_texts(
    job: &Job,
    collected: &[Collected],
    results: &mut [CellResult],
    seen: Cursor,
    options: &FollowOptions,
    media: &mut Media<'_>,
) {
    let results = results.iter_mut().map(|it| &mut it.result);
    let listed = results.zip(collected).zip(&job.cells).enumerate();
    let listed = listed.filter(|(at, ((result, collected), _))| {
        collected.has_output && result.is_listed(*at, seen)
    });
    let listed: Vec<_> = listed.map(|(_, listed)| listed).collect();
    let more = show_all_hint(job);
    let text_options = TextOptions {
        in_short: options.in_short,
        limit: options.limit,
        more: &more,
    };
    let texts = listed.iter().map(|((_, collected), cell)| {
        let outputs = read_all(&collected.outputs);
        let note = |mime: &str, value: &Value| media.note(cell, mime, value);
        UncutText::of(&outputs, collected.outputs.left_out(), &text_options, note)
    });
    let texts = UncutText::cut(&texts.collect::<Vec<_>>(), options.limit, &more);
    let mut images = if options.images { MOST_IMAGES } else { 0 };
    for (((result, collected), _), text) in listed.into_iter().zip(texts) {
        if images > 0 {
            result.images = outputs::images(&read_all(&collected.outputs));
            result.images.truncate(images);
            images -= result.images.len();
        }
        result.text = Some(text);
    }
}

/// Returns the outputs of a job's cell so far, as text of at most `limit` characters.
pub(super) fn text_so_far(job: &Job, collected: &Collected, limit: Option<usize>) -> OutputText {
    let more = show_all_hint(job);
    let text_options = TextOptions {
        in_short: false,
        limit,
        more: &more,
    };
    let outputs = read_all(&collected.outputs);
    let text = UncutText::of(
        &outputs,
        collected.outputs.left_out(),
        &text_options,
        outputs::note,
    );
    let mut texts = UncutText::cut(&[text], limit, &more);
    texts.pop().unwrap_or_default()
}

/// Returns the command that shows all outputs of a job.
fn show_all_hint(job: &Job) -> String {
    format!("nb wait {} --all --stream shows all", job.id)
}

//! `run`: runs code on a notebook's kernel, outside the notebook.

use serde::Serialize;

use super::caller::Caller;
use super::envelope::Answer;
use super::job::{
    BegunJob, FollowOptions, JobObserver, OutputsAs, RunAnswer, follow_job, job_timeout,
};
use super::output_fields::OutputFields;
use super::outputs::{self, OutputText, TextOptions, UncutText};
use super::problem::{Problem, ProblemKind};
use crate::execution::exec::{self, ExecOptions, MAX_OUTPUT};
use crate::execution::inspect::InspectError;
use crate::execution::peek::{self, PeekError};
use crate::notebook::OmittedOutput;
use crate::project::ErrorCategory;
use crate::project::cursor::Cursor;
use crate::project::jobs::{JobCell, JobFolder};

/// Which code runs, and how.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The code.
    pub code: String,
    /// How many seconds the code may run before it is interrupted; 0 sets no limit.
    pub max_time: Option<f64>,
    /// How the job is followed; with `None` it is only started.
    pub follow: Option<FollowOptions>,
}

/// Runs code on a notebook's kernel, as a job. The job goes on if its caller stops waiting.
///
/// # Errors
/// The job was not started, or it cannot be followed.
pub async fn run(
    caller: &Caller,
    request: RunRequest,
    observer: &impl JobObserver,
) -> Result<RunAnswer, Problem> {
    let options = ExecOptions {
        cells: vec![JobCell::new(None, request.code)],
        max_time: max_time(request.max_time)?,
        // This bounds the recorder's memory; the job's folder has all of the output.
        max_output: Some(MAX_OUTPUT),
        ..ExecOptions::default()
    };
    let target = caller.target_or_last_used().await?;
    let (project, key) = (&target.project, &target.notebook_key);
    let folder = exec::begin(project, key, caller.by(), options).await?;
    follow_if_requested(caller, folder, request.follow, observer).await
}

/// Follows a job that was started, if the caller wants that.
pub(super) async fn follow_if_requested(
    caller: &Caller,
    folder: JobFolder,
    follow: Option<FollowOptions>,
    observer: &impl JobObserver,
) -> Result<RunAnswer, Problem> {
    let Some(options) = follow else {
        return Ok(RunAnswer::Begun(BegunJob::from(folder.read()?)));
    };
    let answer = follow_job(caller, folder, Cursor::default(), options, observer).await?;
    Ok(RunAnswer::Followed(Box::new(answer)))
}

/// Checks a cell's time limit in seconds; 0 sets no limit.
pub(super) fn max_time(seconds: Option<f64>) -> Result<Option<f64>, Problem> {
    match seconds {
        Some(seconds) if !seconds.is_finite() || seconds < 0.0 => {
            let text = format!("--max-time {seconds} is not a number of seconds");
            Err(Problem::new(ProblemKind::Usage, text))
        }
        seconds => Ok(seconds.filter(|seconds| *seconds > 0.0)),
    }
}

/// Which code runs beside a running cell.
#[derive(Clone, Debug)]
pub struct PeekRequest {
    /// The code.
    pub code: String,
    /// How many seconds to wait, 0 is for ever; `None` is the caller's own limit.
    pub timeout: Option<f64>,
    /// How many characters of output the answer has at most; `None` is no limit.
    pub limit: Option<usize>,
    /// The form of the outputs in the answer.
    pub outputs: OutputsAs,
}

/// What came of code that ran beside a cell.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeekAnswer {
    /// The notebook's key in its project.
    pub notebook: String,
    /// How it ended.
    pub status: PeekStatus,
    /// Where it was interrupted: whether it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<bool>,
    /// The kind of error that ended it; none if none did.
    pub category: Option<ErrorCategory>,
    /// Its outputs; where that was asked for.
    #[serde(flatten)]
    pub outputs: Option<OutputFields>,
    /// The same as one text, shortened; where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<OutputText>,
    /// Whether a cell ran meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<bool>,
}

impl Answer for PeekAnswer {}

/// How code ended that ran beside a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PeekStatus {
    /// It ran to its end.
    Ok,
    /// It raised.
    Error,
    /// It was interrupted.
    Interrupted,
}

/// Runs code beside whatever the kernel runs, without history and without a job. It is interrupted when
/// `stop` completes.
///
/// # Errors
/// The kernel cannot run code beside its cell now.
pub async fn peek(
    caller: &Caller,
    request: PeekRequest,
    stop: impl Future<Output = ()>,
) -> Result<PeekAnswer, Problem> {
    let target = caller.target_or_last_used().await?;
    let (project, key, session) = (&target.project, &target.key, &target.session);
    let wait = job_timeout(caller, request.timeout)?;
    let by = caller.by();
    let mut answer = PeekAnswer {
        notebook: target.notebook_key.clone(),
        status: PeekStatus::Ok,
        over: None,
        category: None,
        outputs: None,
        text: None,
        beside: None,
    };
    let peeked = match peek::peek(project, key, session, by, &request.code, wait, stop).await {
        Err(PeekError::Inspect(InspectError::Stopped { over })) => {
            answer.status = PeekStatus::Interrupted;
            answer.over = Some(over);
            answer.outputs = Some(OutputFields::default());
            return Ok(answer);
        }
        peeked => peeked?,
    };
    if peeked.raised() {
        answer.status = PeekStatus::Error;
    }
    answer.category = peeked.category;
    answer.beside = Some(peeked.beside);
    let more = "--limit 0 shows all".to_owned();
    let outputs = peeked.outputs;
    match request.outputs {
        OutputsAs::Objects => {
            let failed = answer.status == PeekStatus::Error;
            let fields = OutputFields::of(outputs, failed, request.limit, &more, outputs::note);
            answer.outputs = Some(fields);
        }
        OutputsAs::Text | OutputsAs::Events => {
            let text_options = TextOptions {
                in_short: !caller.is_person && request.limit.is_some(),
                limit: request.limit,
                more: &more,
            };
            let text = UncutText::of(
                &outputs,
                OmittedOutput::default(),
                &text_options,
                outputs::note,
            );
            answer.text = UncutText::cut(&[text], request.limit, &more).pop();
        }
    }
    Ok(answer)
}

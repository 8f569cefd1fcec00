//! `exec`: runs cells of a notebook in its kernel.

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::edit::EditAnswer;
use super::envelope::Answer;
use super::job::{CellResult, FollowOptions, JobAnswer, JobObserver, JobVerdict, RunAnswer};
use super::open::open_if_closed;
use super::problem::editing::lists_cells;
use super::problem::{Problem, ProblemKind};
use super::restart::{RestartRequest, restart};
use super::run::{follow_if_requested, max_time};
use super::selection::{CellsToRun, Doubts, PlannedJob};
use crate::editing::notebook_file::NotebookFile;
use crate::editing::view;
use crate::execution::exec::{self, CellSelection, ExecError, ExecOptions, MAX_OUTPUT};
use crate::execution::replay::Replay;
use crate::lifecycle::death::fix_command;
use crate::notebook::{CellChange, Document, Revision};

/// How often cells are planned anew for one request.
const MOST_PLANS: usize = 100;

/// Which cells run, and how.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    /// The cells.
    pub cells: CellsToRun,
    /// Whether the kernel is first replaced by a new one; its variables are lost.
    pub restart: bool,
    /// Whether the kernel is replaced even when that ends others' work.
    pub force: bool,
    /// Whether later cells run although one has raised.
    pub allow_errors: bool,
    /// How many seconds a cell may run before it is interrupted; 0 sets no limit.
    pub max_time: Option<f64>,
    /// Whether the outputs go into the notebook.
    pub saves: bool,
    /// About how many bytes of text of each cell go into the notebook; 0 is no limit.
    pub max_output: u64,
    /// Whether the cells are planned anew when an edit of the notebook has ended the job.
    pub replans: bool,
    /// How the job is followed; with `None` it is only started.
    pub follow: Option<FollowOptions>,
}

impl Default for ExecRequest {
    fn default() -> Self {
        Self {
            cells: CellsToRun::default(),
            restart: false,
            force: false,
            allow_errors: false,
            max_time: None,
            saves: true,
            max_output: MAX_OUTPUT,
            replans: false,
            follow: Some(FollowOptions::default()),
        }
    }
}

/// What came of running cells.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[allow(clippy::large_enum_variant, reason = "there is one of a request")]
#[serde(untagged)]
pub enum ExecAnswer {
    /// No cell was to be run.
    Nothing {
        /// The notebook's key in its project.
        notebook: String,
        /// None.
        cells: [CellResult; 0],
        /// What was to be run again.
        #[serde(skip_serializing_if = "Option::is_none")]
        replay: Option<Replay>,
        /// What is not certain, if only stale cells were to be run.
        #[serde(flatten)]
        doubts: Option<Doubts>,
    },
    /// Cells run, or ran.
    Job {
        /// The job.
        #[serde(flatten)]
        job: RunAnswer,
        /// What is run again.
        #[serde(skip_serializing_if = "Option::is_none")]
        replay: Option<Replay>,
        /// The edit before it.
        #[serde(flatten)]
        edited: Option<EditedCells>,
        /// The jobs before it, which edits of the notebook have ended.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        earlier: Vec<JobAnswer>,
        /// What is not certain after it, if only stale cells run.
        #[serde(flatten)]
        doubts: Option<Doubts>,
    },
}

impl Answer for ExecAnswer {
    fn has_own_generation(&self) -> bool {
        match self {
            Self::Nothing { .. } => false,
            Self::Job { job, .. } => job.has_own_generation(),
        }
    }
}

/// An edit whose cells are run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EditedCells {
    /// The id of the edit, for `undo`.
    pub op: Option<String>,
    /// What was done to which cells.
    pub changes: Vec<CellChange>,
    /// The notebook's revision after it.
    pub revision: Revision,
}

/// Runs cells of a notebook in its kernel, in the order of the notebook, as a job. The job goes on if its
/// caller stops waiting.
///
/// # Errors
/// The cells do not exist, the job was not started, or it cannot be followed.
pub async fn exec(
    caller: &Caller,
    request: ExecRequest,
    observer: &impl JobObserver,
) -> Result<ExecAnswer, Problem> {
    let file = caller.notebook_file().await?;
    let mut document = read(caller, &file).await?;
    let selection = &request.cells;
    let mut places = selection.places(&document)?;
    let mut for_generation = None;
    if request.restart {
        let request = RestartRequest {
            timeout: None,
            force: request.force,
        };
        for_generation = Some(restart(caller, request).await?.kernel_generation);
        // A restart takes seconds, in which somebody may edit the notebook. The selected cells run as they
        // are after it.
        let before = std::mem::replace(&mut document, read(caller, &file).await?);
        places = match places.map(|places| moved(&before, &document, &places)) {
            Some(Some(places)) => Some(places),
            _ => selection.places(&document)?,
        };
    }
    if !request.restart && !selection.replay {
        open_if_closed(caller, &file.project, &file.key).await?;
    }
    let replay = match selection.replay {
        true => Some(to_replay(&file, &document).await?),
        false => None,
    };
    if let Some(replay) = replay.as_ref().filter(|replay| replay.generation > 0) {
        observer.on_replay(replay, &document, &file.path);
    }
    let mut earlier = Vec::new();
    loop {
        let PlannedJob {
            cells,
            goal,
            doubts,
        } = match &replay {
            Some(replay) => PlannedJob {
                cells: replay.job(&document),
                ..PlannedJob::default()
            },
            None => {
                let cells = cells_for(caller, &file, &document, selection, places.clone());
                tokio::select! {
                    // A command is ended by Ctrl-C until its observer is polled.
                    biased;
                    cells = cells => cells?,
                    () = observer.interrupted() => {
                        let text = "cancelled: no cell was run";
                        return Err(Problem::new(ProblemKind::StillRunning, text));
                    }
                }
            }
        };
        if cells.is_empty() && earlier.is_empty() {
            return match replay.is_some() || selection.may_be_none() {
                true => Ok(ExecAnswer::Nothing {
                    notebook: file.key,
                    cells: [],
                    replay,
                    doubts,
                }),
                false => {
                    let text = "none of these cells is code: nothing was run";
                    Err(Problem::new(ProblemKind::Usage, text).hint(lists_cells()))
                }
            };
        }
        let options = ExecOptions {
            cells,
            allow_errors: request.allow_errors,
            max_time: max_time(request.max_time)?,
            saves: request.saves,
            max_output: Some(request.max_output).filter(|most| *most > 0),
            plan: selection.is_planned().then(|| document.revision()),
            goal: goal.clone(),
            for_generation,
        };
        let folder = exec::begin(&file.project, &file.key, caller.by(), options).await?;
        let follow = request.follow.clone();
        let job = follow_if_requested(caller, folder, follow, observer).await?;
        match job {
            RunAnswer::Followed(job)
                if request.replans
                    && job.verdict() == JobVerdict::Edited
                    && earlier.len() < MOST_PLANS =>
            {
                let before = std::mem::replace(&mut document, read(caller, &file).await?);
                places = match places.map(|places| moved(&before, &document, &places)) {
                    Some(Some(places)) => Some(places),
                    _ => selection.places(&document)?,
                };
                // The next cells belong to the same request.
                for_generation = job.record.for_generation;
                earlier.push(*job);
            }
            job => {
                let doubts = match &job {
                    RunAnswer::Followed(job)
                        if goal.is_some() && job.verdict() == JobVerdict::Succeeded =>
                    {
                        cells_for(caller, &file, &document, selection, places)
                            .await?
                            .doubts
                    }
                    _ => doubts,
                };
                return Ok(ExecAnswer::Job {
                    job,
                    replay: replay.filter(|_| request.follow.is_some()),
                    edited: None,
                    earlier,
                    doubts,
                });
            }
        }
    }
}

/// Runs the cells that an edit wrote. Returns `None` if none of them is code, or if conflicts kept part of
/// the edit out of the notebook.
///
/// # Errors
/// The job was not started, or it cannot be followed.
pub async fn exec_edited(
    caller: &Caller,
    edit: &EditAnswer,
    follow: FollowOptions,
    observer: &impl JobObserver,
) -> Result<Option<ExecAnswer>, Problem> {
    let cells = edit.document.cells().iter().enumerate();
    let is_written = |id: &str| edit.changes.iter().any(|change| change.cell == id);
    let places = cells.filter(|(_, cell)| is_written(cell.id()));
    let selection = CellSelection {
        places: Some(places.map(|(place, _)| place).collect()),
        ..CellSelection::default()
    };
    let cells = exec::cells(&edit.document, &selection);
    let is_whole = edit.conflicts.is_empty() && !cells.is_empty();
    let Some(target) = caller.target_notebook().filter(|_| is_whole) else {
        return Ok(None);
    };
    let options = ExecOptions {
        cells,
        saves: true,
        max_output: Some(MAX_OUTPUT),
        ..ExecOptions::default()
    };
    let (project, key) = (&target.project, &target.key);
    open_if_closed(caller, project, key).await?;
    let folder = exec::begin(project, key, caller.by(), options).await?;
    let job = follow_if_requested(caller, folder, Some(follow), observer).await?;
    Ok(Some(ExecAnswer::Job {
        job,
        replay: None,
        earlier: Vec::new(),
        doubts: None,
        edited: Some(EditedCells {
            op: edit.op.clone(),
            changes: edit.changes.clone(),
            revision: edit.revision,
        }),
    }))
}

/// Returns the cells to run.
async fn cells_for(
    caller: &Caller,
    file: &NotebookFile,
    document: &Document,
    selection: &CellsToRun,
    places: Option<Vec<usize>>,
) -> Result<PlannedJob, Problem> {
    let (file, document, selection) = (file.clone(), document.clone(), selection.clone());
    blocking(caller, move |caller| {
        selection.job(&file, &document, places, &caller.cancel)
    })
    .await
}

async fn read(caller: &Caller, file: &NotebookFile) -> Result<Document, Problem> {
    let file = file.clone();
    blocking(caller, move |caller| {
        Ok(view::open(&file, caller.by())?.document)
    })
    .await
}

/// Returns what is to be run again; an empty replay if nothing ran before.
async fn to_replay(file: &NotebookFile, document: &Document) -> Result<Replay, Problem> {
    let replay = Replay::of(&file.project, &file.key, document).await;
    let replay = replay.map_err(|error| match error {
        ExecError::NoKernel { .. } => {
            Problem::new(ProblemKind::NoKernel, error.to_string()).hint(fix_command(&file.path))
        }
        error => error.into(),
    })?;
    Ok(replay.unwrap_or_default())
}

/// Returns the indices of cells in a later version of their notebook; `None` if one no longer exists.
fn moved(before: &Document, after: &Document, places: &[usize]) -> Option<Vec<usize>> {
    let place = |place: &usize| {
        let id = before.cells().get(*place)?.id();
        after.cells().iter().position(|cell| cell.id() == id)
    };
    let mut places: Vec<_> = places.iter().map(place).collect::<Option<_>>()?;
    places.sort_unstable();
    Some(places)
}

//! `jobs/`: executions that outlive the command that asked for them, one folder for each.
//!
//! A job's folder holds four things: `job.json` is the request and its progress; it is replaced as a
//! whole, and by the recorder alone once one runs. `events.jsonl` holds the kernel's messages
//! unchanged; the recorder appends to it. `lock` is held by the recorder until it ends, which works
//! across containers and namespaces. `requests/` holds the requests of other processes to the recorder:
//! an interrupt, an answer.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use memchr::{memmem, memrchr};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::beneath;
use super::error_category::ErrorCategory;
use super::event::{CellEnd, ExecutionStart, actor_id, split_actor};
use super::folder::Project;
use super::fresh::fresh_id;
use super::lock::Lock;
use super::moved::{Moves, moved_path};

/// An execution: one piece of code, or cells of a notebook one after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Job {
    /// Its id: eight hexadecimal digits. Commands accept the first three or more of them.
    pub id: String,
    /// The actor who requested it.
    #[serde(deserialize_with = "super::event::name")]
    pub by: String,
    /// The agent's session that requested it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_session: Option<String>,
    /// The notebook's key; see [`Project::key`].
    pub notebook: String,
    /// The notebook's path. A recorder cannot derive it: it knows only the `.nb` folder, which may be
    /// outside the project.
    pub path: PathBuf,
    /// The key of the session whose kernel runs it.
    pub session: String,
    /// Its state.
    pub state: JobState,
    /// When it was requested.
    pub asked_at: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// The generation of the kernel for which it was requested: it runs on no other. None in records of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_generation: Option<u64>,
    /// The kernel's generation, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// The cells or pieces of code, in order.
    pub cells: Vec<JobCell>,
    /// The cell that the job waits for, with its actor, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
    /// When that cell began, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_since: Option<Timestamp>,
    /// The job of that cell, if a job runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_job: Option<String>,
    /// The input prompt of that cell at its front end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_prompt: Option<String>,
    /// The input request of the running code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<JobPrompt>,
    /// How many input requests there were.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub prompts: u64,
    /// Whether to continue with the next cell after one that raises.
    #[serde(default)]
    pub allow_errors: bool,
    /// The seconds after which a cell is interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_time: Option<f64>,
    /// Whether outputs are written into the notebook.
    #[serde(default)]
    pub saves: bool,
    /// Whether its outputs are held back since JupyterLab may have the notebook open in a room, or since a cell of VS Code
    /// waits or runs: they are written once that has ended. Until then the job counts as open, though it is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// About how many bytes of text of each cell are written there; none is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<u64>,
    /// The notebook's revision for which the cells were planned: an edit of its code ends the job. With none an
    /// edit changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The cells that are to be up to date at the end, if further cells may follow those of the job: what each cell
    /// changed decides which is the next one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<JobGoal>,
    /// Further messages for the actor who requested the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The front end whose cells these are, if its proxy has sent them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front_end: Option<JobFrontEnd>,
    /// Fields of another version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The cells that a job brings up to date.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobGoal {
    /// Their ids; none for all cells.
    pub only: Option<Vec<String>>,
}

/// A front end whose outputs its proxy stores, or has handed over to a recorder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobFrontEnd {
    /// Its kind, such as `VS Code`.
    pub name: String,
    /// When its proxy began the hand-over; none if the proxy was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handed_at: Option<Timestamp>,
    /// Whether the proxy has stored all messages up to the first one that the recorder receives itself.
    #[serde(default)]
    pub whole: bool,
    /// Whether the proxy has ended: the same front end may return with another one.
    #[serde(default)]
    pub may_return: bool,
}

impl Job {
    /// Returns a job of a notebook, to be run by the kernel of a session, without cells yet.
    pub fn new(project: &Project, notebook: &str, session: String, actor: &str) -> Self {
        let (by, by_session) = split_actor(actor);
        Self {
            by: by.to_owned(),
            by_session: by_session.map(str::to_owned),
            notebook: notebook.to_owned(),
            path: project.notebook(notebook),
            session,
            asked_at: Timestamp::now(),
            saves: true,
            ..Self::default()
        }
    }

    /// Removes what the record says of the cell that the job waits for.
    pub fn clear_wait(&mut self) {
        self.behind = None;
        self.behind_since = None;
        self.behind_job = None;
        self.behind_prompt = None;
    }

    /// Returns the id of the actor who asked; see [`split_actor`].
    pub fn actor(&self) -> String {
        actor_id(&self.by, self.by_session.as_deref())
    }
}

/// The state of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It waits for other actors' cells, or for the kernel.
    #[default]
    Queued,
    /// The kernel runs it.
    Running,
    /// The code waits for input.
    WaitingInput,
    /// It is over.
    Done,
}

/// One piece of code of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobCell {
    /// The cell's id; none for code outside the notebook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// The cell's index when the job was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// The cell's revision when the job was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The code.
    pub code: String,
    /// Whether it is tagged as code that may raise: the cells after it are run all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_raise: bool,
    /// The variables that are deleted before it runs: no cell above gives them a value, and it mentions them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unbind: Vec<String>,
    /// The id of the execute request, once it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub msg_id: Option<String>,
    /// How it ended; none before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<CellEnd>,
    /// The kind of error that ended it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<ErrorCategory>,
    /// Its execution count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_count: Option<u64>,
    /// When the kernel became busy with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<Timestamp>,
    /// When the kernel sent `execute_input`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_at: Option<Timestamp>,
    /// When the kernel became idle after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_at: Option<Timestamp>,
    /// How long it took, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// Why its outputs are not in the notebook, if they are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwritten: Option<String>,
    /// When the execution began whose outputs the notebook had when the job was requested, by the clock of the
    /// machine that ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_run_at: Option<Timestamp>,
}

impl JobCell {
    /// Returns code to run: a cell's, or with `None` code outside the notebook.
    pub fn new(cell: Option<String>, code: String) -> Self {
        Self {
            cell,
            code,
            ..Self::default()
        }
    }

    /// Returns the code of a request that was sent.
    pub fn sent(start: &ExecutionStart) -> Self {
        Self {
            msg_id: Some(start.msg_id.clone()),
            ..Self::new(start.cell.clone(), start.code.clone().unwrap_or_default())
        }
    }
}

/// An input request of the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobPrompt {
    /// The prompt; may be empty.
    pub prompt: String,
    /// Whether the answer must not be shown.
    pub password: bool,
    /// Its number among the job's input requests, from 1; none in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A request of a command or a proxy to a job's recorder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
pub enum RecorderRequest {
    /// Interrupt the running cell, or leave the queue; the cells after it are not run.
    Interrupt {
        /// The actor who interrupts.
        by: String,
    },
    /// Write the outputs into the notebook now.
    Write,
    /// The answer to an input request.
    Reply {
        /// The text.
        text: String,
        /// The number of the input request that is answered; none for whichever there is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<u64>,
    },
    /// The answer to an input request, which must not be in any file.
    Secret {
        /// The socket from which the recorder reads it.
        socket: PathBuf,
        /// The number of the input request that is answered; none for whichever there is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<u64>,
    },
}

/// A message of the kernel about one of a job's cells, as `events.jsonl` stores it.
#[derive(Debug)]
pub struct JobMessage {
    /// The index of the cell in the job, from 0.
    pub cell: usize,
    /// The message's type.
    pub msg_type: String,
    /// The message's id, if two processes have recorded the messages of this cell.
    pub id: Option<String>,
    /// Its content, as the kernel wrote it.
    pub content: Box<RawValue>,
    /// The offset of the next record in the events.
    pub end: u64,
}

impl JobMessage {
    /// Parses a record that ends at `end` in the events; `None` if it is damaged. The buffer of the
    /// line is reused for the content, which may have half a gigabyte.
    fn read(mut line: Vec<u8>, end: u64) -> Option<Self> {
        // Inside a JSON string these quotes would be escaped.
        let at = memmem::find(&line, CONTENT)?;
        let head = [line.get(..at)?, b"}"].concat();
        let head: Head<'_> = serde_json::from_slice(&head).ok()?;
        let last = memrchr(b'}', &line)?;
        line.truncate(last);
        line.drain(..line.len().min(at + CONTENT.len()));
        // The file has invalid UTF-8 as it came from the kernel; it is decoded as jupyter_client
        // does.
        let content = String::from_utf8(line)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Some(Self {
            cell: head.cell,
            msg_type: head.msg_type.into_owned(),
            id: head.id.map(Cow::into_owned),
            content: RawValue::from_string(content).ok()?,
            end,
        })
    }
}

/// Why a job cannot be found or read.
#[derive(Debug, thiserror::Error)]
pub enum NoJob {
    /// No job has this id.
    #[error("there is no job {0}")]
    Unknown(String),
    /// Several ids begin with the given text.
    #[error("{prefix} is more than one job: {}", candidates.join(", "))]
    Ambiguous {
        /// The given text.
        prefix: String,
        /// Those ids.
        candidates: Vec<String>,
    },
    /// The job's record cannot be read.
    #[error("the record of job {id} cannot be read")]
    Damaged {
        /// The job's id.
        id: String,
        /// The reason.
        source: io::Error,
    },
}

/// The folder of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFolder {
    /// Its last part is the job's id.
    dir: PathBuf,
}

impl Project {
    /// Makes the folder of a new job, and gives the job an id if it has none.
    pub fn make_job(&self, job: &mut Job) -> io::Result<JobFolder> {
        let folder = self.make_job_in(JOBS, job)?;
        self.mark_open(folder.id())?;
        Ok(folder)
    }

    /// Makes the folder of a job in which a proxy stores its front end's outputs. It is not among the
    /// jobs until [`Project::adopt`] moves it there.
    pub fn make_kept_job(&self, job: &mut Job) -> io::Result<JobFolder> {
        self.make_job_in(KEPT, job)
    }

    fn make_job_in(&self, parent: &str, job: &mut Job) -> io::Result<JobFolder> {
        if job.id.is_empty() {
            job.id = fresh_id();
        }
        let name = format!("{parent}/{}", job.id);
        let dir = self.make_folder(&name)?;
        self.make_folder(&format!("{name}/requests"))?;
        let folder = JobFolder { dir };
        folder.write(job).inspect_err(|_| folder.remove())?;
        Ok(folder)
    }

    /// Turns the stored outputs of a front end into a job; fails if another process has done that.
    pub fn adopt(&self, kept: &JobFolder) -> io::Result<JobFolder> {
        let dir = self.make_folder(JOBS)?.join(kept.id());
        self.mark_open(kept.id())?;
        beneath::rename(&kept.dir, &dir)?;
        Ok(JobFolder { dir })
    }

    /// Returns a job's folder in this project, which may have been moved since the folder was made.
    pub fn followed_job(&self, folder: &JobFolder) -> JobFolder {
        let parent = folder.dir.parent().and_then(Path::file_name);
        JobFolder {
            dir: self
                .dir()
                .join(parent.unwrap_or_default())
                .join(folder.id()),
        }
    }

    /// Returns the folders in which proxies store outputs of front ends.
    pub fn kept_jobs(&self) -> Vec<JobFolder> {
        self.job_folders(KEPT)
    }

    /// Returns the jobs without an end: those that run, and those whose recorder was killed. Lists
    /// only the folder of open jobs.
    pub fn open_jobs(&self) -> Vec<JobFolder> {
        let marks = beneath::paths(&self.dir().join(OPEN)).into_iter();
        let jobs = self.dir().join(JOBS);
        let job_folders = marks.filter_map(|mark| Some(jobs.join(mark.file_name()?)));
        job_folders.map(|dir| JobFolder { dir }).collect()
    }

    fn mark_open(&self, id: &str) -> io::Result<()> {
        let mark = self.make_folder(OPEN)?.join(id);
        beneath::write(&mark).map(drop)
    }

    /// Records that a job which has ended is open again, since outputs of it are held back.
    pub fn reopen_job(&self, folder: &JobFolder) {
        let marked = self.mark_open(folder.id());
        let _ =
            marked.inspect_err(|error| tracing::warn!(%error, "a job cannot be marked as open"));
    }

    /// Records that a job has ended.
    pub fn close_job(&self, folder: &JobFolder) {
        let _ = beneath::remove_file(&self.dir().join(OPEN).join(folder.id()));
    }

    /// Returns the folder of the job whose id begins with `prefix`.
    ///
    /// # Errors
    /// No job's id begins so, or several do.
    pub fn job(&self, prefix: &str) -> Result<JobFolder, NoJob> {
        // A recorder passes its job's whole id.
        let is_whole =
            prefix.len() == ID_LENGTH && prefix.bytes().all(|byte| byte.is_ascii_hexdigit());
        let dir = self.dir().join(JOBS).join(prefix);
        if is_whole && beneath::is_file(&dir.join(RECORD)) {
            return Ok(JobFolder { dir });
        }
        let all = self.jobs();
        let matching: Vec<_> = all
            .iter()
            .filter(|folder| prefix.len() >= 3 && folder.id().starts_with(prefix))
            .collect();
        match matching.as_slice() {
            [] => Err(NoJob::Unknown(prefix.to_owned())),
            [folder] => Ok((*folder).clone()),
            _ => Err(NoJob::Ambiguous {
                prefix: prefix.to_owned(),
                candidates: matching.iter().map(|it| it.id().to_owned()).collect(),
            }),
        }
    }

    /// Removes the oldest jobs that have ended, so that all ended jobs together stay within bounds. Reads only the
    /// records of those that have to go.
    pub fn sweep_jobs(&self) {
        let open = self.open_jobs();
        let mut ended = self.jobs_lately();
        ended.retain(|folder| !open.contains(folder));
        let mut bytes = 0;
        for (count, folder) in ended.iter().enumerate() {
            bytes += folder.bytes();
            // The newest is kept however large it is: an actor has just requested it.
            if count > 0
                && (bytes > MOST_BYTES || count >= MOST_JOBS)
                && folder.read().is_ok_and(|job| job.ended_at.is_some())
            {
                let _ = beneath::remove_folder_all(&folder.dir);
            }
        }
    }

    /// Calls [`Project::sweep_jobs`] if this job may have made the jobs too many or too large. A sweep looks at
    /// every job, which takes longer than a small cell.
    pub fn sweep_jobs_after(&self, ended: &JobFolder) {
        let count = beneath::paths(&self.dir().join(JOBS)).len();
        if count.is_multiple_of(SWEEP_JOBS) || ended.bytes() > SWEEP_BYTES {
            self.sweep_jobs();
        }
    }

    /// Returns the folders of all jobs, unordered.
    pub fn jobs(&self) -> Vec<JobFolder> {
        self.job_folders(JOBS)
    }

    /// Returns the folders of all jobs, latest written record first; for ended jobs that is the order
    /// of their ends, newest first.
    pub fn jobs_lately(&self) -> Vec<JobFolder> {
        let written = |folder: JobFolder| {
            let record = beneath::metadata(&folder.dir.join(RECORD)).ok()?;
            Some((record.modified().ok()?, folder))
        };
        let job_folders = beneath::paths(&self.dir().join(JOBS)).into_iter();
        // Includes jobs that have no record yet.
        let job_folders = job_folders.map(|dir| JobFolder { dir });
        let mut dated: Vec<_> = job_folders.filter_map(written).collect();
        dated.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        dated.into_iter().map(|(_, folder)| folder).collect()
    }

    fn job_folders(&self, parent: &str) -> Vec<JobFolder> {
        let mut dirs = beneath::paths(&self.dir().join(parent));
        dirs.retain(|dir| beneath::is_file(&dir.join(RECORD)));
        dirs.into_iter().map(|dir| JobFolder { dir }).collect()
    }
}

/// The folders of the jobs, of the stored outputs of front ends, and of the open jobs' ids.
const JOBS: &str = "jobs";
const KEPT: &str = "front_end_outputs";
const OPEN: &str = "open";

/// The file of a job's folder with its record, a [`Job`].
pub const RECORD: &str = "job.json";

/// The file of a job's folder with the kernel's messages about its cells.
pub const EVENTS: &str = "events.jsonl";

/// The file of a job's folder that is written when the job is over.
pub const OVER: &str = "over";

/// The length of an id.
const ID_LENGTH: usize = 8;

/// How long to wait for the lock. A process that only tests it holds it for less.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// How many bytes of events are read at once, and at most one record more.
pub const READ_BYTES: u64 = 4 << 20;

/// The longest record, in bytes; the largest message of a kernel is about half of it.
const LONGEST_RECORD: u64 = beneath::LARGE;

/// The largest size of all ended jobs together, in bytes.
const MOST_BYTES: u64 = 300_000_000;

/// How many ended jobs are kept.
const MOST_JOBS: usize = 1000;

/// How many new jobs make a sweep due.
const SWEEP_JOBS: usize = 32;

/// A job of more bytes makes a sweep due.
const SWEEP_BYTES: u64 = 1_000_000;

impl JobFolder {
    /// Returns the job's id.
    pub fn id(&self) -> &str {
        let id = self.dir.file_name().and_then(OsStr::to_str);
        id.unwrap_or_default()
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Reads the job's record.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn read(&self) -> Result<Job, NoJob> {
        let read = beneath::read(&self.dir.join(RECORD), beneath::LARGE);
        let read = read.and_then(|text| Ok(serde_json::from_slice::<Job>(&text)?));
        let read = read.map(|job| self.with_present_names(job));
        read.map_err(|source| NoJob::Damaged {
            id: self.id().to_owned(),
            source,
        })
    }

    /// Returns the job with the present name of its notebook.
    fn with_present_names(&self, mut job: Job) -> Job {
        let project = self.dir.parent().and_then(Path::parent);
        let moves = project.map(Moves::read).unwrap_or_default();
        if !moves.is_empty() {
            let present_key = moves.since(&job.notebook, job.asked_at);
            job.path = moved_path(&job.path, &job.notebook, &present_key);
            job.notebook = present_key;
            job.session = moves.since(&job.session, job.asked_at);
        }
        job
    }

    /// Replaces the job's record.
    pub fn write(&self, job: &Job) -> io::Result<()> {
        beneath::write_json(&self.dir.join(RECORD), job)
    }

    /// Takes the lock that a recorder holds until it ends; `None` if one holds it.
    pub fn try_lock(&self) -> io::Result<Option<Lock>> {
        Lock::attempt(&self.dir.join("lock"))
    }

    /// Takes the lock to record the job; `None` if a recorder holds it. Waits a moment, since
    /// [`JobFolder::has_recorder`] holds the lock briefly and must not stop the first recorder from
    /// starting.
    pub fn lock(&self) -> io::Result<Option<Lock>> {
        Lock::within(&self.dir.join("lock"), LOCK_TIMEOUT)
    }

    /// Takes the lock that a proxy holds while it appends to a job's events.
    pub fn lock_feed(&self) -> io::Result<Option<Lock>> {
        Lock::attempt(&self.dir.join("feed"))
    }

    /// Records the first message that the job's recorder receives.
    pub fn mark_ready(&self, msg_id: &str) -> io::Result<()> {
        beneath::replace_unsynced(&self.dir.join("ready"), msg_id.as_bytes())
    }

    /// Wakes the processes that watch the folder, after the record says that the job is over. If this
    /// fails, they notice it a moment later.
    pub fn mark_over(&self) {
        let appended = beneath::append(&self.dir.join(OVER));
        let _ = appended.and_then(|mut file| file.write_all(b"\n"));
    }

    /// Returns the id of the first message that the job's recorder receives, once it receives messages.
    pub fn ready(&self) -> Option<String> {
        beneath::read_text(&self.dir.join("ready"), beneath::SMALL).ok()
    }

    /// Returns when the job's record or its events were last written.
    pub fn last_written_at(&self) -> Option<Timestamp> {
        let files = [RECORD, EVENTS].map(|name| self.dir.join(name));
        let files = files.iter().filter_map(|path| beneath::metadata(path).ok());
        let last = files
            .filter_map(|metadata| metadata.modified().ok())
            .max()?;
        Timestamp::try_from(last).ok()
    }

    /// Returns whether no message of the kernel was stored.
    pub fn is_without_events(&self) -> bool {
        !beneath::is_file(&self.dir.join(EVENTS))
    }

    /// Removes the job's folder.
    pub fn remove(&self) {
        let _ = beneath::remove_folder_all(&self.dir);
    }

    /// Returns whether a recorder of the job runs.
    pub fn has_recorder(&self) -> bool {
        matches!(self.try_lock(), Ok(None))
    }

    fn bytes(&self) -> u64 {
        let entries = beneath::list(&self.dir);
        let files = entries.into_iter().flatten().flatten();
        files
            .filter_map(|entry| Some(entry.metadata().ok()?.len()))
            .sum()
    }

    /// Opens the events for appending. If the last record was cut off, the next one begins a new
    /// line.
    pub fn events(&self) -> io::Result<JobEvents> {
        let mut file = beneath::read_append(&self.dir.join(EVENTS))?;
        let mut last = [b'\n'];
        if file.seek(SeekFrom::End(0))? > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        let torn = last != [b'\n'];
        Ok(JobEvents { file, torn })
    }

    /// Reads messages from an offset in the events on, a limited number of bytes at once. Returns
    /// them with the offset where the next reading begins. A line that is still being written is
    /// left for the next reading.
    pub fn messages(&self, from: u64) -> io::Result<(Vec<JobMessage>, u64)> {
        let mut file = match beneath::open(&self.dir.join(EVENTS)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), from)),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(from))?;
        let mut lines = BufReader::new(file);
        let (mut messages, mut at) = (Vec::new(), from);
        let mut line = Vec::new();
        loop {
            let read = lines
                .by_ref()
                .take(LONGEST_RECORD)
                .read_until(b'\n', &mut line)?;
            if read == 0 || line.last() != Some(&b'\n') {
                return Ok((messages, at));
            }
            at += read as u64;
            messages.extend(JobMessage::read(std::mem::take(&mut line), at));
            if at - from > READ_BYTES {
                return Ok((messages, at));
            }
        }
    }

    /// Returns the messages in about the last so many bytes of the events.
    pub fn last_messages(&self, bytes: u64) -> io::Result<Vec<JobMessage>> {
        let events = self.dir.join(EVENTS);
        let length = beneath::metadata(&events)?.len();
        let mut from = length.saturating_sub(bytes);
        if from > 0 {
            let mut file = beneath::open(&events)?;
            file.seek(SeekFrom::Start(from))?;
            let mut rest = BufReader::new(file).take(bytes);
            from += rest.skip_until(b'\n')? as u64;
        }
        Ok(self.messages(from)?.0)
    }

    /// Returns the folder of another job of the project; `None` if the text is not an id.
    pub fn other(&self, id: &str) -> Option<Self> {
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let dir = self.dir.parent()?.join(id);
        is_id.then_some(Self { dir })
    }

    /// Returns the folder of the requests to the job's recorder.
    pub fn requests_folder(&self) -> PathBuf {
        self.dir.join("requests")
    }

    /// Sends a request to the job's recorder.
    pub fn request(&self, request: &RecorderRequest) -> io::Result<()> {
        // The names sort in the order of the requests.
        let now = Timestamp::now().as_nanosecond();
        let name = format!("{now:024}-{}.json", std::process::id());
        beneath::write_json(&self.requests_folder().join(name), request)
    }

    /// Returns the requests that [`JobFolder::forget`] has not removed, oldest first, each with its
    /// file.
    pub fn requests(&self) -> Vec<(PathBuf, RecorderRequest)> {
        let mut paths = self.request_files();
        paths.sort();
        let read = |path: PathBuf| Some((beneath::read_json(&path, beneath::SMALL)?, path));
        let requests = paths.into_iter().filter_map(read);
        requests.map(|(request, path)| (path, request)).collect()
    }

    /// Removes a request that the recorder has handled: the command that sent it waits for that.
    pub fn forget(&self, request: &Path) {
        let _ = beneath::remove_file(request);
    }

    /// Returns whether there is a request that the recorder has not taken yet.
    pub fn has_requests(&self) -> bool {
        !self.request_files().is_empty()
    }

    fn request_files(&self) -> Vec<PathBuf> {
        let mut paths = beneath::paths(&self.requests_folder());
        paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        paths
    }
}

/// The events of a job, open for appending by its recorder.
#[derive(Debug)]
pub struct JobEvents {
    file: File,
    /// The last record was cut off, since the disk was full.
    torn: bool,
}

/// The largest record, in bytes, that is built in memory and written with one call.
const BUFFERED_BYTES: usize = 64 << 10;

impl JobEvents {
    /// Appends a message of the kernel about a cell; the content is JSON. It has the message's id if another process
    /// may record the same message. A failed append leaves at most a line that readers skip.
    pub fn append(
        &mut self,
        cell: usize,
        msg_type: &str,
        id: Option<&str>,
        content: &[u8],
    ) -> io::Result<()> {
        let mut line = Vec::new();
        if self.torn {
            line.push(b'\n');
        }
        let head = Head {
            cell,
            msg_type: msg_type.into(),
            id: id.map(Cow::from),
        };
        serde_json::to_writer(&mut line, &head)?;
        line.pop();
        line.extend_from_slice(CONTENT);
        let appended = self.append_all(line, content);
        self.torn = appended.is_err();
        appended
    }

    fn append_all(&mut self, mut line: Vec<u8>, content: &[u8]) -> io::Result<()> {
        // A newline is white space in JSON, but ends a record here.
        let is_line_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
        if content.len() > BUFFERED_BYTES && memchr::memchr2(b'\n', b'\r', content).is_none() {
            // The content may have half a gigabyte: it is not copied.
            self.file.write_all(&line)?;
            self.file.write_all(content)?;
            return self.file.write_all(b"}\n");
        }
        line.extend(
            content
                .iter()
                .map(|byte| if is_line_break(byte) { b' ' } else { *byte }),
        );
        line.extend_from_slice(b"}\n");
        self.file.write_all(&line)
    }
}

/// The start of a record.
#[derive(Serialize, Deserialize)]
struct Head<'a> {
    cell: usize,
    msg_type: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<Cow<'a, str>>,
}

/// The bytes between that start and the content.
const CONTENT: &[u8] = b",\"content\":";

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::project) fn job(project: &Project) -> (Job, JobFolder) {
        let mut job = Job::new(project, "a.ipynb", "a.ipynb".to_owned(), "ada");
        let folder = project.make_job(&mut job).unwrap();
        (job, folder)
    }

    #[test]
    fn a_job_is_found_by_the_beginning_of_its_id() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let (one, folder) = job(&project);
        assert_eq!(project.job(&one.id[..4]).unwrap(), folder);
        assert_eq!(folder.read().unwrap(), one);
        for wrong in ["", "zzzz", &one.id[..2]] {
            assert!(matches!(project.job(wrong), Err(NoJob::Unknown(_))));
        }
        assert_eq!(project.jobs().len(), 1);
    }

    #[test]
    fn a_check_of_the_lock_does_not_stop_a_recorder_from_starting() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let (_, folder) = job(&project);
        let lock = folder.try_lock().unwrap().expect("nobody records it");
        let begins = {
            let folder = folder.clone();
            std::thread::spawn(move || folder.lock().unwrap())
        };
        drop(lock);
        let recorder = begins.join().unwrap();
        assert!(recorder.is_some() && folder.has_recorder());
    }

    #[test]
    fn the_oldest_that_are_over_go_first() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let (_, running) = job(&project);
        let over: Vec<_> = (1..=3)
            .map(|second| {
                let (mut job, folder) = job(&project);
                job.ended_at = Timestamp::from_second(second).ok();
                folder.write(&job).unwrap();
                let events = File::create(folder.dir.join("events.jsonl")).unwrap();
                events.set_len(MOST_BYTES / 2 - 10_000).unwrap();
                project.close_job(&folder);
                folder
            })
            .collect();
        // No sweep after a small job, one after a large job.
        let small = job(&project).1;
        project.sweep_jobs_after(&small);
        assert_eq!(project.jobs().len(), 5);
        project.sweep_jobs_after(&over[2]);
        let left = project.jobs();
        let is_left = |folder| left.contains(folder);
        assert!(is_left(&running) && !is_left(&over[0]));
        assert!(is_left(&over[1]) && is_left(&over[2]));
    }

    #[test]
    fn messages_are_read_as_they_are_appended() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let (_, folder) = job(&project);
        assert_eq!(folder.messages(0).unwrap().1, 0);
        let mut events = folder.events().unwrap();
        events
            .append(0, "stream", None, b"{\"text\":\n\"a\\n\"}")
            .unwrap();
        let (messages, at) = folder.messages(0).unwrap();
        assert_eq!(messages[0].content.get(), "{\"text\": \"a\\n\"}");
        events.file.write_all(b"{\"cell\":1,").unwrap();
        assert_eq!(folder.messages(at).unwrap().1, at);
        events
            .file
            .write_all(b"\"msg_type\":\"x\",\"content\":3}\n")
            .unwrap();
        let (messages, _) = folder.messages(at).unwrap();
        assert_eq!((messages[0].cell, &messages[0].msg_type[..]), (1, "x"));
        // Lines that are no records are skipped, and invalid UTF-8 is replaced.
        let place = folder.messages(0).unwrap().1;
        events.file.write_all(b"}\n\n{\"cell\":1}\n").unwrap();
        events
            .append(2, "a\",\"content\":", Some("i\""), b"{\"text\":\"\xff}\"}")
            .unwrap();
        let (messages, end) = folder.messages(place).unwrap();
        let [message] = &messages[..] else {
            panic!("{messages:?}");
        };
        assert_eq!((message.cell, &*message.msg_type), (2, "a\",\"content\":"));
        assert_eq!(message.id.as_deref(), Some("i\""));
        assert_eq!(message.content.get(), "{\"text\":\"\u{fffd}}\"}");
        assert_eq!(message.end, end);
    }

    #[test]
    fn a_record_that_was_cut_off_costs_none_that_another_process_adds() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let (_, folder) = job(&project);
        let mut killed = folder.events().unwrap();
        killed.append(0, "stream", None, b"1").unwrap();
        killed.file.write_all(b"{\"cell\":0,\"msg_t").unwrap();
        drop(killed);
        folder
            .events()
            .unwrap()
            .append(0, "stream", None, b"2")
            .unwrap();
        let messages = folder.messages(0).unwrap().0;
        let contents = messages.iter().map(|it| it.content.get());
        assert_eq!(contents.collect::<Vec<_>>(), ["1", "2"]);
    }

    #[test]
    fn requests_are_taken_once_in_their_order() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let (_, folder) = job(&project);
        let requests = ["1", "2", "3"].map(|text| RecorderRequest::Reply {
            prompt: None,
            text: text.to_owned(),
        });
        requests
            .iter()
            .for_each(|request| folder.request(request).unwrap());
        assert!(folder.has_requests());
        let taken = folder.requests().into_iter().map(|(path, request)| {
            folder.forget(&path);
            request
        });
        assert_eq!(taken.collect::<Vec<_>>(), requests);
        assert!(!folder.has_requests());
        let held = folder.try_lock().unwrap();
        assert!(held.is_some() && folder.has_recorder());
        drop(held);
        // A child process that another test forks holds the lock too, until its exec.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while folder.has_recorder() {
            assert!(std::time::Instant::now() < end, "it is never free");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

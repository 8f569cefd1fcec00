//! The cells of one client, their outputs, and the folder that these are written into.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Timestamp;

use crate::project::jobs::{FrontEnd, Job, JobCell, JobFolder, JobState};
use crate::project::questions::Question;
use crate::project::{Lock, Project};
use crate::proxy::target::Target;
use crate::route::{ClientId, Execution};

/// How long a cell runs before its outputs go into a file.
const LONG: Duration = Duration::from_secs(2);

/// How often they are written.
const EVERY: Duration = Duration::from_secs(1);

/// How many bytes wait in memory at most.
const WAITING: usize = 256 << 10;

/// The same where they cannot be written. Above that they are dropped.
const UNWRITTEN: usize = 32 << 20;

/// The cells of one client from the first to the last that it sent while one was under way.
pub(super) struct Series {
    pub(super) number: u64,
    pub(super) client: Option<ClientId>,
    /// The client's, in its messages.
    pub(super) session: String,
    /// The session whose kernel it is, and which of its kernels.
    pub(super) owner: String,
    pub(super) generation: u64,
    begun: Instant,
    cells: Vec<SeriesCell>,
    /// What the kernel asks, and whom.
    pub(super) question: Option<(ClientId, Question)>,
    pub(super) stage: Stage,
    pub(super) folder: Folder,
    /// What the folder says of it.
    pub(super) state: JobState,
    /// Messages that are not in the folder yet, and their bytes.
    waiting: Vec<Line>,
    pub(super) bytes: usize,
    /// Something changed that is not in the folder.
    pub(super) changed: bool,
    /// It is written as soon as that is possible, although it has ended.
    pub(super) urgent: bool,
    /// When it was written last, or that was tried.
    written_at: Option<Instant>,
    /// The last write failed.
    failed: bool,
    /// Some messages were dropped.
    lost: bool,
}

/// How far a series has come.
#[derive(Debug)]
pub(super) enum Stage {
    /// A cell of it runs or waits for the kernel.
    Runs,
    /// All have ended, and it is not known whether a subscriber has read that.
    Ended,
    /// All have ended, and the client that asked has gone without the outputs.
    Unseen,
    /// A recorder takes over.
    HandedOff {
        /// It was [`Stage::Unseen`].
        has_ended: bool,
        /// The ids of the messages that came since.
        received: HashSet<String>,
    },
}

impl Stage {
    pub(super) fn is_running(&self) -> bool {
        matches!(self, Self::Runs)
    }

    /// Returns whether all cells had ended when the series was handed off.
    pub(super) fn has_ended(&self) -> bool {
        !matches!(
            self,
            Self::Runs
                | Self::HandedOff {
                    has_ended: false,
                    ..
                }
        )
    }

    /// Returns whether a message came since the series was handed off.
    pub(super) fn has_received(&self, msg_id: &str) -> bool {
        matches!(self, Self::HandedOff { received, .. } if received.contains(msg_id))
    }
}

/// The folder of a series.
pub(super) enum Folder {
    None,
    Made(Box<Stored>),
    /// Another thread writes it.
    Busy,
}

impl Folder {
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Busy)
    }

    /// Takes the folder out for another thread.
    pub(super) fn take(&mut self) -> Option<Box<Stored>> {
        std::mem::replace(self, Self::Busy).into_stored()
    }

    pub(super) fn into_stored(self) -> Option<Box<Stored>> {
        match self {
            Self::Made(stored) => Some(stored),
            Self::None | Self::Busy => None,
        }
    }
}

/// A cell of a series.
struct SeriesCell {
    cell: JobCell,
    raised: bool,
    idle: bool,
    /// The reply's `status`.
    done: Option<String>,
}

/// A message that the kernel published for a cell.
pub(super) struct Line {
    pub(super) cell: usize,
    pub(super) msg_type: String,
    pub(super) id: Option<String>,
    pub(super) content: Bytes,
}

/// A folder on disk, with its job.
pub(super) struct Stored {
    pub(super) folder: JobFolder,
    pub(super) job: Job,
    /// Held until a recorder takes the job over. No other file is open between two writes: clients may
    /// have many cells under way.
    lock: Option<Lock>,
    /// Held while this proxy adds to the events of a job that a recorder has taken over.
    feed: Option<Lock>,
}

impl Series {
    pub(super) fn new(number: u64, session: &str, (owner, generation): (&str, u64)) -> Self {
        Self {
            number,
            client: None,
            session: session.to_owned(),
            owner: owner.to_owned(),
            generation,
            begun: Instant::now(),
            cells: Vec::new(),
            waiting: Vec::new(),
            question: None,
            bytes: 0,
            changed: false,
            urgent: false,
            written_at: None,
            failed: false,
            lost: false,
            state: JobState::Running,
            folder: Folder::None,
            stage: Stage::Runs,
        }
    }

    /// Takes a cell that is sent to the kernel.
    pub(super) fn begin(&mut self, execution: &Execution) {
        let code = execution.code.clone().unwrap_or_default();
        let mut cell = JobCell::new(execution.cell.clone(), code);
        cell.msg_id = Some(execution.msg_id.clone());
        self.client.clone_from(&execution.client);
        self.cells.push(SeriesCell {
            cell,
            raised: false,
            idle: false,
            done: None,
        });
        self.changed = true;
    }

    fn find(&mut self, msg_id: &str) -> Option<(usize, &mut SeriesCell)> {
        let mut cells = self.cells.iter_mut().enumerate();
        cells.find(|(_, it)| it.cell.msg_id.as_deref() == Some(msg_id))
    }

    /// Returns a cell and its place.
    pub(super) fn cell(&mut self, msg_id: &str) -> Option<(usize, &mut JobCell)> {
        self.find(msg_id).map(|(at, it)| (at, &mut it.cell))
    }

    pub(super) fn msg_ids(&self) -> Vec<String> {
        let ids = self.cells.iter().map(|it| it.cell.msg_id.clone());
        ids.flatten().collect()
    }

    /// Takes a cell's `idle`.
    pub(super) fn set_idle(&mut self, msg_id: &str, at: Timestamp) {
        if let Some((_, it)) = self.find(msg_id) {
            it.idle = true;
            it.cell.idle_at = Some(at);
            self.changed = true;
        }
    }

    /// Takes a cell's reply.
    pub(super) fn set_done(&mut self, msg_id: &str, status: &str) {
        if let Some((_, it)) = self.find(msg_id) {
            it.done = Some(status.to_owned());
            self.changed = true;
        }
    }

    /// Returns whether all cells have their `idle` and their reply.
    pub(super) fn all_cells_ended(&self) -> bool {
        self.cells.iter().all(|it| it.idle && it.done.is_some())
    }

    /// Returns whether a cell has no `idle`.
    pub(super) fn any_cell_runs(&self) -> bool {
        self.cells.iter().any(|it| !it.idle)
    }

    /// Takes the end of all cells; those without an `idle` have died with the kernel.
    pub(super) fn end(&mut self) {
        for it in &mut self.cells {
            if !std::mem::replace(&mut it.idle, true) {
                it.done.get_or_insert_with(|| "kernel_died".to_owned());
            }
        }
        self.stage = Stage::Ended;
        self.copy_lines();
    }

    /// Has the end written soon: should this process be killed then, no recorder has to go on with it.
    pub(super) fn write_end(&mut self) {
        self.state = JobState::Done;
        self.urgent = true;
    }

    /// Takes whether the recorder has missed no message.
    pub(super) fn set_whole(&mut self, is_whole: bool) {
        let whole = is_whole && !self.lost;
        if let Folder::Made(stored) = &mut self.folder
            && let Some(front_end) = &mut stored.job.front_end
        {
            front_end.whole = whole;
        }
    }

    /// Adds an output of a cell.
    pub(super) fn add(&mut self, line: Line) {
        if let Some(cell) = self.cells.get_mut(line.cell) {
            cell.raised |= line.msg_type == "error";
        }
        if self.folder.is_busy() && self.lost {
            // The disk does not answer.
            return;
        }
        self.bytes += line.content.len();
        self.waiting.push(line);
    }

    /// Drops what waits, where another thread is not done with what it writes.
    pub(super) fn give_up(&mut self) {
        if self.folder.is_busy() {
            self.drop_lines();
        }
    }

    fn drop_lines(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
        self.lost = true;
    }

    /// Copies what waits in memory: slices would keep the whole buffers that they came in.
    fn copy_lines(&mut self) {
        for line in &mut self.waiting {
            line.content = Bytes::copy_from_slice(&line.content);
        }
    }

    /// Returns whether it has a folder, or is about to get one.
    pub(super) fn has_folder(&self) -> bool {
        !matches!(self.folder, Folder::None) || self.urgent
    }

    /// Returns when it is to be written.
    pub(super) fn due(&self) -> Option<Instant> {
        let is_due = match self.stage {
            _ if self.folder.is_busy() => false,
            Stage::Runs => self.changed,
            Stage::Ended => self.urgent,
            // The hand-off writes it.
            Stage::Unseen | Stage::HandedOff { .. } => false,
        };
        let at_once = !self.failed && (self.urgent || self.bytes > WAITING);
        let due = match self.written_at {
            _ if at_once => self.begun,
            Some(written_at) => written_at + EVERY,
            None => self.begun + LONG,
        };
        is_due.then_some(due)
    }

    /// Begins to write what is not in the folder yet; the folder is made where there is none.
    pub(super) fn begin_write(&mut self, target: &Target, by: &str, front_end: &str) -> Write {
        self.changed = false;
        self.urgent = false;
        let into = match self.folder.take() {
            Some(stored) => Destination::Made(stored),
            None => Destination::New(
                target.project.clone(),
                Box::new(self.job(target, by, front_end)),
            ),
        };
        Write {
            into,
            state: self.state,
            cells: self.cells.iter().map(SeriesCell::job_cell).collect(),
            lines: std::mem::take(&mut self.waiting),
        }
    }

    /// Takes what came of a write; returns why it failed.
    pub(super) fn end_write(&mut self, written: Written) -> io::Result<()> {
        self.written_at = Some(Instant::now());
        self.failed = written.done.is_err();
        self.folder = written.stored.map_or(Folder::None, Folder::Made);
        let mut lines = written.lines;
        lines.append(&mut self.waiting);
        self.waiting = lines;
        self.bytes = self.waiting.iter().map(|line| line.content.len()).sum();
        if self.failed {
            self.changed = true;
            self.urgent = matches!(self.stage, Stage::Ended);
            if self.bytes > UNWRITTEN {
                self.drop_lines();
            }
        }
        written.done
    }

    /// Takes that a write has panicked, and the folder with it.
    pub(super) fn lose_folder(&mut self) {
        self.folder = Folder::None;
        self.lost = true;
    }

    fn job(&self, target: &Target, by: &str, front_end: &str) -> Job {
        Job {
            state: JobState::Running,
            generation: Some(self.generation),
            max_output: Some(crate::execution::exec::MAX_OUTPUT),
            front_end: Some(FrontEnd {
                name: front_end.to_owned(),
                handed_at: None,
                whole: false,
                may_return: false,
            }),
            ..Job::new(&target.project, &target.key, self.owner.clone(), by)
        }
    }
}

impl SeriesCell {
    /// Returns the cell as the job has it. One that is idle has ended, although its reply may be on
    /// the way.
    fn job_cell(&self) -> JobCell {
        let mut cell = self.cell.clone();
        if self.idle {
            let word = if self.raised { "error" } else { "ok" };
            let done = self.done.clone();
            cell.status = Some(done.unwrap_or_else(|| word.to_owned()));
            if let (Some(begun), Some(idle)) = (cell.begun_at, cell.idle_at) {
                cell.took_ms = u64::try_from(idle.duration_since(begun).as_millis()).ok();
            }
        }
        cell
    }
}

impl Stored {
    fn make(project: &Project, mut job: Job) -> io::Result<Self> {
        let folder = project.make_kept_job(&mut job)?;
        Ok(Self {
            lock: folder.lock()?,
            feed: None,
            folder,
            job,
        })
    }

    fn add(&mut self, state: JobState, cells: Vec<JobCell>, lines: &[Line]) -> io::Result<()> {
        if !lines.is_empty() {
            let mut events = self.folder.events()?;
            for line in lines {
                let id = line.id.as_deref();
                events.append_said(line.cell, &line.msg_type, id, &line.content)?;
            }
        }
        self.job.state = state;
        self.job.cells = cells;
        self.folder.write(&self.job)
    }

    /// Makes a job of it that a recorder takes over.
    pub(super) fn adopt(&mut self, project: &Project) -> io::Result<()> {
        self.folder.write(&self.job)?;
        self.feed = self.folder.lock_feed()?;
        self.folder = project.adopt(&self.folder)?;
        self.lock = None;
        Ok(())
    }
}

/// What is to be written of a series.
pub(super) struct Write {
    into: Destination,
    state: JobState,
    cells: Vec<JobCell>,
    lines: Vec<Line>,
}

/// The folder that a series is written into.
enum Destination {
    Made(Box<Stored>),
    /// It is made in a project, with this job.
    New(Project, Box<Job>),
}

/// What came of that.
pub(super) struct Written {
    pub(super) stored: Option<Box<Stored>>,
    /// What is not written.
    lines: Vec<Line>,
    done: io::Result<()>,
}

impl Write {
    /// Writes it.
    pub(super) fn run(self) -> Written {
        let Self {
            into,
            state,
            cells,
            mut lines,
        } = self;
        let made = match into {
            Destination::Made(stored) => Ok(stored),
            Destination::New(project, job) => Stored::make(&project, *job).map(Box::new),
        };
        let (stored, done) = match made {
            Ok(mut stored) => {
                let done = stored.add(state, cells, &lines);
                (Some(stored), done)
            }
            Err(error) => (None, Err(error)),
        };
        if done.is_ok() {
            lines.clear();
        }
        Written {
            stored,
            lines,
            done,
        }
    }
}

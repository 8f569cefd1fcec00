//! Series: the cells of one client, their outputs, and the folder into which these are written.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Timestamp;

use crate::project::event::CellEnd;
use crate::project::jobs::{Job, JobCell, JobFolder, JobFrontEnd, JobState};
use crate::project::questions::Question;
use crate::project::{Lock, Project};
use crate::proxy::target::Target;
use crate::route::{ClientId, ExecutionProgress};

/// How long a cell runs before its outputs are written into a file.
const FIRST_WRITE_AFTER: Duration = Duration::from_secs(2);

/// How often outputs are written.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// How many bytes of outputs may wait in memory.
const WAITING_MAX: usize = 256 << 10;

/// How many bytes may wait if they cannot be written; more are dropped.
const UNWRITTEN_MAX: usize = 32 << 20;

/// The cells of one client, from the first to the last that it sent while one of its cells was outstanding.
pub(super) struct Series {
    pub(super) number: u64,
    pub(super) client: Option<ClientId>,
    /// Whether the client has left: then no other subscriber reads the outputs in its place.
    pub(super) is_client_away: bool,
    /// The `header.session` of the client's messages.
    pub(super) session: String,
    /// The session that owns the kernel, and the kernel's generation.
    pub(super) owner: String,
    pub(super) generation: u64,
    begun_at: Instant,
    cells: Vec<SeriesCell>,
    /// The open prompt of the kernel, and its client.
    pub(super) question: Option<(ClientId, Question)>,
    pub(super) stage: SeriesStage,
    pub(super) folder: Folder,
    /// The state of the job in the folder.
    pub(super) state: JobState,
    /// Messages that are not in the folder yet, and the number of their bytes.
    waiting: Vec<OutputLine>,
    pub(super) bytes: usize,
    /// Whether something has changed that is not in the folder yet.
    pub(super) changed: bool,
    /// Whether it must be written as soon as possible, although it has ended.
    pub(super) urgent: bool,
    /// When it was last written, or could not be.
    written_at: Option<Instant>,
    /// Whether the last write failed.
    write_failed: bool,
    /// Whether some messages were dropped.
    is_incomplete: bool,
}

/// The stage of a series.
#[derive(Debug)]
pub(super) enum SeriesStage {
    /// One of its cells runs or waits for the kernel.
    Runs,
    /// All cells have ended, and it is not known whether a subscriber has read the end.
    Ended,
    /// All cells have ended, and their client has disconnected without the outputs.
    Unseen,
    /// A recorder takes over the series.
    HandedOff {
        /// Whether it was [`SeriesStage::Unseen`].
        has_ended: bool,
        /// The ids of the messages that have arrived since.
        received: HashSet<String>,
    },
}

impl SeriesStage {
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

    /// Returns whether a message has arrived since the series was handed over.
    pub(super) fn has_received(&self, msg_id: &str) -> bool {
        matches!(self, Self::HandedOff { received, .. } if received.contains(msg_id))
    }
}

/// The folder of a series.
pub(super) enum Folder {
    None,
    Made(Box<Stored>),
    /// Another thread is writing to it.
    Busy,
}

impl Folder {
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Busy)
    }

    /// Moves the folder out, for another thread.
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
    reply_status: Option<CellEnd>,
}

/// A message that the kernel published for a cell.
pub(super) struct OutputLine {
    pub(super) cell: usize,
    pub(super) msg_type: String,
    pub(super) id: Option<String>,
    pub(super) content: Bytes,
}

/// A folder on disk, with its job and its locks.
pub(super) struct Stored {
    pub(super) folder: JobFolder,
    pub(super) job: Job,
    /// Held until a recorder takes over the job. No other file stays open between two writes, because clients
    /// may have many cells outstanding.
    lock: Option<Lock>,
    /// Held while this proxy adds events to a job that a recorder has taken over.
    feed: Option<Lock>,
}

impl Series {
    pub(super) fn new(number: u64, session: &str, (owner, generation): (&str, u64)) -> Self {
        Self {
            number,
            client: None,
            is_client_away: false,
            session: session.to_owned(),
            owner: owner.to_owned(),
            generation,
            begun_at: Instant::now(),
            cells: Vec::new(),
            waiting: Vec::new(),
            question: None,
            bytes: 0,
            changed: false,
            urgent: false,
            written_at: None,
            write_failed: false,
            is_incomplete: false,
            state: JobState::Running,
            folder: Folder::None,
            stage: SeriesStage::Runs,
        }
    }

    /// Adds a cell that is sent to the kernel.
    pub(super) fn begin(&mut self, execution: &ExecutionProgress) {
        let code = execution.code.clone().unwrap_or_default();
        let mut cell = JobCell::new(execution.cell.clone(), code);
        cell.msg_id = Some(execution.msg_id.clone());
        self.client.clone_from(&execution.client);
        self.cells.push(SeriesCell {
            cell,
            raised: false,
            idle: false,
            reply_status: None,
        });
        self.changed = true;
    }

    fn find(&mut self, msg_id: &str) -> Option<(usize, &mut SeriesCell)> {
        let mut cells = self.cells.iter_mut().enumerate();
        cells.find(|(_, it)| it.cell.msg_id.as_deref() == Some(msg_id))
    }

    /// Returns a cell and its index.
    pub(super) fn cell(&mut self, msg_id: &str) -> Option<(usize, &mut JobCell)> {
        self.find(msg_id).map(|(at, it)| (at, &mut it.cell))
    }

    pub(super) fn msg_ids(&self) -> Vec<String> {
        let ids = self.cells.iter().map(|it| it.cell.msg_id.clone());
        ids.flatten().collect()
    }

    /// Records a cell's `idle`.
    pub(super) fn set_idle(&mut self, msg_id: &str, at: Timestamp) {
        if let Some((_, it)) = self.find(msg_id) {
            it.idle = true;
            it.cell.idle_at = Some(at);
            self.changed = true;
        }
    }

    /// Records a cell's reply.
    pub(super) fn set_reply(&mut self, msg_id: &str, status: &str) {
        if let Some((_, it)) = self.find(msg_id) {
            it.reply_status = Some(CellEnd::of_word(status));
            self.changed = true;
        }
    }

    /// Returns whether all cells have their `idle` and their reply.
    pub(super) fn all_cells_ended(&self) -> bool {
        self.cells
            .iter()
            .all(|it| it.idle && it.reply_status.is_some())
    }

    /// Returns whether a cell has no `idle` yet.
    pub(super) fn any_cell_runs(&self) -> bool {
        self.cells.iter().any(|it| !it.idle)
    }

    /// Ends all cells; those without an `idle` died with the kernel.
    pub(super) fn end(&mut self) {
        for it in &mut self.cells {
            if !std::mem::replace(&mut it.idle, true) {
                it.reply_status.get_or_insert(CellEnd::KernelDied);
            }
        }
        self.stage = SeriesStage::Ended;
        self.copy_lines();
    }

    /// Requests a write of the end soon: if this process is killed after it, no recorder has to take over the
    /// series.
    pub(super) fn write_end(&mut self) {
        self.state = JobState::Done;
        self.urgent = true;
    }

    /// Sets whether the recorder has missed no message.
    pub(super) fn set_whole(&mut self, is_whole: bool) {
        let whole = is_whole && !self.is_incomplete;
        if let Folder::Made(stored) = &mut self.folder
            && let Some(front_end) = &mut stored.job.front_end
        {
            front_end.whole = whole;
        }
    }

    /// Adds an output of a cell.
    pub(super) fn add(&mut self, line: OutputLine) {
        if let Some(cell) = self.cells.get_mut(line.cell) {
            cell.raised |= line.msg_type == "error";
        }
        if self.folder.is_busy() && self.is_incomplete {
            // The messages were dropped because the disk does not answer.
            return;
        }
        self.bytes += line.content.len();
        self.waiting.push(line);
    }

    /// Drops the waiting messages, if another thread is still writing earlier ones.
    pub(super) fn give_up(&mut self) {
        if self.folder.is_busy() {
            self.drop_lines();
        }
    }

    fn drop_lines(&mut self) {
        self.waiting.clear();
        self.bytes = 0;
        self.is_incomplete = true;
    }

    /// Copies the waiting messages: slices would keep their whole receive buffers in memory.
    fn copy_lines(&mut self) {
        for line in &mut self.waiting {
            line.content = Bytes::copy_from_slice(&line.content);
        }
    }

    /// Returns whether it has a folder, or is about to get one.
    pub(super) fn has_folder(&self) -> bool {
        !matches!(self.folder, Folder::None) || self.urgent
    }

    /// Returns when it must be written.
    pub(super) fn due(&self) -> Option<Instant> {
        let is_due = match self.stage {
            _ if self.folder.is_busy() => false,
            SeriesStage::Runs => self.changed,
            SeriesStage::Ended => self.urgent,
            // The hand-off writes the series.
            SeriesStage::Unseen | SeriesStage::HandedOff { .. } => false,
        };
        let at_once = !self.write_failed && (self.urgent || self.bytes > WAITING_MAX);
        let due = match self.written_at {
            _ if at_once => self.begun_at,
            Some(written_at) => written_at + WRITE_INTERVAL,
            None => self.begun_at + FIRST_WRITE_AFTER,
        };
        is_due.then_some(due)
    }

    /// Takes the data that is not in the folder yet; makes the folder if there is none. Returns the work that
    /// writes it.
    pub(super) fn begin_write(
        &mut self,
        target: &Target,
        by: &str,
        front_end: &str,
    ) -> impl FnOnce() -> Written + Send + use<> {
        self.changed = false;
        self.urgent = false;
        let folder = match self.folder.take() {
            Some(mut stored) => {
                stored.folder = target.project.followed_job(&stored.folder);
                Ok(stored)
            }
            None => Err((target.project.clone(), self.job(target, by, front_end))),
        };
        let state = self.state;
        let cells: Vec<_> = self.cells.iter().map(SeriesCell::job_cell).collect();
        let mut lines = std::mem::take(&mut self.waiting);
        move || {
            let made = folder.or_else(|(project, job)| Stored::make(&project, job).map(Box::new));
            let (stored, result) = match made {
                Ok(mut stored) => {
                    let result = stored.add(state, cells, &lines);
                    (Some(stored), result)
                }
                Err(error) => (None, Err(error)),
            };
            if result.is_ok() {
                lines.clear();
            }
            Written {
                stored,
                lines,
                result,
            }
        }
    }

    /// Takes the result of a write; returns why it failed.
    pub(super) fn end_write(&mut self, written: Written) -> io::Result<()> {
        self.written_at = Some(Instant::now());
        self.write_failed = written.result.is_err();
        self.folder = written.stored.map_or(Folder::None, Folder::Made);
        let mut lines = written.lines;
        lines.append(&mut self.waiting);
        self.waiting = lines;
        self.bytes = self.waiting.iter().map(|line| line.content.len()).sum();
        if self.write_failed {
            self.changed = true;
            self.urgent = matches!(self.stage, SeriesStage::Ended);
            if self.bytes > UNWRITTEN_MAX {
                self.drop_lines();
            }
        }
        written.result
    }

    /// Records that a write has panicked, which loses the folder.
    pub(super) fn lose_folder(&mut self) {
        self.folder = Folder::None;
        self.is_incomplete = true;
    }

    fn job(&self, target: &Target, by: &str, front_end: &str) -> Job {
        Job {
            state: JobState::Running,
            generation: Some(self.generation),
            max_output: Some(crate::execution::exec::MAX_OUTPUT),
            cells: self.cells.iter().map(|it| without_end(&it.cell)).collect(),
            front_end: Some(JobFrontEnd {
                name: front_end.to_owned(),
                handed_at: None,
                whole: false,
                may_return: false,
            }),
            ..Job::new(
                &target.project,
                &target.current_key(),
                target.project.current_key(&self.owner),
                by,
            )
        }
    }
}

impl SeriesCell {
    /// Returns the cell for the job's record. A cell that is idle has ended, although its reply may not have
    /// arrived.
    fn job_cell(&self) -> JobCell {
        let mut cell = self.cell.clone();
        if self.idle {
            let default = match self.raised {
                true => CellEnd::Error,
                false => CellEnd::Ok,
            };
            cell.status = Some(self.reply_status.unwrap_or(default));
            if let (Some(begun_at), Some(idle_at)) = (cell.begun_at, cell.idle_at) {
                cell.took_ms = u64::try_from(idle_at.duration_since(begun_at).as_millis()).ok();
            }
        }
        cell
    }
}

/// Returns a cell as it is recorded before its outputs are written.
fn without_end(cell: &JobCell) -> JobCell {
    JobCell {
        status: None,
        idle_at: None,
        took_ms: None,
        ..cell.clone()
    }
}

impl Stored {
    fn make(project: &Project, mut job: Job) -> io::Result<Self> {
        let folder = project.make_kept_job(&mut job)?;
        // Another command would treat a folder without a lock as that of a killed proxy.
        let lock = folder.lock().inspect_err(|_| folder.remove())?;
        Ok(Self {
            lock,
            feed: None,
            folder,
            job,
        })
    }

    fn add(
        &mut self,
        state: JobState,
        cells: Vec<JobCell>,
        lines: &[OutputLine],
    ) -> io::Result<()> {
        // A line names its cell by its index in the record. If this process is killed between the two writes,
        // a line without its cell would be useless.
        if let Some(new) = cells
            .get(self.job.cells.len()..)
            .filter(|it| !it.is_empty())
        {
            self.job.cells.extend(new.iter().map(without_end));
            self.folder.write(&self.job)?;
        }
        if !lines.is_empty() {
            let mut events = self.folder.events()?;
            for line in lines {
                let id = line.id.as_deref();
                events.append(line.cell, &line.msg_type, id, &line.content)?;
            }
        }
        self.job.state = state;
        self.job.cells = cells;
        self.folder.write(&self.job)
    }

    /// Turns the folder into a job that a recorder takes over.
    pub(super) fn adopt(&mut self, project: &Project) -> io::Result<()> {
        self.folder.write(&self.job)?;
        self.feed = self.folder.lock_feed()?;
        self.folder = project.adopt(&self.folder)?;
        self.lock = None;
        Ok(())
    }
}

/// The result of a write.
pub(super) struct Written {
    pub(super) stored: Option<Box<Stored>>,
    /// The lines that were not written.
    lines: Vec<OutputLine>,
    result: io::Result<()>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(code: &str) -> JobCell {
        JobCell {
            status: Some(CellEnd::Ok),
            ..JobCell::new(None, code.to_owned())
        }
    }

    #[test]
    fn cells_are_recorded_before_their_outputs() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("t.ipynb")).unwrap();
        let first = Job {
            state: JobState::Running,
            cells: vec![without_end(&cell("1"))],
            ..Job::new(&project, "t.ipynb", "t.ipynb".to_owned(), "human (VS Code)")
        };
        let mut stored = Stored::make(&project, first).unwrap();
        // A folder in place of the file cannot be opened for writing, so the write fails before the outputs.
        std::fs::create_dir(stored.folder.path().join("events.jsonl")).unwrap();
        let line = OutputLine {
            cell: 1,
            msg_type: "stream".to_owned(),
            id: None,
            content: Bytes::from_static(b"{}"),
        };
        let cells = vec![cell("1"), cell("2")];
        stored.add(JobState::Done, cells, &[line]).unwrap_err();
        let recorded = stored.folder.read().unwrap();
        let code: Vec<_> = recorded.cells.iter().map(|it| it.code.as_str()).collect();
        assert_eq!(code, ["1", "2"]);
        assert!(recorded.cells.iter().all(|it| it.status.is_none()));
        assert_eq!(recorded.state, JobState::Running);
    }

    #[test]
    fn a_folder_without_a_lock_is_removed() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("t.ipynb")).unwrap();
        let job = Job {
            id: "01234567".to_owned(),
            ..Job::new(&project, "t.ipynb", "t.ipynb".to_owned(), "human (VS Code)")
        };
        let folder = project.make_folder("front_end_outputs/01234567").unwrap();
        std::fs::create_dir(folder.join("lock")).unwrap();
        assert!(Stored::make(&project, job).is_err());
        assert!(project.kept_jobs().is_empty());
    }
}

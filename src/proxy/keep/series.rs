//! The cells of one client, what they have said, and the folder in which that is written down.

use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::project::jobs::{FrontEnd, Job, JobCell, JobFolder, JobState};
use crate::project::questions::Question;
use crate::project::{Lock, Project};
use crate::proxy::target::Target;
use crate::route::ClientId;

/// How long a cell runs before what it says goes into a file.
const LONG: Duration = Duration::from_secs(2);

/// How often that is written.
const EVERY: Duration = Duration::from_secs(1);

/// How many bytes wait in memory at most.
const WAITING: usize = 256 << 10;

/// Where they cannot be written: how many then. Above that they are let go.
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
    pub(super) cells: Vec<Kept>,
    /// What is not in the file yet.
    waiting: Vec<Line>,
    /// What the kernel asks, and whom.
    pub(super) question: Option<(ClientId, Question)>,
    /// Of what is not in the file yet.
    pub(super) bytes: usize,
    /// Something changed that the file does not tell.
    pub(super) changed: bool,
    /// It is written as soon as that is possible, although it has ended.
    pub(super) urgent: bool,
    /// When it was written last, or that was tried.
    written_at: Option<Instant>,
    /// That failed.
    failed: bool,
    pub(super) lost: bool,
    /// What its folder says of it.
    pub(super) state: JobState,
    pub(super) stored: Option<Stored>,
    /// Another thread writes it, and has the folder.
    pub(super) is_writing: bool,
    /// While it is handed over: the messages that came since.
    pub(super) heard: Option<HashSet<String>>,
    pub(super) stage: Stage,
}

/// How far a series has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A cell of it runs or waits for the kernel.
    Runs,
    /// All have ended, and it is not known whether a subscriber has read that.
    Ended,
    /// All have ended, and the client that asked has gone without the outputs.
    Unseen,
}

/// A cell.
pub(super) struct Kept {
    pub(super) cell: JobCell,
    pub(super) raised: bool,
    pub(super) idle: bool,
    pub(super) done: Option<String>,
}

/// A message that the kernel published for a cell.
pub(super) struct Line {
    pub(super) cell: usize,
    pub(super) msg_type: String,
    pub(super) id: Option<String>,
    pub(super) content: Bytes,
}

/// The folder of a series.
pub(super) struct Stored {
    pub(super) folder: JobFolder,
    pub(super) job: Job,
    /// Held until a recorder takes the job over. No other file is open between two writes: clients may
    /// have many cells under way.
    lock: Option<Lock>,
    /// Held while this proxy adds to the events of a job that a recorder has taken over.
    pub(super) feed: Option<Lock>,
}

impl Series {
    pub(super) fn new(
        number: u64,
        client: Option<ClientId>,
        session: &str,
        (owner, generation): (&str, u64),
    ) -> Self {
        Self {
            number,
            client,
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
            stored: None,
            is_writing: false,
            heard: None,
            stage: Stage::Runs,
        }
    }

    pub(super) fn cell(&mut self, msg_id: &str) -> Option<(usize, &mut Kept)> {
        let mut cells = self.cells.iter_mut().enumerate();
        cells.find(|(_, kept)| kept.cell.msg_id.as_deref() == Some(msg_id))
    }

    pub(super) fn say(&mut self, line: Line) {
        if self.is_writing && self.lost {
            // The disk does not answer.
            return;
        }
        self.bytes += line.content.len();
        self.waiting.push(line);
    }

    /// Lets go of what waits, where another thread is not done with what it writes.
    pub(super) fn give_up(&mut self) {
        if self.is_writing {
            self.waiting.clear();
            self.bytes = 0;
            self.lost = true;
        }
    }

    /// Lets what waits in memory be its own: it must not keep the buffers that it came in.
    pub(super) fn own_lines(&mut self) {
        for line in &mut self.waiting {
            line.content = Bytes::copy_from_slice(&line.content);
        }
    }

    /// Returns whether it has a folder, or is about to get one.
    pub(super) fn has_folder(&self) -> bool {
        self.stored.is_some() || self.is_writing || self.urgent
    }

    /// Returns when it is to be written.
    pub(super) fn due(&self) -> Option<Instant> {
        let is_due = match self.stage {
            // The handover writes it.
            _ if self.is_writing || self.heard.is_some() => false,
            Stage::Runs => self.changed,
            Stage::Ended => self.urgent,
            Stage::Unseen => false,
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
        self.is_writing = true;
        let into = match self.stored.take() {
            Some(stored) => Destination::Made(stored),
            None => Destination::New(target.project.clone(), self.job(target, by, front_end)),
        };
        Write {
            into,
            state: self.state,
            cells: self.cells.iter().map(Kept::job_cell).collect(),
            lines: std::mem::take(&mut self.waiting),
        }
    }

    /// Takes what came of a write; returns why it failed.
    pub(super) fn end_write(&mut self, written: Written) -> io::Result<()> {
        self.is_writing = false;
        self.written_at = Some(Instant::now());
        self.failed = written.done.is_err();
        self.stored = written.stored;
        let mut lines = written.lines;
        lines.append(&mut self.waiting);
        self.waiting = lines;
        self.bytes = self.waiting.iter().map(|line| line.content.len()).sum();
        if self.failed {
            self.changed = true;
            self.urgent = self.stage == Stage::Ended;
            if self.bytes > UNWRITTEN {
                self.waiting.clear();
                self.bytes = 0;
                self.lost = true;
            }
        }
        written.done
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

impl Kept {
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
    Made(Stored),
    /// It is made in a project, with this job.
    New(Project, Job),
}

/// What came of that.
pub(super) struct Written {
    pub(super) stored: Option<Stored>,
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
            Destination::New(project, job) => Stored::make(&project, job),
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

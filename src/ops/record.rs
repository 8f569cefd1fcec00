//! The recorder: a process that runs a job's cells and keeps everything that they say.
//!
//! It is nobody's descendant, so that killing whoever asked, with all that hangs on it, loses
//! nothing. What the kernel says goes into the job at once; into the notebook it goes seldom, since
//! an editor that shows the notebook reads it anew each time: two seconds after outputs began, then
//! at gaps that grow where a front end is joined or where writing takes long, and at the end.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use super::causes::with_causes;
use super::company::whose;
use super::page::Page;
use super::run::{Audience, Event, Options, Prompt, Ran, RunError, Runner, Status};
use super::status::joined_to;
use super::transaction;
use crate::client::Told;
use crate::notebook::{CellType, Document, EditError, Execution, Fold, Folded, Json};
use crate::project::jobs::{Ask, Events, Job, JobFolder, JobPrompt, JobState};
use crate::project::{Project, past};

/// How long after they began outputs go into the notebook, and the least gap between two writes.
const GAP: Duration = Duration::from_secs(2);

/// The longest gap, unless writing takes very long.
const LONGEST_GAP: Duration = Duration::from_secs(30);

/// A write that takes longer than this is not quick.
const QUICK: Duration = Duration::from_millis(40);

/// At most one part of so many of the time goes into writing: 2 %.
const SHARE: u32 = 50;

/// How often it is looked whether somebody asked something.
const LOOK: Duration = Duration::from_millis(50);

/// Runs a job to its end. Nothing happens where another recorder has it.
///
/// # Errors
/// The job's folder cannot be read or written.
pub(super) async fn perform(project: &Project, folder: &JobFolder) -> io::Result<()> {
    let Some(_lock) = folder.try_lock()? else {
        return Ok(());
    };
    let job = folder.read().map_err(io::Error::other)?;
    if job.state == JobState::Done {
        return Ok(());
    }
    let recorder = Recorder::new(project, folder, job)?;
    let all = async {
        recorder.run_all().await;
        recorder.finish();
    };
    tokio::select! {
        () = all => {}
        never = recorder.listen() => match never {},
        never = recorder.write_now_and_then() => match never {},
        never = recorder.write_when_told() => match never {},
    }
    Ok(())
}

/// What never comes.
enum Never {}

struct Recorder<'a> {
    project: &'a Project,
    folder: &'a JobFolder,
    job: RefCell<Job>,
    events: RefCell<Events>,
    /// The outputs of each cell.
    outputs: RefCell<Vec<Recorded>>,
    /// The cell under way.
    at: Cell<usize>,
    /// The cells whose outputs are not in the notebook yet.
    unwritten: RefCell<BTreeSet<usize>>,
    changed: Notify,
    page: Option<Page>,
    asked: Asked,
}

/// What an execution leaves, as it grows.
#[derive(Clone, Debug, Default)]
struct Recorded {
    folded: Folded,
    busy: Option<Timestamp>,
    input: Option<Timestamp>,
    idle: Option<Timestamp>,
}

/// What others ask of the job.
#[derive(Default)]
struct Asked {
    interrupts: Notify,
    interrupted: Cell<bool>,
    replies: RefCell<VecDeque<String>>,
    replied: Notify,
}

impl<'a> Recorder<'a> {
    fn new(project: &'a Project, folder: &'a JobFolder, job: Job) -> io::Result<Self> {
        let page = Page::of(&project.notebook(&job.notebook));
        Ok(Self {
            project,
            folder,
            events: RefCell::new(folder.events()?),
            outputs: RefCell::new(vec![Recorded::default(); job.cells.len()]),
            at: Cell::new(0),
            unwritten: RefCell::default(),
            changed: Notify::new(),
            page: page.ok().filter(|_| job.saves),
            job: RefCell::new(job),
            asked: Asked::default(),
        })
    }

    async fn run_all(&self) {
        let cells = self.job.borrow().cells.len();
        let mut runner = None;
        let mut ended: Option<&str> = None;
        for at in 0..cells {
            self.at.set(at);
            if let Some(why) = ended {
                self.job(|job| job.cells[at].status = Some(why.to_owned()));
                continue;
            }
            let (status, notes) = match self.run_one(at, &mut runner).await {
                Ok(ran) => (self.ended(at, &ran), ran.notes),
                Err(error) => {
                    let why = with_causes(&error);
                    ("not_run".to_owned(), vec![why])
                }
            };
            let goes_on = status == "ok" || (status == "error" && self.job.borrow().allow_errors);
            if !goes_on {
                ended = Some("not_run");
            }
            self.job(|job| {
                job.cells[at].status = Some(status);
                job.notes.extend(notes);
            });
        }
        if let Some(runner) = runner {
            Runner::leave(runner).await;
        }
    }

    async fn run_one(&self, at: usize, runner: &mut Option<Runner>) -> Result<Ran, RunError> {
        self.asked.interrupted.set(false);
        let options = {
            let job = self.job.borrow();
            Options {
                code: job.cells[at].code.clone(),
                cell: job.cells[at].cell.clone(),
                wait: None,
                asks: true,
            }
        };
        let joined = match runner {
            Some(joined) => joined,
            None => {
                let (key, by) = {
                    let job = self.job.borrow();
                    (job.session.clone(), job.by.clone())
                };
                let session = self.project.state()?.session(&key);
                let session = session.ok_or(RunError::Ended)?;
                let joined = Runner::join(self.project, &key, &session, &by, None).await?;
                self.job(|job| job.generation = Some(joined.generation()));
                runner.insert(joined)
            }
        };
        joined.run(&options, self).await
    }

    /// Takes the end of a cell, and returns the word for it.
    fn ended(&self, at: usize, ran: &Ran) -> String {
        let mut outputs = self.outputs.borrow_mut();
        let Some(recorded) = outputs.get_mut(at) else {
            return word(ran.status);
        };
        if recorded.busy.is_some() {
            recorded.idle = Some(Timestamp::now());
            self.unwritten.borrow_mut().insert(at);
            self.changed.notify_one();
        }
        self.job(|job| {
            let cell = &mut job.cells[at];
            cell.execution_count = ran.execution_count;
            cell.took_ms = u64::try_from(ran.took.as_millis()).ok();
        });
        match ran.status {
            // It never left the queue.
            Status::Interrupted if recorded.busy.is_none() => "withdrawn".to_owned(),
            status => word(status),
        }
    }

    /// Changes what is known of the job.
    fn job(&self, change: impl FnOnce(&mut Job)) {
        let mut job = self.job.borrow_mut();
        change(&mut job);
        if let Err(error) = self.folder.write(&job) {
            tracing::warn!(%error, "the job's record could not be written");
        }
    }

    /// Hears what others ask of the job.
    async fn listen(&self) -> Never {
        loop {
            for (file, ask) in self.folder.asks() {
                match ask {
                    Ask::Interrupt { .. } => {
                        self.answered();
                        self.asked.interrupted.set(true);
                        self.asked.interrupts.notify_one();
                    }
                    Ask::Reply { text } => {
                        self.answered();
                        self.asked.replies.borrow_mut().push_back(text);
                        self.asked.replied.notify_one();
                    }
                }
                self.folder.forget(&file);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Takes a question for answered, if there is one.
    fn answered(&self) {
        if self.job.borrow().prompt.is_some() {
            self.job(|job| {
                job.state = JobState::Running;
                job.prompt = None;
            });
        }
    }

    /// Writes outputs into the notebook while the job runs.
    async fn write_now_and_then(&self) -> Never {
        let mut gap = GAP;
        loop {
            self.changed.notified().await;
            tokio::time::sleep(gap).await;
            let begun = Instant::now();
            self.write();
            let took = begun.elapsed();
            let session = self.job.borrow().session.clone();
            let is_watched = took > QUICK || !joined_to(self.project, &session).is_empty();
            gap = if is_watched {
                LONGEST_GAP.min(gap * 2)
            } else {
                GAP
            };
            gap = gap.max(took * SHARE);
        }
    }

    /// Writes outputs when the system asks all to end, and goes on: the kernel may live.
    async fn write_when_told(&self) -> Never {
        let Ok(mut told) = signal(SignalKind::terminate()) else {
            return std::future::pending().await;
        };
        loop {
            told.recv().await;
            self.write();
        }
    }

    /// Writes the outputs that are not in the notebook yet.
    fn write(&self) {
        let cells: Vec<usize> = std::mem::take(&mut *self.unwritten.borrow_mut())
            .into_iter()
            .collect();
        let Some(page) = self.page.as_ref().filter(|_| !cells.is_empty()) else {
            return;
        };
        let mut missed = Vec::new();
        let written = transaction::write(page, false, |document| {
            missed.clear();
            let mut after = document.clone();
            for at in &cells {
                match self.put(&mut after, *at)? {
                    None => {}
                    Some(why) => missed.push((*at, why)),
                }
            }
            Ok::<_, EditError>(after)
        });
        let missed = match written {
            Ok(_) => missed,
            Err(error) => {
                let why = with_causes(&error);
                cells.iter().map(|at| (*at, why.clone())).collect()
            }
        };
        self.job(|job| {
            for at in cells {
                let why = missed.iter().find(|(missed, _)| *missed == at);
                job.cells[at].unwritten = why.map(|(_, why)| why.clone());
            }
        });
    }

    /// Puts a cell's outputs into the notebook; says why not, where there is no such cell any more.
    fn put(&self, document: &mut Document, at: usize) -> Result<Option<String>, EditError> {
        let job = self.job.borrow();
        let (Some(ran), outputs) = (job.cells.get(at), self.outputs.borrow()) else {
            return Ok(None);
        };
        let (Some(id), Some(recorded)) = (&ran.cell, outputs.get(at)) else {
            return Ok(None);
        };
        let cells = document.cells();
        let Some(index) = cells.iter().position(|cell| cell.id() == id) else {
            return Ok(Some("the cell is not in the notebook any more".to_owned()));
        };
        let Some(cell) = cells
            .get(index)
            .filter(|cell| cell.cell_type() == CellType::Code)
        else {
            return Ok(Some("the cell is no code any more".to_owned()));
        };
        let mut execution = Execution {
            outputs: recorded.folded.outputs(),
            execution_count: ran.execution_count,
            times: recorded.times(),
        };
        if cell.source() != ran.code {
            let note = "These are outputs of an earlier text of this cell, which was edited while it ran.\n";
            let note = format!(
                "{{\"output_type\":\"stream\",\"name\":\"stderr\",\"text\":{}}}",
                Json::string(note).text()
            );
            execution
                .outputs
                .insert(0, Json::parse(&note).expect("it is JSON"));
            execution.execution_count = None;
        }
        document.set_execution(index, &execution)?;
        Ok(None)
    }

    fn finish(&self) {
        self.write();
        self.job(|job| {
            job.state = JobState::Done;
            job.ended_at = Some(Timestamp::now());
            job.behind = None;
            job.prompt = None;
        });
    }
}

impl Recorded {
    /// Returns the times as JupyterLab and nbclient write them into `metadata.execution`.
    fn times(&self) -> Option<Json> {
        let times = [
            ("iopub.execute_input", self.input),
            ("iopub.status.busy", self.busy),
            ("iopub.status.idle", self.idle),
            ("shell.execute_reply", self.idle),
        ];
        let times: Vec<_> = times
            .iter()
            .filter_map(|(name, at)| Some(format!("\"{name}\":\"{}\"", (*at)?)))
            .collect();
        (!times.is_empty()).then(|| Json::parse(&format!("{{{}}}", times.join(","))).ok())?
    }
}

impl Audience for Recorder<'_> {
    fn sees(&self, event: &Event) {
        let at = self.at.get();
        let now = Timestamp::now();
        let mut all = self.outputs.borrow_mut();
        let Some(recorded) = all.get_mut(at) else {
            return;
        };
        match event {
            Event::Begun => {
                recorded.busy = Some(now);
                self.job(|job| {
                    job.state = JobState::Running;
                    job.behind = None;
                    job.cells[at].begun_at = Some(now);
                });
            }
            Event::Counted(count) => {
                recorded.input = Some(now);
                self.job(|job| job.cells[at].execution_count = Some(*count));
            }
            Event::Prompt(prompt) => self.job(|job| {
                job.state = JobState::WaitingInput;
                job.prompt = Some(JobPrompt {
                    prompt: prompt.prompt.clone(),
                    password: prompt.password,
                });
            }),
            Event::Told(Told { msg_type, content }) => {
                let fold = recorded.folded.take(msg_type, content);
                if fold == Fold::Nothing {
                    return;
                }
                if let Err(error) = self.events.borrow_mut().append(at, msg_type, content) {
                    tracing::warn!(%error, "what the kernel said could not be kept");
                }
                let mut unwritten = self.unwritten.borrow_mut();
                unwritten.insert(at);
                if let Fold::Displayed { display_id, shown } = fold {
                    for (other, recorded) in all.iter_mut().enumerate() {
                        if other != at && recorded.folded.update(&display_id, &shown) {
                            unwritten.insert(other);
                        }
                    }
                }
                self.changed.notify_one();
            }
        }
    }

    async fn answers(&self, _prompt: Prompt) -> Option<String> {
        loop {
            let reply = self.asked.replies.borrow_mut().pop_front();
            if reply.is_some() {
                return reply;
            }
            self.asked.replied.notified().await;
        }
    }

    fn waits(&self, behind: Option<&past::Cell>) {
        let behind = behind.map_or_else(|| "another client".to_owned(), whose);
        self.job(|job| job.behind = Some(behind));
    }

    async fn interrupts(&self) {
        let limit = {
            let (job, outputs) = (self.job.borrow(), self.outputs.borrow());
            let begun = outputs
                .get(self.at.get())
                .and_then(|recorded| recorded.busy);
            let limit = job.max_time.filter(|_| !self.asked.interrupted.get());
            limit.zip(begun).map(|(limit, begun)| {
                let ran = Timestamp::now().duration_since(begun).as_secs_f64();
                Duration::try_from_secs_f64((limit - ran).max(0.0)).unwrap_or(Duration::MAX)
            })
        };
        let too_long = async {
            match limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.asked.interrupts.notified() => {}
            () = too_long => self.asked.interrupted.set(true),
        }
    }

    fn leaves(&self) -> bool {
        false
    }
}

fn word(status: Status) -> String {
    let word = serde_json::to_value(status);
    word.ok()
        .and_then(|word| Some(word.as_str()?.to_owned()))
        .unwrap_or_default()
}

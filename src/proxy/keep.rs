//! What the cells of this front end have said so far, kept for the case that it goes before they end.
//!
//! Cells that end soon cost a little memory. What runs for longer, or says much, goes into a folder of
//! its own (`.nb/kept/`), so that memory stays bounded and a proxy that is killed leaves it behind. A
//! proxy that ends, or whose client has gone, makes a job of it and has a recorder go on: it hears the
//! kernel itself until the recorder has told which message is the first that it hears.
//!
//! Cells that have ended are kept until a subscriber that has read their end is still connected a moment
//! later. An editor that was killed before its cell ended, or that stands still, has not got the outputs:
//! where it goes without having read them, a recorder writes them.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;

use super::target::Target;
use super::trouble::Trouble;
use crate::ops::executions::lost;
use crate::project::Lock;
use crate::project::jobs::{FrontEnd, Job, JobCell, JobFolder, JobPrompt, JobState};
use crate::project::questions::Question;
use crate::route::{ClientId, Execution, Phase};
use crate::socket::Reach;
use crate::wire::Verified;

/// How long a cell runs before what it says goes into a file.
const LONG: Duration = Duration::from_secs(2);

/// How often that is written.
const EVERY: Duration = Duration::from_secs(1);

/// How many bytes wait in memory at most.
const WAITING: usize = 256 << 10;

/// Where they cannot be written: how many then. Above that they are let go.
const UNWRITTEN: usize = 32 << 20;

/// How long a recorder may take until it hears the kernel. A Jupyter server kills what has not ended
/// 2.5 s after it was asked to.
const PATIENCE: Duration = Duration::from_millis(1500);

/// How often is looked meanwhile.
const LOOK: Duration = Duration::from_millis(2);

/// How long a subscriber that has read the end of a cell has to stay for the cell to be let go.
const STAYS: Duration = Duration::from_secs(1);

/// How many series that have ended are kept at most, and how many bytes of theirs in memory. The oldest
/// are let go first.
const ENDED: usize = 4096;
const ENDED_BYTES: usize = 32 << 20;

/// How many of them have folders at most, while their subscribers have not read them: each has an open
/// file. The others stay in memory.
const ENDED_FOLDERS: usize = 8;

/// The cells of one front end that the kernel has, and those that have ended without proof that somebody
/// has got their outputs, with what they said.
pub(super) struct Keep {
    by: String,
    front_end: String,
    all: RefCell<Vec<Series>>,
    /// In the order of their ends.
    ended: RefCell<VecDeque<Ended>>,
    /// When it is looked next whether somebody has read them.
    settles: Cell<Option<Instant>>,
    /// What was handed over while this process stays: the kernel goes on asking it.
    handed: RefCell<Vec<Handed>>,
    number: Cell<u64>,
    trouble: Trouble,
}

/// The cells of one client from the first to the last that it sent while one was under way.
struct Series {
    number: u64,
    client: Option<ClientId>,
    /// The client's, in its messages.
    session: String,
    /// The session whose kernel it is, and which of its kernels.
    owner: String,
    generation: u64,
    begun: Instant,
    cells: Vec<Kept>,
    /// What is not in the file yet.
    waiting: Vec<Line>,
    /// What the kernel asks, and whom.
    question: Option<(ClientId, Question)>,
    bytes: usize,
    /// Something changed that the file does not tell.
    changed: bool,
    lost: bool,
    stored: Option<Stored>,
    /// While it is handed over: the messages that came since.
    heard: Option<HashSet<String>>,
    /// It has ended, and whoever asked has gone without its outputs.
    is_unseen: bool,
}

/// Cells that have ended.
struct Ended {
    series: Series,
    /// Their end is among the first so many messages that were published.
    number: u64,
    /// When it is looked next whether somebody has read it.
    due: Instant,
    /// Whether there was a subscriber when it came.
    was_heard: bool,
}

/// Why it is looked whether the ends of cells were read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Settle {
    /// The time has come for some of them.
    Due,
    /// The front end ends this proxy. Whoever was there when a cell ended has got its outputs, also
    /// where it closed its connections before it ended the proxy, as batch clients do.
    Stopped,
    /// The front end is gone, and this proxy ends.
    Orphaned,
}

/// What was published so far.
#[derive(Clone, Copy)]
pub(super) struct Published {
    /// How many messages were sent to all subscribers.
    pub(super) messages: u64,
    /// Whether there is a subscriber.
    pub(super) is_heard: bool,
}

/// What is handed over.
#[derive(Clone, Copy)]
pub(super) enum Which<'a> {
    /// What has not ended of the clients with these sessions.
    Sessions(&'a [String]),
    /// What has ended and nobody who has read it is there.
    Unseen,
    /// Both, of all clients: this proxy ends.
    All,
}

/// Cells that a recorder goes on with.
struct Handed {
    ids: Vec<String>,
    folder: JobFolder,
    asked: Option<ClientId>,
}

/// A cell.
struct Kept {
    cell: JobCell,
    raised: bool,
    idle: bool,
    done: Option<String>,
}

struct Line {
    cell: usize,
    msg_type: String,
    id: Option<String>,
    content: Bytes,
}

struct Stored {
    folder: JobFolder,
    job: Job,
    /// Held until a recorder takes the job over. No other file is open between two writes: clients may
    /// have many cells under way.
    lock: Option<Lock>,
    /// Held while this proxy adds to the events of a job that a recorder has taken over.
    feed: Option<Lock>,
    at: Instant,
}

impl Keep {
    pub(super) fn new(by: String, front_end: &str) -> Self {
        Self {
            by,
            front_end: front_end.to_owned(),
            all: RefCell::default(),
            ended: RefCell::default(),
            settles: Cell::new(None),
            handed: RefCell::default(),
            number: Cell::new(0),
            trouble: Trouble::default(),
        }
    }

    /// Takes a step of an execution; `kernel` is the session whose kernel it is, and its generation.
    pub(super) fn take(&self, execution: &Execution, kernel: (&str, u64), published: Published) {
        match &execution.phase {
            Phase::Asked if execution.store_history => self.asked(execution, kernel),
            Phase::Done(status) => self.done(&execution.msg_id, status, published),
            _ => {}
        }
    }

    fn asked(&self, execution: &Execution, (owner, generation): (&str, u64)) {
        let mut all = self.all.borrow_mut();
        let at = all.iter().position(|series| {
            series.session == execution.session
                && series.heard.is_none()
                && !series.is_unseen
                && (&*series.owner, series.generation) == (owner, generation)
        });
        let at = at.unwrap_or_else(|| {
            self.number.set(self.number.get() + 1);
            all.push(Series {
                number: self.number.get(),
                client: None,
                session: execution.session.clone(),
                owner: owner.to_owned(),
                generation,
                begun: Instant::now(),
                cells: Vec::new(),
                waiting: Vec::new(),
                question: None,
                bytes: 0,
                changed: false,
                lost: false,
                stored: None,
                heard: None,
                is_unseen: false,
            });
            all.len() - 1
        });
        let code = execution.code.clone().unwrap_or_default();
        let mut cell = JobCell::new(execution.cell.clone(), code);
        cell.msg_id = Some(execution.msg_id.clone());
        if let Some(series) = all.get_mut(at) {
            series.client.clone_from(&execution.client);
            series.cells.push(Kept {
                cell,
                raised: false,
                idle: false,
                done: None,
            });
            series.changed = true;
        }
    }

    fn done(&self, msg_id: &str, status: &str, published: Published) {
        let mut all = self.all.borrow_mut();
        for series in all.iter_mut() {
            if let Some((_, kept)) = series.cell(msg_id) {
                kept.done = Some(status.to_owned());
                series.changed = true;
            }
        }
        self.sweep(&mut all, published);
    }

    /// Takes that a cell has ended whose `idle` the kernel has lost; one is published in its place next.
    pub(super) fn idle_lost(&self, msg_id: &str, published: Published) {
        let mut all = self.all.borrow_mut();
        for series in all.iter_mut() {
            if let Some((_, kept)) = series.cell(msg_id) {
                kept.idle = true;
                kept.cell.idle_at = Some(Timestamp::now());
                series.changed = true;
            }
        }
        self.sweep(&mut all, published);
    }

    /// Takes what the kernel said on iopub, which is published next.
    pub(super) fn heard(&self, message: &Verified, published: Published) {
        let mut all = self.all.borrow_mut();
        if all.is_empty() {
            return;
        }
        let (Ok(header), Ok(parent)) = (message.header(), message.parent()) else {
            return;
        };
        for series in all.iter_mut() {
            if let Some(heard) = &mut series.heard {
                heard.insert(header.msg_id.clone().into_owned());
            }
            let Some((at, kept)) = series.cell(&parent.msg_id) else {
                continue;
            };
            let now = Timestamp::now();
            match &*header.msg_type {
                "status" => match state(message.content()).as_deref() {
                    Some("busy") => kept.cell.begun_at = kept.cell.begun_at.or(Some(now)),
                    Some("idle") => {
                        kept.idle = true;
                        kept.cell.idle_at = Some(now);
                    }
                    _ => {}
                },
                "execute_input" => {
                    kept.cell.input_at = Some(now);
                    kept.cell.execution_count = count(message.content());
                }
                msg_type => {
                    kept.raised |= msg_type == "error";
                    let line = Line {
                        cell: at,
                        msg_type: msg_type.to_owned(),
                        id: Some(header.msg_id.clone().into_owned()),
                        content: message.content().clone(),
                    };
                    series.bytes += line.content.len();
                    series.waiting.push(line);
                }
            }
            series.changed = true;
        }
        self.sweep(&mut all, published);
    }

    /// Takes what the kernel asks a client; says whether a recorder sees to the answer.
    pub(super) fn asked_input(&self, client: &ClientId, message: &Verified) -> bool {
        let Some(question) = question(message) else {
            return false;
        };
        let mut all = self.all.borrow_mut();
        let mut all_series = all.iter_mut();
        let asking = all_series.find_map(|it| it.cell(&question.msg_id).is_some().then_some(it));
        if let Some(series) = asking {
            series.question = Some((client.clone(), question));
            return false;
        }
        let mut handed = self.handed.borrow_mut();
        handed.retain(|it| it.folder.has_recorder());
        let Some(one) = handed
            .iter_mut()
            .find(|it| it.ids.contains(&question.msg_id))
        else {
            return false;
        };
        one.asked = Some(client.clone());
        match one.folder.pass_on(&question) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!("a question could not be passed on: {error}");
                false
            }
        }
    }

    /// Takes that a client has answered.
    pub(super) fn answered(&self, client: &ClientId) {
        for series in self.all.borrow_mut().iter_mut() {
            series.question.take_if(|(asked, _)| asked == client);
        }
        for handed in self.handed.borrow_mut().iter_mut() {
            if handed.asked.take_if(|asked| asked == client).is_some() {
                handed.folder.forget_question();
            }
        }
    }

    /// Takes the end of the kernel, and with it that of all cells.
    pub(super) fn kernel_ended(&self, published: Published) {
        let mut all = self.all.borrow_mut();
        for series in all.extract_if(.., |series| series.heard.is_none() && !series.is_unseen) {
            self.ends(series, published);
        }
    }

    /// Takes series out that have ended; what is handed over is removed by whoever does that.
    fn sweep(&self, all: &mut Vec<Series>, published: Published) {
        let over = |series: &mut Series| {
            let ended = |kept: &Kept| kept.idle && kept.done.is_some();
            series.heard.is_none() && !series.is_unseen && series.cells.iter().all(ended)
        };
        for series in all.extract_if(.., over) {
            self.ends(series, published);
        }
    }

    fn ends(&self, mut series: Series, published: Published) {
        for kept in &mut series.cells {
            if !std::mem::replace(&mut kept.idle, true) {
                kept.done.get_or_insert_with(|| "kernel_died".to_owned());
            }
        }
        if let Some(stored) = &mut series.stored
            && published.is_heard
        {
            // Should this process be killed now: nobody has to go on with it.
            stored.job.state = JobState::Done;
            if let Err(error) = add_to_folder(&mut series) {
                self.trouble.is(
                    error.kind(),
                    &format!("what cells say cannot be kept: {error}"),
                );
            }
        }
        for line in &mut series.waiting {
            // Its own: it must not keep the buffer that it came in.
            line.content = Bytes::copy_from_slice(&line.content);
        }
        let due = Instant::now() + STAYS;
        self.settles.set(self.settles.get().or(Some(due)));
        let mut ended = self.ended.borrow_mut();
        ended.push_back(Ended {
            series,
            number: published.messages + 1,
            due,
            was_heard: published.is_heard,
        });
        let mut bytes: usize = ended.iter().map(|it| it.series.bytes).sum();
        while (bytes > ENDED_BYTES || ended.len() > ENDED)
            && let Some(oldest) = ended.pop_front()
        {
            bytes -= oldest.series.bytes;
            oldest.series.remove();
        }
    }

    /// Lets go of the cells whose end a subscriber has read that is still connected; `reach` says of the
    /// number of a message how far it has come, `is_joined` of a client whether it is connected. Returns
    /// whether there are cells to be handed over, whose outputs nobody has got.
    pub(super) fn settle(
        &self,
        target: &Target,
        reach: impl Fn(u64) -> Reach,
        is_joined: impl Fn(&ClientId) -> bool,
        settle: Settle,
    ) -> bool {
        let now = Instant::now();
        let at_last = settle != Settle::Due;
        if !at_last && self.settles.get().is_none_or(|due| due > now) {
            return false;
        }
        let mut unseen = false;
        let mut ended = self.ended.take();
        let mut later = VecDeque::new();
        // What has read the last one has read those before it.
        let is_due = |it: &Ended| at_last || it.due <= now;
        let last = ended.iter().rev().find(|it| is_due(it)).map(|it| it.number);
        let all_read = last.is_some_and(|number| reach(number) == Reach::Read);
        while let Some(mut it) = ended.pop_front() {
            if !is_due(&it) {
                later.push_back(it);
                continue;
            }
            match reach_of(all_read, it.number, &reach) {
                Reach::Read => it.series.remove(),
                Reach::Waits if at_last => it.series.remove(),
                Reach::Waits => {
                    it.due = now + STAYS;
                    let is_stored = |it: &&Ended| it.series.stored.is_some();
                    let folders = later.iter().chain(&ended).filter(is_stored).count();
                    if it.series.stored.is_none() && folders < ENDED_FOLDERS {
                        self.store_one(&mut it.series, target);
                    }
                    later.push_back(it);
                }
                // It does without outputs, or was told that it has missed some.
                Reach::Nobody if it.series.client.as_ref().is_some_and(&is_joined) => {
                    it.series.remove();
                }
                Reach::Nobody if settle == Settle::Stopped && it.was_heard => it.series.remove(),
                Reach::Nobody => {
                    unseen = true;
                    it.series.is_unseen = true;
                    self.all.borrow_mut().push(it.series);
                }
            }
        }
        self.settles.set(later.iter().map(|it| it.due).min());
        self.ended.replace(later);
        unseen
    }

    /// Returns when [`Keep::store`] and [`Keep::settle`] want to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        let all = self.all.borrow();
        let due = all.iter().filter_map(Series::due);
        due.chain(self.settles.get()).min()
    }

    /// Writes what is due.
    pub(super) fn store(&self, target: &Target) {
        let now = Instant::now();
        for series in self.all.borrow_mut().iter_mut() {
            if series.due().is_some_and(|due| due <= now) {
                self.store_one(series, target);
            }
        }
    }

    fn store_one(&self, series: &mut Series, target: &Target) {
        let stored = match series.stored.as_mut() {
            Some(stored) => Ok(stored),
            None => self
                .folder(series, target)
                .map(|stored| series.stored.insert(stored)),
        };
        let written = stored.map(|_| ()).and_then(|()| add_to_folder(series));
        match written {
            Ok(()) => {
                self.trouble.is_over("what cells say is kept again");
            }
            Err(error) => {
                let text = format!("what cells say cannot be kept: {error}");
                self.trouble.is(error.kind(), &text);
                if series.bytes > UNWRITTEN {
                    series.waiting.clear();
                    series.bytes = 0;
                    series.lost = true;
                }
            }
        }
    }

    fn folder(&self, series: &Series, target: &Target) -> std::io::Result<Stored> {
        let mut job = Job {
            id: String::new(),
            by: self.by.clone(),
            notebook: target.key.clone(),
            path: target.notebook(),
            session: series.owner.clone(),
            state: JobState::Running,
            asked_at: Timestamp::now(),
            ended_at: None,
            generation: Some(series.generation),
            cells: Vec::new(),
            behind: None,
            behind_since: None,
            prompt: None,
            allow_errors: false,
            max_time: None,
            max_output: Some(crate::ops::executions::exec::MAX_OUTPUT),
            saves: true,
            notes: Vec::new(),
            front_end: Some(FrontEnd {
                name: self.front_end.clone(),
                handed_at: None,
                whole: false,
                may_return: false,
            }),
            other: serde_json::Map::new(),
        };
        let folder = target.project.make_kept_job(&mut job)?;
        Ok(Stored {
            lock: folder.lock()?,
            feed: None,
            folder,
            job,
            at: Instant::now(),
        })
    }

    /// Hands over to a recorder each what has not ended, or whose outputs nobody has got. Returns when
    /// nothing more depends on this process: the clients whose questions the recorders have now.
    pub(super) async fn hand_over(&self, target: &Target, which: Which<'_>) -> Vec<ClientId> {
        let mut asked = Vec::new();
        let meant: Vec<u64> = {
            let mut all = self.all.borrow_mut();
            let meant = all.iter_mut().filter(|series| {
                let runs = || series.cells.iter().any(|kept| !kept.idle);
                series.heard.is_none()
                    && match which {
                        Which::Sessions(sessions) => sessions.contains(&series.session) && runs(),
                        Which::Unseen => series.is_unseen,
                        Which::All => series.is_unseen || runs(),
                    }
            });
            meant
                .map(|series| {
                    series.heard = Some(HashSet::new());
                    series.number
                })
                .collect()
        };
        for number in meant {
            let leaves = matches!(which, Which::All);
            match self.hand_one_over(target, number, leaves).await {
                Ok(client) => asked.extend(client),
                Err(error) => {
                    tracing::warn!("a cell that runs could not be handed over: {error:#}");
                }
            }
            let mut all = self.all.borrow_mut();
            for series in all.extract_if(.., |series| series.number == number) {
                self.handed.borrow_mut().extend(Handed::of(series));
            }
        }
        asked
    }

    async fn hand_one_over(
        &self,
        target: &Target,
        number: u64,
        leaves: bool,
    ) -> anyhow::Result<Option<ClientId>> {
        let deadline = Instant::now() + PATIENCE;
        let adopted = self.with(number, |series| {
            self.store_one(series, target);
            let Some(stored) = &mut series.stored else {
                anyhow::bail!("it cannot be written down");
            };
            stored.job.state = JobState::Running;
            stored.job.front_end = Some(FrontEnd {
                name: self.front_end.clone(),
                handed_at: Some(Timestamp::now()),
                whole: false,
                may_return: leaves,
            });
            stored.folder.write(&stored.job)?;
            stored.feed = stored.folder.lock_feed()?;
            stored.folder = target.project.adopt(&stored.folder)?;
            stored.lock = None;
            Ok(stored.folder.clone())
        });
        let Some(folder) = adopted.transpose()? else {
            return Ok(None);
        };
        lost::resume(&target.project, folder.id()).await?;
        // The recorder of cells that have ended hears nothing.
        let has_ended = self.with(number, |series| series.is_unseen);
        let has_ended = has_ended.unwrap_or(false);
        let mut ready = None;
        let is_heard = has_ended
            || loop {
                ready = ready.or_else(|| folder.ready());
                let heard = ready.as_ref().is_some_and(|id| {
                    let heard = |series: &mut Series| {
                        let heard = series.heard.as_ref();
                        heard.is_some_and(|heard| heard.contains(id))
                    };
                    self.with(number, heard).unwrap_or(true)
                });
                if heard || Instant::now() > deadline {
                    break heard;
                }
                tokio::time::sleep(LOOK).await;
            };
        tracing::info!(
            job = folder.id(),
            "a recorder goes on with the cells of {}{}",
            self.front_end,
            if is_heard {
                ""
            } else {
                ", and may have missed something"
            }
        );
        let asked = self.with(number, |series| {
            let whole = is_heard && !series.lost;
            if let Some(stored) = &mut series.stored
                && let Some(front_end) = &mut stored.job.front_end
            {
                front_end.whole = whole;
            }
            self.store_one(series, target);
            // Until here the client might have answered.
            let (client, question) = series.question.as_ref()?;
            let passed_on = folder.pass_on(question);
            passed_on
                .inspect_err(|error| tracing::warn!("a question could not be passed on: {error}"))
                .ok()?;
            Some(client.clone())
        });
        Ok(asked.flatten())
    }

    fn with<T>(&self, number: u64, does: impl FnOnce(&mut Series) -> T) -> Option<T> {
        let mut all = self.all.borrow_mut();
        let series = all.iter_mut().find(|series| series.number == number)?;
        Some(does(series))
    }
}

impl Handed {
    fn of(series: Series) -> Option<Self> {
        let ids = series.cells.into_iter().filter_map(|kept| kept.cell.msg_id);
        let Stored { folder, feed, .. } = series.stored?;
        // Nothing is added any more: the recorder goes on.
        drop(feed);
        Some(Self {
            ids: ids.collect(),
            folder,
            asked: series.question.map(|(client, _)| client),
        })
    }
}

/// Reads what the kernel asks.
fn question(message: &Verified) -> Option<Question> {
    #[derive(Deserialize)]
    struct Asked {
        #[serde(default)]
        prompt: String,
        #[serde(default)]
        password: bool,
    }
    let header = message.header().ok()?;
    let parent = message.parent().ok()?;
    if header.msg_type != "input_request" {
        return None;
    }
    let Asked { prompt, password } = serde_json::from_slice(message.content()).ok()?;
    Some(Question {
        msg_id: parent.msg_id.clone().into_owned(),
        header: serde_json::from_slice(message.header_bytes()).ok()?,
        prompt: JobPrompt { prompt, password },
    })
}

/// Writes what is not in the folder of a series yet.
fn add_to_folder(series: &mut Series) -> std::io::Result<()> {
    let Some(stored) = &mut series.stored else {
        return Ok(());
    };
    stored.at = Instant::now();
    if !series.waiting.is_empty() {
        let mut events = stored.folder.events()?;
        for line in &series.waiting {
            let id = line.id.as_deref();
            events.append_said(line.cell, &line.msg_type, id, &line.content)?;
        }
    }
    stored.job.cells = series.cells.iter().map(Kept::job_cell).collect();
    stored.folder.write(&stored.job)?;
    series.waiting.clear();
    series.bytes = 0;
    series.changed = false;
    Ok(())
}

/// Returns how far a message has come.
fn reach_of(all_read: bool, number: u64, reach: impl Fn(u64) -> Reach) -> Reach {
    if all_read { Reach::Read } else { reach(number) }
}

impl Series {
    fn cell(&mut self, msg_id: &str) -> Option<(usize, &mut Kept)> {
        let mut cells = self.cells.iter_mut().enumerate();
        cells.find(|(_, kept)| kept.cell.msg_id.as_deref() == Some(msg_id))
    }

    fn due(&self) -> Option<Instant> {
        // Whoever hands it over writes it.
        if !self.changed || self.heard.is_some() {
            return None;
        }
        Some(match &self.stored {
            _ if self.bytes > WAITING => self.begun,
            Some(stored) => stored.at + EVERY,
            None => self.begun + LONG,
        })
    }

    fn remove(self) {
        if let Some(stored) = self.stored {
            stored.folder.remove();
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

fn state(content: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Status {
        execution_state: String,
    }
    let status = serde_json::from_slice::<Status>(content).ok()?;
    Some(status.execution_state)
}

fn count(content: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Input {
        execution_count: Option<u64>,
    }
    serde_json::from_slice::<Input>(content)
        .ok()?
        .execution_count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::Project;

    const PUBLISHED: Published = Published {
        messages: 7,
        is_heard: true,
    };

    fn take(keep: &Keep, msg_id: &str, phase: Phase) {
        let execution = Execution {
            phase,
            generation: 1,
            msg_id: msg_id.to_owned(),
            client: None,
            session: format!("session of {msg_id}"),
            username: "u".to_owned(),
            cell: None,
            code: Some("1".to_owned()),
            store_history: true,
        };
        keep.take(&execution, ("t.ipynb", 1), PUBLISHED);
    }

    #[test]
    fn a_cell_whose_idle_the_kernel_has_lost_is_not_kept_for_ever() {
        let keep = Keep::new("human (VS Code)".to_owned(), "VS Code");
        take(&keep, "1", Phase::Asked);
        take(&keep, "1", Phase::Done("ok".to_owned()));
        assert_eq!(keep.all.borrow().len(), 1, "its idle is not here yet");
        keep.idle_lost("1", PUBLISHED);
        assert!(keep.all.borrow().is_empty());
        assert_eq!(keep.ended.borrow()[0].number, 8);
    }

    #[test]
    fn ends_that_a_subscriber_has_not_read_take_few_open_files() {
        let temp = tempfile::tempdir().unwrap();
        let notebook = temp.path().join("t.ipynb");
        let target = Target {
            project: Project::for_notebook(&notebook).unwrap(),
            key: "t.ipynb".to_owned(),
        };
        let keep = Keep::new("human (VS Code)".to_owned(), "VS Code");
        let cells = 3 * ENDED_FOLDERS;
        for number in 0..cells {
            let msg_id = number.to_string();
            take(&keep, &msg_id, Phase::Asked);
            take(&keep, &msg_id, Phase::Done("ok".to_owned()));
            keep.idle_lost(&msg_id, PUBLISHED);
        }
        let now = Instant::now();
        keep.settles.set(Some(now));
        keep.ended
            .borrow_mut()
            .iter_mut()
            .for_each(|it| it.due = now);
        keep.settle(&target, |_| Reach::Waits, |_| true, Settle::Due);
        assert_eq!(keep.ended.borrow().len(), cells);
        let folders = target.project.kept_jobs();
        assert_eq!(folders.len(), ENDED_FOLDERS);
        let kept = std::fs::canonicalize(target.project.dir().join("kept")).unwrap();
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = open.filter_map(|it| std::fs::read_link(it.path()).ok());
        assert_eq!(
            open.filter(|path| path.starts_with(&kept)).count(),
            ENDED_FOLDERS
        );
        keep.settle(&target, |_| Reach::Waits, |_| true, Settle::Stopped);
        assert!(target.project.kept_jobs().is_empty());
    }
}

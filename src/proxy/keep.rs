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

mod series;

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::Notify;

use self::series::{Kept, Line, Series, Stage, Stored};
use super::storage::FileWork;
use super::target::Target;
use super::trouble::Trouble;
use crate::execution::lost;
use crate::project::jobs::{FrontEnd, JobCell, JobFolder, JobPrompt, JobState};
use crate::project::questions::Question;
use crate::route::{ClientId, Execution, Phase};
use crate::socket::DeliveryProgress;
use crate::wire::Verified;

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

/// How many bytes of one series wait at most while another thread writes. Above that iopub is not routed, and
/// after [`FULL_FOR`] they are let go: the disk does not answer.
const FULL: usize = 8 << 20;
const FULL_FOR: Duration = Duration::from_secs(1);

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
    work: FileWork,
    /// [`Keep::store`] is at work.
    storing: Cell<bool>,
    /// Some that have ended may be urgent.
    has_urgent: Cell<bool>,
    /// Since when more waits than may wait.
    full: Cell<Option<Instant>>,
    /// Files that nothing needs any more.
    over: RefCell<Vec<Over>>,
    /// Notified when [`Keep::due`] may have become sooner.
    rearm: Rc<Notify>,
    trouble: Trouble,
}

/// A file that nothing needs any more.
enum Over {
    /// The folder of cells whose outputs a client has got. Its lock is held until it is removed.
    Folder(Box<Stored>),
    /// The question of a job that was answered.
    Question(JobFolder),
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

impl Keep {
    /// Keeps nothing yet. `rearm` is notified when [`Keep::due`] may have become sooner.
    pub(super) fn new(by: String, front_end: &str, rearm: Rc<Notify>) -> Self {
        Self {
            by,
            front_end: front_end.to_owned(),
            all: RefCell::default(),
            ended: RefCell::default(),
            settles: Cell::new(None),
            handed: RefCell::default(),
            number: Cell::new(0),
            work: FileWork::default(),
            storing: Cell::new(false),
            has_urgent: Cell::new(false),
            full: Cell::new(None),
            over: RefCell::default(),
            rearm,
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

    fn asked(&self, execution: &Execution, kernel: (&str, u64)) {
        let mut all = self.all.borrow_mut();
        let at = all.iter().position(|series| {
            series.session == execution.session
                && series.heard.is_none()
                && series.stage == Stage::Runs
                && (&*series.owner, series.generation) == kernel
        });
        let at = at.unwrap_or_else(|| {
            self.number.set(self.number.get() + 1);
            let client = execution.client.clone();
            all.push(Series::new(
                self.number.get(),
                client,
                &execution.session,
                kernel,
            ));
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
                    series.say(line);
                    if series.is_writing && series.bytes > FULL {
                        self.full
                            .set(self.full.get().or_else(|| Some(Instant::now())));
                    }
                }
            }
            series.changed = true;
        }
        self.sweep(&mut all, published);
    }

    /// Takes what the kernel asks a client. Returns what [`Keep::pass_on`] takes, where a recorder may see to
    /// the answer.
    pub(super) fn asked_input(
        &self,
        client: &ClientId,
        message: &Verified,
    ) -> Option<(JobFolder, Question)> {
        let question = question(message)?;
        let mut all = self.all.borrow_mut();
        let mut all_series = all.iter_mut();
        let asking = all_series.find_map(|it| it.cell(&question.msg_id).is_some().then_some(it));
        if let Some(series) = asking {
            series.question = Some((client.clone(), question));
            return None;
        }
        let handed = self.handed.borrow();
        let one = handed.iter().find(|it| it.ids.contains(&question.msg_id))?;
        Some((one.folder.clone(), question))
    }

    /// Passes a question on to the recorder of a job; returns whether it sees to the answer.
    pub(super) async fn pass_on(
        &self,
        client: &ClientId,
        folder: JobFolder,
        question: Question,
    ) -> bool {
        let id = folder.id().to_owned();
        let turn = self.work.turn().await;
        let passed = turn.run(move || {
            let has_recorder = folder.has_recorder();
            has_recorder.then(|| folder.pass_on(&question))
        });
        match passed.await.and_then(Option::transpose) {
            Ok(Some(())) => {
                let mut handed = self.handed.borrow_mut();
                let one = handed.iter_mut().find(|it| it.folder.id() == id);
                if let Some(one) = one {
                    one.asked = Some(client.clone());
                }
                true
            }
            Ok(None) => {
                self.handed.borrow_mut().retain(|it| it.folder.id() != id);
                false
            }
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
                self.is_over(Over::Question(handed.folder.clone()));
            }
        }
    }

    /// Takes the end of the kernel, and with it that of all cells.
    pub(super) fn kernel_ended(&self, published: Published) {
        let mut all = self.all.borrow_mut();
        let runs = |series: &mut Series| series.heard.is_none() && series.stage == Stage::Runs;
        for series in all.extract_if(.., runs) {
            self.ends(series, published);
        }
    }

    /// Takes series out that have ended; what is handed over is removed by whoever does that.
    fn sweep(&self, all: &mut Vec<Series>, published: Published) {
        let over = |series: &mut Series| {
            let ended = |kept: &Kept| kept.idle && kept.done.is_some();
            series.heard.is_none() && series.stage == Stage::Runs && series.cells.iter().all(ended)
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
        series.stage = Stage::Ended;
        if series.has_folder() && published.is_heard {
            // Should this process be killed then: no recorder has to go on with it.
            series.state = JobState::Done;
            self.is_urgent(&mut series);
        }
        series.own_lines();
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
            self.let_go(oldest.series);
        }
    }

    /// Lets go of the cells whose end a subscriber has read that is still connected; `reach` says of the
    /// number of a message how far it has come, `is_joined` of a client whether it is connected. Returns
    /// whether there are cells to be handed over, whose outputs nobody has got.
    pub(super) fn settle(
        &self,
        reach: impl Fn(u64) -> DeliveryProgress,
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
        let all_read = last.is_some_and(|number| reach(number) == DeliveryProgress::Read);
        let mut folders = ended.iter().filter(|it| it.series.has_folder()).count();
        while let Some(mut it) = ended.pop_front() {
            if !is_due(&it) {
                later.push_back(it);
                continue;
            }
            match reach_of(all_read, it.number, &reach) {
                DeliveryProgress::Read => self.let_go(it.series),
                DeliveryProgress::Waits if at_last => self.let_go(it.series),
                DeliveryProgress::Waits => {
                    it.due = now + STAYS;
                    if !it.series.has_folder() && folders < ENDED_FOLDERS {
                        folders += 1;
                        self.is_urgent(&mut it.series);
                    }
                    later.push_back(it);
                }
                // It does without outputs, or was told that it has missed some.
                DeliveryProgress::Nobody if it.series.client.as_ref().is_some_and(&is_joined) => {
                    self.let_go(it.series);
                }
                DeliveryProgress::Nobody if settle == Settle::Stopped && it.was_heard => {
                    self.let_go(it.series);
                }
                DeliveryProgress::Nobody => {
                    unseen = true;
                    it.series.stage = Stage::Unseen;
                    self.all.borrow_mut().push(it.series);
                }
            }
        }
        self.settles.set(later.iter().map(|it| it.due).min());
        self.ended.replace(later);
        unseen
    }

    /// Returns when [`Keep::settle`] wants to be called.
    pub(super) fn settles(&self) -> Option<Instant> {
        self.settles.get()
    }

    /// Returns when [`Keep::store`] wants to be called; never while it is at work.
    pub(super) fn due(&self) -> Option<Instant> {
        if let Some(full) = self.full.get() {
            return Some(full + FULL_FOR);
        }
        if self.storing.get() {
            return None;
        }
        if !self.over.borrow().is_empty() {
            return Some(Instant::now());
        }
        let all = self.all.borrow();
        let running = all.iter().filter_map(Series::due);
        let ended = self.ended.borrow();
        // There may be thousands, and this is asked for each message.
        let ended = self.has_urgent.get().then(|| ended.iter());
        let ended = ended.into_iter().flatten();
        running.chain(ended.filter_map(|it| it.series.due())).min()
    }

    /// Returns whether more waits to be written than may wait.
    pub(super) fn is_full(&self) -> bool {
        self.full.get().is_some()
    }

    /// Begins to write what is due, and to remove what nothing needs any more. Returns when it wants to be
    /// called next.
    pub(super) fn store_soon(keep: &Rc<Self>, target: &Target) -> Option<Instant> {
        let due = keep.due();
        if due.is_none_or(|due| due > Instant::now()) {
            return due;
        }
        if keep.full.take().is_some() {
            tracing::warn!("what cells say is not kept for now: the disk does not answer");
            let mut all = keep.all.borrow_mut();
            all.iter_mut().for_each(Series::give_up);
        }
        if !keep.storing.get() {
            keep.storing.set(true);
            let (keep, target) = (Rc::clone(keep), target.clone());
            tokio::task::spawn_local(async move { keep.store(&target).await });
        }
        // It says so itself when it is done.
        None
    }

    async fn store(&self, target: &Target) {
        let _storing = Storing(self);
        self.tidy().await;
        let now = Instant::now();
        let due = |series: &Series| {
            let is_due = series.due().is_some_and(|due| due <= now);
            is_due.then_some(series.number)
        };
        let numbers: Vec<u64> = {
            let (all, ended) = (self.all.borrow(), self.ended.borrow());
            let all = all.iter().chain(ended.iter().map(|it| &it.series));
            all.filter_map(due).collect()
        };
        for number in numbers {
            self.write(number, target).await;
        }
        let has_urgent = self.ended.borrow().iter().any(|it| it.series.urgent);
        self.has_urgent.set(has_urgent);
    }

    /// Removes what nothing needs any more.
    pub(super) async fn tidy(&self) {
        let turn = self.work.turn().await;
        let over = self.over.take();
        if over.is_empty() {
            return;
        }
        let removed = turn.run(move || {
            for it in over {
                match it {
                    Over::Folder(stored) => stored.folder.remove(),
                    Over::Question(folder) => folder.forget_question(),
                }
            }
        });
        let _ = removed.await;
    }

    /// Has a series that has ended written soon.
    fn is_urgent(&self, series: &mut Series) {
        series.urgent = true;
        self.has_urgent.set(true);
        self.rearm.notify_one();
    }

    fn is_over(&self, over: Over) {
        self.over.borrow_mut().push(over);
        self.rearm.notify_one();
    }

    fn let_go(&self, series: Series) {
        // One that is just being written is removed when that is done.
        if let Some(stored) = series.stored {
            self.is_over(Over::Folder(Box::new(stored)));
        }
    }

    /// Writes what is not in the folder of a series yet.
    async fn write(&self, number: u64, target: &Target) {
        let turn = self.work.turn().await;
        let write = self.with(number, |series| {
            series.begin_write(target, &self.by, &self.front_end)
        });
        let Some(write) = write else { return };
        let written = match turn.run(move || write.run()).await {
            Ok(written) => written,
            Err(error) => {
                self.with(number, |series| {
                    series.is_writing = false;
                    series.lost = true;
                });
                return self.not_kept(&error);
            }
        };
        if self.full.take().is_some() {
            self.rearm.notify_one();
        }
        let mut written = Some(written);
        let ended = self.with(number, |series| {
            written.take().map(|it| series.end_write(it))
        });
        match ended.flatten() {
            Some(Ok(())) => self.trouble.is_over("what cells say is kept again"),
            Some(Err(error)) => self.not_kept(&error),
            // It was let go during the write.
            None => {
                if let Some(stored) = written.and_then(|it| it.stored) {
                    self.is_over(Over::Folder(Box::new(stored)));
                }
            }
        }
    }

    fn not_kept(&self, error: &io::Error) {
        let text = format!("what cells say cannot be kept: {error}");
        self.trouble.is(error.kind(), &text);
    }

    /// Hands over to a recorder each what has not ended, or whose outputs nobody has got. Returns when
    /// nothing more depends on this process: the clients whose questions the recorders have now.
    pub(super) async fn hand_over(&self, target: &Target, which: Which<'_>) -> Vec<ClientId> {
        let mut asked = Vec::new();
        let meant: Vec<u64> = {
            let mut all = self.all.borrow_mut();
            let meant = all.iter_mut().filter(|series| {
                let runs = || series.cells.iter().any(|kept| !kept.idle);
                let is_unseen = series.stage == Stage::Unseen;
                series.heard.is_none()
                    && match which {
                        Which::Sessions(sessions) => sessions.contains(&series.session) && runs(),
                        Which::Unseen => is_unseen,
                        Which::All => is_unseen || runs(),
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
        self.with(number, |series| series.state = JobState::Running);
        self.write(number, target).await;
        let folder = self.adopt(target, number, leaves).await?;
        lost::resume(&target.project, folder.id()).await?;
        // The recorder of cells that have ended hears nothing.
        let has_ended = self.with(number, |series| series.stage == Stage::Unseen);
        let is_heard = has_ended.unwrap_or(true) || self.hears(number, &folder, deadline).await;
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
        self.with(number, |series| {
            let whole = is_heard && !series.lost;
            if let Some(stored) = &mut series.stored
                && let Some(front_end) = &mut stored.job.front_end
            {
                front_end.whole = whole;
            }
        });
        self.write(number, target).await;
        // Until here the client might have answered.
        let question = self
            .with(number, |series| series.question.clone())
            .flatten();
        let Some((client, question)) = question else {
            return Ok(None);
        };
        let turn = self.work.turn().await;
        let passed_on = turn.run(move || folder.pass_on(&question)).await.flatten();
        let passed_on = passed_on
            .inspect_err(|error| tracing::warn!("a question could not be passed on: {error}"));
        Ok(passed_on.ok().map(|()| client))
    }

    /// Makes a job of a series.
    async fn adopt(&self, target: &Target, number: u64, leaves: bool) -> anyhow::Result<JobFolder> {
        let turn = self.work.turn().await;
        let stored = self.with(number, |series| series.stored.take()).flatten();
        let Some(mut stored) = stored else {
            anyhow::bail!("it cannot be written down");
        };
        stored.job.front_end = Some(FrontEnd {
            name: self.front_end.clone(),
            handed_at: Some(Timestamp::now()),
            whole: false,
            may_return: leaves,
        });
        let project = target.project.clone();
        let adopted = turn.run(move || {
            let adopted = stored.adopt(&project);
            (stored, adopted)
        });
        let (stored, adopted) = adopted.await?;
        let folder = stored.folder.clone();
        self.with(number, |series| series.stored = Some(stored));
        adopted?;
        Ok(folder)
    }

    /// Waits until a recorder hears the kernel; returns whether no message was missed.
    async fn hears(&self, number: u64, folder: &JobFolder, deadline: Instant) -> bool {
        // Its own: no other file work waits for it.
        let work = FileWork::default();
        let turn = work.turn().await;
        let mut ready = None;
        loop {
            if ready.is_none() {
                let folder = folder.clone();
                ready = turn.run(move || folder.ready()).await.ok().flatten();
            }
            let heard = ready.as_ref().is_some_and(|id| {
                let heard = |series: &mut Series| {
                    let heard = series.heard.as_ref();
                    heard.is_some_and(|heard| heard.contains(id))
                };
                self.with(number, heard).unwrap_or(true)
            });
            if heard || Instant::now() > deadline {
                return heard;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn with<T>(&self, number: u64, does: impl FnOnce(&mut Series) -> T) -> Option<T> {
        let mut all = self.all.borrow_mut();
        if let Some(series) = all.iter_mut().find(|series| series.number == number) {
            return Some(does(series));
        }
        let mut ended = self.ended.borrow_mut();
        let mut ended = ended.iter_mut().map(|it| &mut it.series);
        ended.find(|series| series.number == number).map(does)
    }
}

/// [`Keep::store`] at work, also where it panics.
struct Storing<'a>(&'a Keep);

impl Drop for Storing<'_> {
    fn drop(&mut self) {
        self.0.storing.set(false);
        self.0.rearm.notify_one();
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

/// Returns how far a message has come.
fn reach_of(
    all_read: bool,
    number: u64,
    reach: impl Fn(u64) -> DeliveryProgress,
) -> DeliveryProgress {
    if all_read {
        DeliveryProgress::Read
    } else {
        reach(number)
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
        let keep = Keep::new("human (VS Code)".to_owned(), "VS Code", Rc::default());
        take(&keep, "1", Phase::Asked);
        take(&keep, "1", Phase::Done("ok".to_owned()));
        assert_eq!(keep.all.borrow().len(), 1, "its idle is not here yet");
        keep.idle_lost("1", PUBLISHED);
        assert!(keep.all.borrow().is_empty());
        assert_eq!(keep.ended.borrow()[0].number, 8);
    }

    #[tokio::test]
    async fn ends_that_a_subscriber_has_not_read_take_few_open_files() {
        let temp = tempfile::tempdir().unwrap();
        let notebook = temp.path().join("t.ipynb");
        let target = Target {
            project: Project::for_notebook(&notebook).unwrap(),
            key: "t.ipynb".to_owned(),
        };
        let keep = Keep::new("human (VS Code)".to_owned(), "VS Code", Rc::default());
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
        keep.settle(|_| DeliveryProgress::Waits, |_| true, Settle::Due);
        keep.store(&target).await;
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
        keep.settle(|_| DeliveryProgress::Waits, |_| true, Settle::Stopped);
        // Until they are removed, no other command takes them for what a killed proxy has left.
        let mut folders = target.project.kept_jobs().into_iter();
        assert!(folders.all(|folder| matches!(folder.try_lock(), Ok(None))));
        keep.tidy().await;
        assert!(target.project.kept_jobs().is_empty());
    }
}

//! Stores the outputs of this front end's cells, in case it disconnects before they end.
//!
//! Outputs of short cells stay in memory. Outputs of cells that run for longer, or print much, go into a
//! folder for each series (`.nb/front_end_outputs/`), so that memory stays bounded and a killed proxy leaves them behind.
//! When a proxy ends, or a client disconnects, the proxy makes a job of them for a recorder; it goes on
//! storing until the recorder has reported the first message that it receives itself.
//!
//! Outputs of ended cells are stored until a subscriber that has read the end is still connected a moment
//! later. An editor that was killed before its cell ended, or that hangs, has not got them: if it disconnects
//! without having read them, a recorder writes them into the notebook.
//!
//! | file | content |
//! |---|---|
//! | `series` | the cells of one client, their outputs, and the folder that these go into |
//! | `ended` | series that have ended, until a subscriber has read their end |
//! | `handed_off`, `hand_off` | series that recorders have taken over; how they do so |

mod ended;
mod hand_off;
mod handed_off;
mod series;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::Notify;

use self::ended::EndedSeries;
pub(super) use self::ended::{Published, ReleaseReason};
use self::handed_off::HandedOff;
use self::series::{OutputLine, Series, SeriesStage, Stored};
use super::failure_log::FailureLog;
use super::storage::FileWork;
use super::target::Target;
use crate::project::Project;
use crate::project::jobs::{JobFolder, JobPrompt};
use crate::project::questions::Question;
use crate::route::{ClientId, ExecutionProgress, Phase};
use crate::socket::DeliveryProgress;
use crate::wire::{FACTS, Verified};

/// How many bytes of one series may wait while another thread writes. Above that iopub is not routed, and
/// after [`FULL_FOR`] they are dropped, since the disk does not answer.
const WAITING_MAX: usize = 8 << 20;
const FULL_FOR: Duration = Duration::from_secs(1);

/// The series of one front end whose cells the kernel has, and ended ones whose outputs have not provably
/// reached a client.
pub(super) struct StoredOutputs {
    /// The actor in whose name the cells run.
    by: String,
    front_end: String,
    running: RefCell<Vec<Series>>,
    ended: RefCell<EndedSeries>,
    /// Series that recorders have taken over; the kernel still sends their prompts to this process.
    handed_off: RefCell<HandedOff>,
    number: Cell<u64>,
    work: FileWork,
    /// Whether [`StoredOutputs::store`] runs.
    is_storing: Cell<bool>,
    /// Since when more bytes wait than allowed.
    full_since: Cell<Option<Instant>>,
    /// Files that must be removed.
    unneeded: RefCell<Vec<Unneeded>>,
    /// Notified when [`StoredOutputs::due`] may have become sooner.
    rearm: Rc<Notify>,
    failures: FailureLog,
}

/// A file that nothing needs any more.
enum Unneeded {
    /// The folder of cells whose outputs a client has got. Its lock is held until the folder is removed.
    Folder(Box<Stored>),
    /// The file of a prompt that was answered.
    Question(JobFolder),
}

/// Which series are handed off.
#[derive(Clone, Copy)]
pub(super) enum HandOffScope<'a> {
    /// Running series of the clients with these sessions.
    Sessions(&'a [String]),
    /// Ended series whose end no connected client has read.
    Unseen,
    /// All series of clients that are away: nobody looks at the page whose server holds the connections.
    Away,
    /// All series of all clients: this proxy ends.
    All,
}

impl StoredOutputs {
    /// Makes an empty store. `rearm` is notified when [`StoredOutputs::due`] may have become sooner.
    pub(super) fn new(by: String, front_end: &str, rearm: Rc<Notify>) -> Self {
        Self {
            by,
            front_end: front_end.to_owned(),
            running: RefCell::default(),
            ended: RefCell::default(),
            handed_off: RefCell::default(),
            number: Cell::new(0),
            work: FileWork::default(),
            is_storing: Cell::new(false),
            full_since: Cell::new(None),
            unneeded: RefCell::default(),
            rearm,
            failures: FailureLog::default(),
        }
    }

    // ---- messages of the kernel

    /// Takes a step of an execution; `kernel` is the session that owns the kernel, and the generation.
    pub(super) fn take_execution(
        &self,
        execution: &ExecutionProgress,
        kernel: (&str, u64),
        published: Published,
    ) {
        match &execution.phase {
            Phase::Sent if execution.store_history => self.begin(execution, kernel),
            Phase::Ended(status) => {
                for series in self.running.borrow_mut().iter_mut() {
                    series.set_reply(&execution.msg_id, status);
                }
                self.move_ended(published);
            }
            _ => {}
        }
    }

    fn begin(&self, execution: &ExecutionProgress, kernel: (&str, u64)) {
        let mut running = self.running.borrow_mut();
        let at = running.iter().position(|series| {
            let series_kernel = (&*series.owner, series.generation);
            series.session == execution.session
                && series.stage.is_running()
                && series_kernel == kernel
        });
        let at = at.unwrap_or_else(|| {
            self.number.set(self.number.get() + 1);
            running.push(Series::new(self.number.get(), &execution.session, kernel));
            running.len() - 1
        });
        if let Some(series) = running.get_mut(at) {
            series.begin(execution);
        }
    }

    /// Takes the end of a cell whose `idle` the kernel has dropped; the bridge publishes a replacement next.
    pub(super) fn idle_lost(&self, msg_id: &str, published: Published) {
        for series in self.running.borrow_mut().iter_mut() {
            series.set_idle(msg_id, Timestamp::now());
        }
        self.move_ended(published);
    }

    /// Takes a message of the kernel on iopub, which is published next.
    pub(super) fn take_iopub(&self, message: &Verified, published: Published) {
        let mut running = self.running.borrow_mut();
        if running.is_empty() {
            return;
        }
        let (Ok(header), Ok(parent)) = (message.header(), message.parent()) else {
            return;
        };
        for series in running.iter_mut() {
            if let SeriesStage::HandedOff { received, .. } = &mut series.stage {
                received.insert(header.msg_id.clone().into_owned());
            }
            let Some((at, cell)) = series.cell(&parent.msg_id) else {
                continue;
            };
            let now = Timestamp::now();
            match &*header.msg_type {
                "status" => match message.execution_state().as_deref() {
                    Some("busy") => cell.begun_at = cell.begun_at.or(Some(now)),
                    Some("idle") => series.set_idle(&parent.msg_id, now),
                    _ => {}
                },
                "execute_input" => {
                    let input: Option<Input> = message.read_content();
                    cell.input_at = Some(now);
                    cell.execution_count = input.and_then(|input| input.execution_count);
                }
                FACTS => continue,
                msg_type => {
                    let line = OutputLine {
                        cell: at,
                        msg_type: msg_type.to_owned(),
                        id: Some(header.msg_id.clone().into_owned()),
                        content: message.content().clone(),
                    };
                    series.add(line);
                    if series.folder.is_busy() && series.bytes > WAITING_MAX {
                        let since = self.full_since.get().unwrap_or_else(Instant::now);
                        self.full_since.set(Some(since));
                    }
                }
            }
            series.changed = true;
        }
        drop(running);
        self.move_ended(published);
    }

    /// Ends all cells, since the kernel has ended.
    pub(super) fn kernel_ended(&self, published: Published) {
        let mut running = self.running.borrow_mut();
        for series in running.extract_if(.., |series| series.stage.is_running()) {
            self.end(series, published);
        }
    }

    /// Removes series that have ended; those being handed over are removed afterwards.
    fn move_ended(&self, published: Published) {
        let mut running = self.running.borrow_mut();
        let has_ended = |series: &mut Series| series.stage.is_running() && series.all_cells_ended();
        for series in running.extract_if(.., has_ended) {
            self.end(series, published);
        }
    }

    fn end(&self, mut series: Series, published: Published) {
        series.end();
        if series.has_folder() && published.has_subscriber {
            series.write_end();
            self.rearm.notify_one();
        }
        let dropped = self.ended.borrow_mut().push(series, published);
        dropped
            .into_iter()
            .for_each(|series| self.drop_series(series));
    }

    // ---- prompts

    /// Takes a prompt for a client. Returns the arguments of [`StoredOutputs::pass_on`] if a recorder may
    /// answer it.
    pub(super) fn take_prompt(
        &self,
        client: &ClientId,
        message: &Verified,
    ) -> Option<(JobFolder, Question)> {
        let question = question(message)?;
        let mut running = self.running.borrow_mut();
        let mut running = running.iter_mut();
        let prompted = running.find_map(|it| it.cell(&question.msg_id).is_some().then_some(it));
        if let Some(series) = prompted {
            series.question = Some((client.clone(), question));
            return None;
        }
        let folder = self.handed_off.borrow().job_of(&question.msg_id)?;
        Some((folder, question))
    }

    /// Records whether a client is connected while its cells run.
    pub(super) fn set_client_joined(&self, client: &ClientId, is_joined: bool) {
        for series in self.running.borrow_mut().iter_mut() {
            if series.client.as_ref() == Some(client) {
                series.is_client_away = !is_joined;
            }
        }
    }

    /// Takes all clients for away: a Jupyter server keeps their connections, but their last page was closed.
    pub(super) fn set_all_away(&self) {
        for series in self.running.borrow_mut().iter_mut() {
            series.is_client_away = true;
        }
        self.ended.borrow_mut().set_all_away();
        self.rearm.notify_one();
    }

    /// Sets whether pages are open that say when they are closed, or that they are gone after a while: until then the
    /// outputs of ended cells are kept.
    pub(super) fn set_pages(&self, any_page: bool) {
        self.ended.borrow_mut().set_pages(any_page);
    }

    /// Returns whether outputs of running or ended cells are stored.
    pub(super) fn has_any(&self) -> bool {
        !self.running.borrow().is_empty() || self.ended.borrow().all().next().is_some()
    }

    /// Records that a client has answered its prompt.
    pub(super) fn end_prompt(&self, client: &ClientId) {
        for series in self.running.borrow_mut().iter_mut() {
            series.question.take_if(|(prompted, _)| prompted == client);
        }
        for folder in self.handed_off.borrow_mut().end_prompt(client) {
            self.remove_soon(Unneeded::Question(folder));
        }
    }

    // ---- cells that have ended

    /// Drops the cells whose end was read by a subscriber that is still connected. `progress` returns how far
    /// the message with a number has been delivered, `is_joined` whether a client is connected. Returns
    /// whether there are cells whose outputs no client has got, to be handed over.
    pub(super) fn release(
        &self,
        progress: impl Fn(u64) -> DeliveryProgress,
        is_joined: impl Fn(&ClientId) -> bool,
        reason: ReleaseReason,
    ) -> bool {
        let released = self.ended.borrow_mut().release(progress, is_joined, reason);
        if released.any_urgent {
            self.rearm.notify_one();
        }
        let has_unseen = !released.unseen.is_empty();
        let read = released.read.into_iter();
        read.for_each(|series| self.drop_series(series));
        self.running.borrow_mut().extend(released.unseen);
        has_unseen
    }

    /// Returns when [`StoredOutputs::release`] must be called.
    pub(super) fn release_at(&self) -> Option<Instant> {
        self.ended.borrow().release_at()
    }

    fn drop_series(&self, series: Series) {
        // A folder that is just being written is removed after the write.
        if let Some(stored) = series.folder.into_stored() {
            self.remove_soon(Unneeded::Folder(stored));
        }
    }

    // ---- writing

    /// Returns when [`StoredOutputs::store_soon`] must be called; `None` while a write is under way.
    pub(super) fn due(&self) -> Option<Instant> {
        if let Some(full_since) = self.full_since.get() {
            return Some(full_since + FULL_FOR);
        }
        if self.is_storing.get() {
            return None;
        }
        if !self.unneeded.borrow().is_empty() {
            return Some(Instant::now());
        }
        let running = self.running.borrow();
        let running = running.iter().filter_map(Series::due).min();
        running.into_iter().chain(self.ended.borrow().due()).min()
    }

    /// Returns whether more bytes wait to be written than allowed.
    pub(super) fn is_full(&self) -> bool {
        self.full_since.get().is_some()
    }

    /// Starts to write the series that are due, and to remove unneeded files. Returns when it must be called
    /// next.
    pub(super) fn store_soon(self: &Rc<Self>, target: impl FnOnce() -> Target) -> Option<Instant> {
        let due = self.due();
        if due.is_none_or(|due| due > Instant::now()) {
            return due;
        }
        if self.full_since.take().is_some() {
            tracing::warn!("outputs are not stored for now: the disk does not answer");
            let mut running = self.running.borrow_mut();
            running.iter_mut().for_each(Series::give_up);
        }
        if !self.is_storing.replace(true) {
            let (outputs, target) = (Rc::clone(self), target());
            tokio::task::spawn_local(async move { outputs.store(&target).await });
        }
        // The write notifies `rearm` when it is done.
        None
    }

    async fn store(&self, target: &Target) {
        let _storing = Storing(self);
        self.remove_unneeded(&target.project).await;
        let now = Instant::now();
        let numbers: Vec<u64> = {
            let (running, ended) = (self.running.borrow(), self.ended.borrow());
            let all = running.iter().chain(ended.all());
            let due = all.filter(|series| series.due().is_some_and(|due| due <= now));
            due.map(|series| series.number).collect()
        };
        for number in numbers {
            self.write(number, target).await;
        }
        self.ended.borrow_mut().update_urgent();
    }

    /// Removes unneeded files.
    pub(super) async fn remove_unneeded(&self, project: &Project) {
        let permit = self.work.acquire().await;
        let unneeded = self.unneeded.take();
        if unneeded.is_empty() {
            return;
        }
        let project = project.clone();
        let removed = permit.run(move || {
            for file in unneeded {
                match file {
                    Unneeded::Folder(stored) => project.followed_job(&stored.folder).remove(),
                    Unneeded::Question(folder) => project.followed_job(&folder).forget_question(),
                }
            }
        });
        let _ = removed.await;
    }

    fn remove_soon(&self, unneeded: Unneeded) {
        self.unneeded.borrow_mut().push(unneeded);
        self.rearm.notify_one();
    }

    /// Writes those messages of a series that are not in its folder yet.
    async fn write(&self, number: u64, target: &Target) {
        let permit = self.work.acquire().await;
        let write = self.with_series(number, |series| {
            series.begin_write(target, &self.by, &self.front_end)
        });
        let Some(write) = write else { return };
        let written = match permit.run(write).await {
            Ok(written) => written,
            Err(error) => {
                self.with_series(number, Series::lose_folder);
                return self.log_failure(&error);
            }
        };
        if self.full_since.take().is_some() {
            self.rearm.notify_one();
        }
        let mut written = Some(written);
        let ended = self.with_series(number, |series| {
            written.take().map(|it| series.end_write(it))
        });
        match ended.flatten() {
            Some(Ok(())) => self.failures.recovered("outputs are stored again"),
            Some(Err(error)) => self.log_failure(&error),
            // The series was dropped during the write.
            None => {
                if let Some(stored) = written.and_then(|it| it.stored) {
                    self.remove_soon(Unneeded::Folder(stored));
                }
            }
        }
    }

    fn log_failure(&self, error: &io::Error) {
        let text = format!("outputs cannot be stored: {error}");
        self.failures.report(error.kind(), &text);
    }

    fn with_series<T>(&self, number: u64, change: impl FnOnce(&mut Series) -> T) -> Option<T> {
        let mut running = self.running.borrow_mut();
        if let Some(series) = running.iter_mut().find(|series| series.number == number) {
            return Some(change(series));
        }
        self.ended.borrow_mut().get_mut(number).map(change)
    }
}

/// Resets `StoredOutputs::is_storing` when it is dropped, also after a panic.
struct Storing<'a>(&'a StoredOutputs);

impl Drop for Storing<'_> {
    fn drop(&mut self) {
        self.0.is_storing.set(false);
        self.0.rearm.notify_one();
    }
}

/// Reads a prompt of the kernel.
fn question(message: &Verified) -> Option<Question> {
    #[derive(Deserialize)]
    struct PromptContent {
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
    let PromptContent { prompt, password } = message.read_content()?;
    Some(Question {
        msg_id: parent.msg_id.clone().into_owned(),
        header: serde_json::from_slice(message.header_bytes()).ok()?,
        prompt: JobPrompt {
            prompt,
            password,
            number: None,
        },
    })
}

/// The content of an `execute_input`.
#[derive(Deserialize)]
struct Input {
    execution_count: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED: Published = Published {
        messages: 7,
        has_subscriber: true,
    };

    fn take_step(outputs: &StoredOutputs, msg_id: &str, phase: Phase) {
        let execution = ExecutionProgress {
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
        outputs.take_execution(&execution, ("t.ipynb", 1), PUBLISHED);
    }

    #[test]
    fn a_cell_whose_idle_was_lost_is_not_stored_for_ever() {
        let outputs = StoredOutputs::new("human (VS Code)".to_owned(), "VS Code", Rc::default());
        take_step(&outputs, "1", Phase::Sent);
        take_step(&outputs, "1", Phase::Ended("ok".to_owned()));
        assert_eq!(
            outputs.running.borrow().len(),
            1,
            "its idle is not here yet"
        );
        outputs.idle_lost("1", PUBLISHED);
        assert!(outputs.running.borrow().is_empty());
        assert_eq!(outputs.ended.borrow().numbers(), [8]);
    }

    /// Another window of JupyterLab has read the end, and shows nothing of it.
    #[test]
    fn outputs_that_only_another_client_has_read_are_handed_over() {
        let outputs =
            StoredOutputs::new("human (JupyterLab)".to_owned(), "JupyterLab", Rc::default());
        for (msg_id, is_joined) in [("1", true), ("2", false)] {
            take_step(&outputs, msg_id, Phase::Sent);
            let client = ClientId::new(msg_id.to_owned().into());
            for series in outputs.running.borrow_mut().iter_mut() {
                series.client = Some(client.clone());
            }
            outputs.set_client_joined(&client, is_joined);
            take_step(&outputs, msg_id, Phase::Ended("ok".to_owned()));
            outputs.idle_lost(msg_id, PUBLISHED);
            outputs.ended.borrow_mut().set_all_due(Instant::now());
            let has_unseen =
                outputs.release(|_| DeliveryProgress::Read, |_| true, ReleaseReason::Due);
            assert_eq!(has_unseen, !is_joined);
        }
    }

    #[tokio::test]
    async fn unread_series_use_few_open_files() {
        let temp = tempfile::tempdir().unwrap();
        let notebook = temp.path().join("t.ipynb");
        let target = Target {
            project: Project::for_notebook(&notebook).unwrap(),
            key: "t.ipynb".to_owned(),
        };
        let outputs = StoredOutputs::new("human (VS Code)".to_owned(), "VS Code", Rc::default());
        let cells = 3 * ended::FOLDERS_MAX;
        for number in 0..cells {
            let msg_id = number.to_string();
            take_step(&outputs, &msg_id, Phase::Sent);
            take_step(&outputs, &msg_id, Phase::Ended("ok".to_owned()));
            outputs.idle_lost(&msg_id, PUBLISHED);
        }
        let now = Instant::now();
        outputs.ended.borrow_mut().set_all_due(now);
        outputs.release(|_| DeliveryProgress::Waits, |_| true, ReleaseReason::Due);
        outputs.store(&target).await;
        assert_eq!(outputs.ended.borrow().numbers().len(), cells);
        let folders = target.project.kept_jobs();
        assert_eq!(folders.len(), ended::FOLDERS_MAX);
        let folder = std::fs::canonicalize(target.project.dir().join("front_end_outputs")).unwrap();
        let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let open = open.filter_map(|it| std::fs::read_link(it.path()).ok());
        assert_eq!(
            open.filter(|path| path.starts_with(&folder)).count(),
            ended::FOLDERS_MAX
        );
        outputs.release(
            |_| DeliveryProgress::Waits,
            |_| true,
            ReleaseReason::Stopped,
        );
        // Until the folders are removed, no other command must treat them as those of a killed proxy.
        let mut folders = target.project.kept_jobs().into_iter();
        assert!(folders.all(|folder| matches!(folder.try_lock(), Ok(None))));
        outputs.remove_unneeded(&target.project).await;
        assert!(target.project.kept_jobs().is_empty());
    }
}

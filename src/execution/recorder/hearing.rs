//! What the kernel says of a job's cells, and what others ask of the job.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;

use super::{Never, Recorder};
use crate::activity::company::whose;
use crate::client::IopubMessage;
use crate::execution::reply;
use crate::execution::run::{Audience, Event, Prompt};
use crate::kernel::process::{Process, Signal};
use crate::lifecycle::target::recorded;
use crate::notebook::{Document, OutputChange};
use crate::project::event::RunningCell;
use crate::project::jobs::{Ask, JobPrompt, JobState};

/// How often it is looked whether somebody asked something.
const LOOK: Duration = Duration::from_millis(50);

/// What others ask of the job.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) interrupts: Notify,
    pub(super) interrupted: Cell<bool>,
    /// After how many seconds the kernel of the cell under way is to be ended, where that is not
    /// soon after its time.
    pub(super) ends_after: Cell<Option<f64>>,
    pub(super) replies: RefCell<VecDeque<String>>,
    pub(super) replied: Notify,
}

impl Recorder<'_> {
    /// Hears what others ask of the job.
    pub(super) async fn listen(&self) -> Never {
        loop {
            for (file, ask) in self.folder.asks() {
                match ask {
                    Ask::Interrupt { .. } => {
                        self.answered();
                        self.asked.interrupted.set(true);
                        self.asked.interrupts.notify_one();
                    }
                    Ask::Write => {
                        self.write_all().await;
                    }
                    Ask::Reply { text } => self.replied(text),
                    Ask::Secret { socket } => match reply::fetch(&socket).await {
                        Ok(text) => self.replied(text),
                        Err(error) => tracing::warn!(%error, "a password could not be fetched"),
                    },
                }
                self.folder.forget(&file);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn replied(&self, text: String) {
        self.answered();
        self.asked.replies.borrow_mut().push_back(text);
        self.asked.replied.notify_one();
    }

    /// Takes a question for answered, if there is one.
    pub(super) fn answered(&self) {
        if self.job.borrow().prompt.is_some() {
            self.job(|job| {
                job.state = JobState::Running;
                job.prompt = None;
            });
        }
    }
}

/// How long a cell in a sandbox may run on after the interrupt that its time brought.
const IGNORES: Duration = Duration::from_secs(5);

impl Recorder<'_> {
    /// Returns how many seconds the cell under way has run; nothing before it began.
    fn ran(&self) -> Option<f64> {
        let outputs = self.outputs.borrow();
        let begun = outputs.get(self.at.get())?.busy?;
        Some(Timestamp::now().duration_since(begun).as_secs_f64())
    }

    /// Waits until the cell under way has run for so many seconds; for ever where there is no limit.
    async fn ran_for(&self, limit: Option<f64>) {
        let left = limit
            .zip(self.ran())
            .map(|(limit, ran)| (limit - ran).max(0.0));
        match left.and_then(|left| Duration::try_from_secs_f64(left).ok()) {
            Some(left) => tokio::time::sleep(left).await,
            None => std::future::pending().await,
        }
    }

    /// Ends the kernel of a cell that ran past the time of its sandbox and past its interrupt: a cell
    /// can ignore that, and a sandbox promises a bound. Other kernels, and their variables, are left
    /// alone.
    fn end_overdue(&self) {
        self.asked.ends_after.set(Some(f64::INFINITY));
        let (key, generation) = {
            let job = self.job.borrow();
            (job.session.clone(), job.generation)
        };
        let state = self.project.state().ok();
        let session = state.and_then(|state| recorded(&state, self.project, &key));
        let session = session.filter(|session| Some(session.generation) == generation);
        let Some(session) = session else { return };
        let bound = session.sandbox().and_then(|it| it.max_time_s);
        let (Some(bound), Some(process)) = (bound, Process::recorded(&session)) else {
            return;
        };
        let grace = IGNORES.as_secs_f64();
        // Who asked for less time than the sandbox gives has asked for no more than an interrupt.
        if self.ran().is_some_and(|ran| ran < bound + grace) {
            self.asked.ends_after.set(Some(bound + grace));
            return;
        }
        let note = format!(
            "it ran on {grace} s after its interrupt, past the {bound} s that its sandbox gives a cell: its kernel was ended, and the variables are gone"
        );
        self.job(|job| job.notes.push(note));
        if let Err(error) = process.signal_group(Signal::KILL) {
            tracing::warn!(%error, "the kernel could not be ended");
        }
    }

    /// Learns of an output widget that an earlier job made, before it takes what this one says.
    fn recall_widget(&self, msg_type: &str, content: &[u8]) {
        if msg_type != "comm_msg" {
            return;
        }
        let lacking = self.widgets.borrow().unknown_output_widget(content);
        if let Some(id) = lacking {
            let text = std::fs::read(&self.job.borrow().path).ok();
            let document = text.and_then(|text| Document::parse(text).ok());
            self.widgets.borrow_mut().load(&id, document.as_ref());
        }
    }
}

impl Audience for Recorder<'_> {
    fn sent(&self, msg_id: &str) {
        // Written down when the kernel begins with it, which is at once.
        if let Some(cell) = self.job.borrow_mut().cells.get_mut(self.at.get()) {
            cell.msg_id = Some(msg_id.to_owned());
        }
    }

    fn sees(&self, event: &Event) {
        let at = self.at.get();
        let now = Timestamp::now();
        let mut all = self.outputs.borrow_mut();
        let Some(recorded) = all.get_mut(at) else {
            return;
        };
        match event {
            Event::Begun => {
                self.widgets.borrow_mut().begin();
                recorded.busy = Some(now);
                // At once: whoever goes on for a recorder that was killed needs the request's id.
                self.job(|job| {
                    // A question comes on a socket of its own, and may be here before.
                    if job.prompt.is_none() {
                        job.state = JobState::Running;
                    }
                    job.behind = None;
                    job.behind_since = None;
                    job.cells[at].begun_at = Some(now);
                });
            }
            Event::Counted(count) => {
                recorded.input = Some(now);
                // What the cell showed before goes, so that an open editor has a sign that it runs.
                self.unwritten.borrow_mut().insert(at);
                self.changed.notify_one();
                self.job_soon(|job| {
                    job.cells[at].input_at = Some(now);
                    job.cells[at].execution_count = Some(*count);
                });
            }
            Event::Prompt(prompt) => self.job(|job| {
                job.state = JobState::WaitingInput;
                job.prompt = Some(JobPrompt {
                    prompt: prompt.prompt.clone(),
                    password: prompt.password,
                });
            }),
            Event::Iopub(IopubMessage {
                msg_type,
                content,
                buffers,
            }) => {
                self.recall_widget(msg_type, content);
                let is_widgets = self.widgets.borrow_mut().take(msg_type, content, buffers);
                recorded.raised |= msg_type == "error";
                let fold = if is_widgets {
                    OutputChange::Changed
                } else {
                    recorded.folded.take(msg_type, content)
                };
                if fold == OutputChange::Nothing {
                    return;
                }
                if let Err(error) = self.events.borrow_mut().append(at, msg_type, content) {
                    let note = format!("not all that the kernel said is in the job: {error}");
                    self.job(|job| {
                        if !job.notes.contains(&note) {
                            job.notes.push(note);
                        }
                    });
                }
                let mut unwritten = self.unwritten.borrow_mut();
                unwritten.insert(at);
                if let OutputChange::Displayed { display_id, shown } = fold {
                    let mut is_own = all.get(at).is_some_and(|it| it.folded.shows(&display_id));
                    for (other, recorded) in all.iter_mut().enumerate() {
                        if other != at && recorded.folded.update(&display_id, &shown) {
                            is_own = true;
                            unwritten.insert(other);
                        }
                    }
                    self.takes_shown(&display_id, &shown, is_own);
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

    fn waits(&self, behind: Option<&RunningCell>) {
        self.job(|job| {
            job.behind = Some(behind.map_or_else(|| "another client".to_owned(), whose));
            job.behind_since = behind.map(|cell| cell.since);
        });
    }

    async fn interrupts(&self) {
        loop {
            let max_time = self.job.borrow().max_time;
            let limit = max_time.filter(|_| !self.asked.interrupted.get());
            let ends_after = max_time.map(|time| time + IGNORES.as_secs_f64());
            let ends_after = self.asked.ends_after.get().or(ends_after);
            tokio::select! {
                () = self.asked.interrupts.notified() => return,
                () = self.ran_for(limit) => {
                    self.asked.interrupted.set(true);
                    let seconds = max_time.unwrap_or_default();
                    let note = format!("it ran longer than {seconds} s, and was interrupted");
                    self.job(|job| job.notes.push(note));
                    return;
                }
                () = self.ran_for(ends_after) => self.end_overdue(),
            }
        }
    }
}

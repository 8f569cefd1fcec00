//! Receives the kernel's messages about a job's cells, and the requests of other processes to the
//! recorder.

use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;

use super::state::Recorder;
use crate::activity::labels::cell_with_actor;
use crate::client::IopubMessage;
use crate::editing::content::read_notebook;
use crate::execution::reply;
use crate::execution::run::{ExecutionEvent, Prompt, RunObserver};
use crate::kernel::process::{Process, Signal};
use crate::lifecycle::target::recorded;
use crate::notebook::Document;
use crate::project::FolderWatch;
use crate::project::event::RunningExecution;
use crate::project::jobs::{JobPrompt, JobState, RecorderRequest};

/// How often to check for requests where the system reports no changes.
const POLL_PAUSE: Duration = Duration::from_millis(50);

/// How often to check in any case: requests from another machine are not reported.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(500);

impl Recorder<'_> {
    /// Handles requests to the recorder.
    pub(super) async fn handle_requests(&self) -> Infallible {
        let mut watch = FolderWatch::begin(&[&self.folder.requests_folder()], POLL_PAUSE);
        loop {
            for (file, request) in self.folder.requests() {
                match request {
                    RecorderRequest::Interrupt { .. } => {
                        self.answered();
                        self.interrupted.set(true);
                        self.interrupt_signal.notify_one();
                    }
                    RecorderRequest::Write => self.write_all().await,
                    RecorderRequest::Reply { text, prompt } => self.replied(text, prompt),
                    RecorderRequest::Secret { socket, prompt } => match reply::fetch(&socket).await
                    {
                        Ok(text) => self.replied(text, prompt),
                        Err(error) => tracing::warn!(%error, "a password could not be fetched"),
                    },
                }
                self.folder.forget(&file);
            }
            let _ = tokio::time::timeout(CHECK_INTERVAL, watch.changed(|_| true)).await;
        }
    }

    /// Takes an answer, unless it is one to another input request than the present one: that one was answered before.
    fn replied(&self, text: String, prompt: Option<u64>) {
        let present = self.job.borrow().prompt.as_ref().map(|it| it.number);
        if prompt.is_some() && present != Some(prompt) {
            return;
        }
        self.answered();
        self.replies.borrow_mut().push_back(text);
        self.replied.notify_one();
    }
}

/// The note of a job whose code a debugger has stopped.
const STOPPED: &str = "the debugger of a front end has stopped it at a breakpoint: it waits until a person goes on there, or until nb interrupt";

/// How long a cell in a sandbox may run on after the interrupt at its time limit.
const IGNORES: Duration = Duration::from_secs(5);

impl Recorder<'_> {
    /// Returns for how many seconds the running cell has run; `None` before it began.
    fn ran(&self) -> Option<f64> {
        let job = self.job.borrow();
        let begun = job.cells.get(self.at.get())?.begun_at?;
        Some(Timestamp::now().duration_since(begun).as_secs_f64())
    }

    /// Waits until the running cell has run for `limit` seconds; for ever if there is no limit.
    async fn ran_for(&self, limit: Option<f64>) {
        let left = limit
            .zip(self.ran())
            .map(|(limit, ran)| (limit - ran).max(0.0));
        match left.and_then(|left| Duration::try_from_secs_f64(left).ok()) {
            Some(left) => tokio::time::sleep(left).await,
            None => std::future::pending().await,
        }
    }

    /// Ends the kernel of a cell that ignored the interrupt at its sandbox's time limit: a cell can
    /// ignore an interrupt, but a sandbox guarantees a limit. Other kernels, and their variables, are
    /// left alone.
    fn end_overdue(&self) {
        self.ends_after.set(Some(f64::INFINITY));
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
        // A shorter limit of the caller's is enforced only by an interrupt.
        if self.ran().is_some_and(|ran| ran < bound + grace) {
            self.ends_after.set(Some(bound + grace));
            return;
        }
        let note = format!(
            "it ran on {grace} s after its interrupt, past the {bound} s that its sandbox gives a cell: its kernel was ended, and the variables are gone"
        );
        self.note(note);
        if let Err(error) = process.signal_group(Signal::KILL) {
            tracing::warn!(%error, "the kernel could not be ended");
        }
    }

    /// Takes a message about a cell: writes it into the job's folder at once, and into the notebook
    /// later.
    pub(super) fn record_message(&self, at: usize, message: &IopubMessage) {
        let IopubMessage {
            id,
            msg_type,
            content,
            buffers,
        } = message;
        self.recall_widget(msg_type, content);
        let mut outputs = self.outputs.borrow_mut();
        let change = outputs.take(at, msg_type, content, buffers);
        if change.cells.is_empty() {
            return;
        }
        if let Err(error) = self
            .events
            .borrow_mut()
            .append(at, msg_type, id.as_deref(), content)
        {
            self.note(format!(
                "not all that the kernel said is in the job: {error}"
            ));
        }
        self.unwritten.borrow_mut().extend(change.cells);
        self.changed.notify_one();
        // Code that is not a cell has no outputs in the notebook.
        let may_change_notebook = {
            let job = self.job.borrow();
            job.saves || job.cells.iter().all(|cell| cell.cell.is_none())
        };
        if let Some(displayed) = change.displayed.filter(|_| may_change_notebook) {
            let mut elsewhere = self.earlier_updates.borrow_mut();
            elsewhere.take(displayed, || self.earlier_displays());
        }
    }

    /// Loads an output widget that an earlier job made, before its message is applied.
    fn recall_widget(&self, msg_type: &str, content: &[u8]) {
        if msg_type != "comm_msg" {
            return;
        }
        let widgets = &mut self.outputs.borrow_mut().widgets;
        if let Some(id) = widgets.unknown_output_widget(content) {
            let text = read_notebook(&self.job.borrow().path).ok();
            let document = text.and_then(|text| Document::parse(text).ok());
            widgets.load(&id, document.as_ref());
        }
    }
}

impl RunObserver for Recorder<'_> {
    fn on_sent(&self, msg_id: &str) {
        // It is written to disk when the kernel begins to run it, which is at once.
        if let Some(cell) = self.job.borrow_mut().cells.get_mut(self.at.get()) {
            cell.msg_id = Some(msg_id.to_owned());
        }
    }

    fn on_event(&self, event: &ExecutionEvent) {
        let at = self.at.get();
        if at >= self.job.borrow().cells.len() {
            return;
        }
        let now = Timestamp::now();
        match event {
            ExecutionEvent::Begun => {
                self.outputs.borrow_mut().widgets.begin();
                // Written at once: a recorder that replaces a killed one needs the request's id.
                self.job(|job| {
                    // An input request comes on another socket, and may arrive earlier.
                    if job.prompt.is_none() {
                        job.state = JobState::Running;
                    }
                    job.clear_wait();
                    job.cells[at].begun_at = Some(now);
                });
            }
            ExecutionEvent::Counted(count) => {
                // The cell's earlier outputs are removed now, which shows in an open editor that it
                // runs.
                self.has_changed(at);
                self.job_soon(|job| {
                    job.cells[at].input_at = Some(now);
                    job.cells[at].execution_count = Some(*count);
                });
            }
            ExecutionEvent::Prompt(prompt) => self.job(|job| {
                job.state = JobState::WaitingInput;
                job.prompts += 1;
                job.prompt = Some(JobPrompt {
                    prompt: prompt.prompt.clone(),
                    password: prompt.password,
                    number: Some(job.prompts),
                });
            }),
            ExecutionEvent::Iopub(message) => self.record_message(at, message),
            ExecutionEvent::Stopped => self.note(STOPPED.to_owned()),
        }
    }

    async fn answer(&self, _prompt: Prompt) -> Option<String> {
        loop {
            let reply = self.replies.borrow_mut().pop_front();
            if reply.is_some() {
                return reply;
            }
            self.replied.notified().await;
        }
    }

    fn on_wait(&self, behind: Option<&RunningExecution>, otherwise: &str) {
        let cell_with_actor = behind.map_or_else(|| otherwise.to_owned(), cell_with_actor);
        let since = behind.map(|cell| cell.since);
        let prompt = behind.and_then(|cell| cell.prompt.clone());
        let is_known = {
            let job = self.job.borrow();
            job.behind.as_ref() == Some(&cell_with_actor)
                && job.behind_since == since
                && job.behind_prompt == prompt
        };
        if is_known {
            return;
        }
        self.job(|job| {
            job.behind = Some(cell_with_actor);
            job.behind_since = since;
            job.behind_job = behind.and_then(|cell| cell.job.clone());
            job.behind_prompt = prompt;
        });
    }

    async fn interrupted(&self) {
        loop {
            let max_time = self.job.borrow().max_time;
            let limit = max_time.filter(|_| !self.interrupted.get());
            let ends_after = max_time.map(|time| time + IGNORES.as_secs_f64());
            let ends_after = self.ends_after.get().or(ends_after);
            tokio::select! {
                () = self.interrupt_signal.notified() => return,
                () = self.ran_for(limit) => {
                    self.interrupted.set(true);
                    self.is_over_time.set(true);
                    let seconds = max_time.unwrap_or_default();
                    let note = format!("it ran longer than {seconds} s, and was interrupted");
                    self.note(note);
                    return;
                }
                () = self.ran_for(ends_after) => self.end_overdue(),
            }
        }
    }
}

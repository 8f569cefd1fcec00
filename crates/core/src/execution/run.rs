//! Runs code on the shared kernel when it is the code's turn, and follows it to its end.
//!
//! The request is sent when the kernel is idle. So a caller that gives up while others' cells run
//! leaves nothing behind, and an interrupt can only concern this code. After a cell of this runner
//! the kernel is idle already. If another client sends a request at that very moment, that one is
//! earlier in the kernel's queue, and an interrupt waits until this code runs. The messages about the
//! code are not stored here but passed to the [`RunObserver`].

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use super::category;
use super::ending::{Ending, kernel_ending};
use super::observed;
use super::reply_outputs::{self, ReceivedOutputs};
use crate::client::{
    Client, ClientError, Execute, ExecuteRequest, ExecutionStep, FollowedStep, IopubMessage,
    RequestEnd, SequenceNumbers,
};
pub use crate::client::{
    DisplayContent, EOF, ExecutionEvent, KernelException, OutputMessage, Prompt, StreamText,
};
use crate::hint::Hint;
use crate::kernel::process::connection::{self, ConnectionError};
use crate::kernel::process::{Process, Signal, SignalError};
use crate::kernel::spec::quirks;
use crate::lifecycle::death::{self, note_death};
use crate::lifecycle::liveness::{Liveness, liveness};
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::reconnect::reconnect;
use crate::lifecycle::server_connection;
use crate::project::event::{
    CellEnd, Event as JournalEvent, EventKind, ExecutionEnd, ExecutionStart, RunningExecution,
    split_actor,
};
use crate::project::jobs::Job;
use crate::project::{
    ErrorCategory, FolderWatch, InterruptMode, Project, RemoteKernel, Session, StateError, Status,
};
use crate::wire::ConnectionInfo;

/// How often to send code that was removed from the queue because another client's cell failed.
const SENDS: u32 = 3;

/// The pause before a cell is sent a second time, after another client's error emptied the queue.
const SEND_PAUSE: Duration = Duration::from_millis(250);

/// How long a command that interrupts the kernel may take to record it, and the pause between two looks.
const INTERRUPT_RECORDED: Duration = Duration::from_millis(250);
const INTERRUPT_POLL: Duration = Duration::from_millis(10);

/// The longest wait for others' cells that is not reported.
const SOON: Duration = Duration::from_millis(300);

/// How long a process lives at most after it was killed and its sockets were closed.
pub(super) const CLOSES: Duration = Duration::from_secs(5);

/// The time between two readings of what others' cells do, while this code waits for them.
const STILL_WAITS: Duration = Duration::from_secs(1);

/// How long to wait for a start or restart that another process began.
const SETTLES: Duration = Duration::from_secs(60);

/// How often to check whether that is done, where the system reports no changes.
const POLL_PAUSE: Duration = Duration::from_millis(50);

/// The code to run, and how.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The code.
    pub code: String,
    /// The id of the notebook's cell, if the code is one.
    pub cell: Option<String>,
    /// Whether another piece of code follows at once if this one succeeds: its end may be written to
    /// the journal together with the beginning of the next.
    pub goes_on: bool,
    /// Whether the code may ask for input. If not, the kernel raises an error where it asks.
    pub may_ask: bool,
}

/// The caller's part while the code runs.
pub trait RunObserver {
    /// Takes the events of the execution, as they happen.
    fn on_event(&self, event: &ExecutionEvent);

    /// Takes the id of the request, once it was sent.
    fn on_sent(&self, _msg_id: &str) {}

    /// Answers an input request of the code; `None` is the end of the input. Cancel safe.
    fn answer(&self, prompt: Prompt) -> impl Future<Output = Option<String>>;

    /// Is called when the code waits: for the cell that the kernel runs, if that is known, else for what the text names.
    fn on_wait(&self, _behind: Option<&RunningExecution>, _otherwise: &str) {}

    /// Waits until the user wants the code interrupted. Cancel safe.
    fn interrupted(&self) -> impl Future<Output = ()>;
}

/// The result of a run.
#[derive(Debug)]
pub struct FinishedRun {
    /// How the code ended.
    pub status: CellEnd,
    /// The kind of the error that ended it, as far as the kernel's messages or its end show it.
    pub category: Option<ErrorCategory>,
    /// The execution count.
    pub execution_count: Option<u64>,
    /// How long it took, including the wait for others' cells.
    pub took: Duration,
    /// Further notes for the caller: outputs that are missing.
    pub notes: Vec<String>,
}

/// Why no code was run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The connection file is missing or not usable.
    #[error(transparent)]
    ConnectionFile(#[from] ConnectionError),
    /// The project's state is not usable.
    #[error(transparent)]
    State(#[from] StateError),
    /// The kernel has ended.
    #[error("{text}")]
    Ended {
        /// How it ended, in words.
        text: String,
        /// The command that starts a new one.
        fix: Hint,
    },
    /// The kernel was being started or restarted, and did not become ready in time.
    #[error("the kernel is not ready after {0:?}")]
    NotReady(Duration),
    /// The kernel cannot be reached from here.
    #[error(transparent)]
    Unseen(Box<OpenError>),
    /// The communication with the kernel failed.
    #[error("cannot talk to the kernel")]
    Client(#[from] ClientError),
}

impl RunError {
    /// Returns the error that a session's kernel has ended, and how, if known.
    pub(super) fn ended(key: &str, session: Option<&Session>) -> Self {
        let ended = session.and_then(|session| session.ended.as_ref());
        let died = session.is_some_and(|session| session.status == Status::Died);
        let text = match ended.filter(|_| died) {
            Some(ended) => death::description(key, ended),
            None => format!("the kernel of {key} has ended"),
        };
        let notebook = session.map_or(Path::new(key), |session| &session.notebook);
        let fix = death::fix_command(notebook);
        Self::Ended { text, fix }
    }

    /// Returns the error that the kernel of a session has ended in this way.
    pub(super) fn of(ending: &Ending, session: &Session) -> Self {
        Self::Ended {
            text: ending.text().to_owned(),
            fix: death::fix_command(&session.notebook),
        }
    }

    /// Returns whether the sandbox in which `nb` runs forbids all sockets; it is not known then
    /// whether the kernel runs.
    pub fn is_sandboxed(&self) -> bool {
        match self {
            Self::Client(error) => error.is_sandboxed(),
            Self::Unseen(error) => matches!(**error, OpenError::Unchecked { .. }),
            _ => false,
        }
    }

    /// Returns the status of the cell that was not run.
    pub(super) fn cell_end(&self) -> CellEnd {
        match self {
            Self::State(_) | Self::NotReady(_) => CellEnd::NotRun,
            Self::ConnectionFile(_) | Self::Ended { .. } | Self::Unseen(_) | Self::Client(_) => {
                CellEnd::NoKernel
            }
        }
    }
}

/// A connection to a session's kernel, which runs one piece of code after the other.
pub struct Runner {
    kernel: JoinedKernel,
    client: Client,
    /// The value of `others` when the last cell of this runner ended and left the kernel idle.
    left_idle: Option<u64>,
}

/// The kernel, and the actor and job that use it.
struct JoinedKernel {
    project: Project,
    key: String,
    session: Session,
    by: String,
    /// The id of the job of the executions.
    job: Option<String>,
    /// The job's notebook, if the kernel belongs to another notebook's session.
    notebook: Option<String>,
    process: Option<Process>,
    /// How many steps of other clients' cells were seen on iopub.
    others: Arc<AtomicU64>,
    /// The events to write to the journal before any others.
    unwritten: Vec<JournalEvent>,
}

impl Runner {
    /// Connects to the kernel of a session, whose key in the project is `key`, as the actor `by`.
    /// Waits for a kernel that is being started.
    ///
    /// # Errors
    /// The kernel has ended, is not ready in time, or cannot be reached.
    pub async fn join(
        project: &Project,
        key: &str,
        session: &Session,
        by: &str,
        wait: Option<Duration>,
    ) -> Result<Self, RunError> {
        let session = settled(project, key, session, wait).await?;
        let (info, process) = reach(project, key, &session).await?;
        let mut kernel = JoinedKernel {
            project: project.clone(),
            key: key.to_owned(),
            session,
            by: by.to_owned(),
            job: None,
            notebook: None,
            process,
            others: Arc::default(),
            unwritten: Vec::new(),
        };
        let client = kernel.connect(&info).await?;
        // The next kernel listens at the same addresses.
        if kernel.is_being_ended() {
            let process = kernel.process.as_ref();
            let ending = kernel_ending(project, key, &kernel.session, process, "it ended").await;
            return Err(RunError::of(&ending, &kernel.session));
        }
        Ok(Self {
            kernel,
            client,
            left_idle: None,
        })
    }

    /// Sets the job to which later runs belong.
    pub fn set_job(&mut self, job: &Job) {
        self.kernel.job = Some(job.id.clone());
        self.kernel.notebook = Some(job.notebook.clone()).filter(|it| *it != self.kernel.key);
    }

    /// Returns the generation of the session's kernel.
    pub fn generation(&self) -> u64 {
        self.kernel.session.generation
    }

    /// Runs code to its end.
    ///
    /// # Errors
    /// [`RunError`] if nothing was sent; later failures are part of the [`CellEnd`].
    pub async fn run(
        &mut self,
        options: &RunOptions,
        observer: &impl RunObserver,
    ) -> Result<FinishedRun, RunError> {
        // Directly after a cell of this runner the kernel is idle, and asking it would take as long as a
        // small cell. If another client has sent a request since, that one is earlier in the kernel's
        // queue.
        let others = self.kernel.others.load(Ordering::Relaxed);
        let mut is_idle = self.left_idle.take() == Some(others);
        if !is_idle {
            self.kernel.write_down();
        }
        let client = &mut self.client;
        let mut running = Running {
            kernel: &mut self.kernel,
            options,
            began: Instant::now(),
            received: ReceivedOutputs::default(),
            notes: Vec::new(),
            category: None,
            execution_count: None,
            is_idle_missing: false,
        };
        let mut status = CellEnd::Aborted;
        for send in 0..SENDS {
            let ended = match std::mem::take(&mut is_idle) {
                true => None,
                false => match running.idle(client, observer).await {
                    Err(error) if running.kernel.rejoin(client, &error).await => continue,
                    Err(error) => return Err(running.with_ending(error).await),
                    Ok(ended) => ended,
                },
            };
            status = match ended {
                Some(status) => status,
                None => match running.once(client, observer).await {
                    Err(error) if running.kernel.rejoin(client, &error).await => continue,
                    Err(error) => return Err(running.with_ending(error).await),
                    Ok(status) => status,
                },
            };
            if status != CellEnd::Aborted {
                break;
            }
            if send + 1 < SENDS {
                // tslab (1.0) refuses all that comes within 200 ms of an error.
                tokio::time::sleep(SEND_PAUSE * (send + 1)).await;
            }
        }
        if matches!(status, CellEnd::Ok | CellEnd::Error) && !running.is_idle_missing {
            self.left_idle = Some(running.kernel.others.load(Ordering::Relaxed));
        }
        Ok(FinishedRun {
            status,
            category: running.category,
            execution_count: running.execution_count,
            took: running.began.elapsed(),
            notes: running.notes,
        })
    }

    /// Returns the kernel's client and session.
    pub(super) fn parts(&mut self) -> (&mut Client, &Session) {
        (&mut self.client, &self.kernel.session)
    }

    /// Sends a message to the kernel's side of a comm.
    pub fn tell_comm(&mut self, content: &RawValue) {
        self.client.tell_comm(&content);
    }

    /// Returns the kernel's process, if it is visible from here.
    pub(super) fn process(&self) -> Option<&Process> {
        self.kernel.process.as_ref()
    }

    /// Interrupts the running cell; returns whether the interrupt was sent.
    pub(super) async fn interrupt(&mut self) -> bool {
        /// How long the kernel may take to answer a message.
        const ANSWERS: Duration = Duration::from_secs(2);
        if let Some(signalled) = self.kernel.signal_interrupt() {
            return signalled.is_ok();
        }
        self.client.interrupt(ANSWERS).await.is_ok()
    }

    /// Disconnects after the sockets' queues were written: an interrupt or an answer may be in them.
    pub async fn leave(mut self) {
        self.kernel.write_down();
        self.client.close().await;
    }
}

impl JoinedKernel {
    /// Connects a client to the kernel.
    async fn connect(&mut self, info: &ConnectionInfo) -> Result<Client, ClientError> {
        let mut client = Client::connect(info, split_actor(&self.by).0).await?;
        let spec = self.session.kernelspec.as_ref();
        if let Some(silence) = spec.and_then(quirks::silence_after_idle) {
            client.linger(silence);
        }
        let mut journal = observed::journal(&self.project, &self.key, self.session.generation);
        let count = Arc::clone(&self.others);
        client.observe(move |foreign| {
            if !matches!(foreign.step, ExecutionStep::Facts { .. }) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            journal(foreign);
        });
        if let Some(process) = self.process.clone() {
            client.watch(async move {
                process.death().await;
                format!("process {} has ended", process.pid)
            });
        }
        Ok(client)
    }

    /// Says whether the process that holds the connection to the kernel, or the kernel itself, is alive as far as this is
    /// known: what is sent to a process that was just killed would be lost.
    fn is_connected(&self) -> bool {
        self.process.as_ref().is_none_or(Process::is_alive)
    }

    /// Connects again after an error, if only the bridge to the kernel's server has ended; returns whether it has.
    async fn rejoin(&mut self, client: &mut Client, error: &RunError) -> bool {
        match error {
            RunError::Client(ClientError::KernelGone(_)) => match self.join_again().await {
                Some(again) => {
                    *client = again;
                    true
                }
                None => false,
            },
            _ => false,
        }
    }

    /// Returns a client of the same kernel over the next bridge to its server; `None` if the kernel has ended, or runs on
    /// this machine.
    async fn join_again(&mut self) -> Option<Client> {
        self.session.as_remote()?;
        if let Some(process) = &self.process {
            process.ended_within(CLOSES).await;
        }
        let key = self.project.current_key(&self.key);
        let now = reconnect(&self.project, &key).await.ok()?;
        if now.generation != self.session.generation {
            return None;
        }
        let (info, process) = reach(&self.project, &key, &now).await.ok()?;
        (self.session, self.process) = (now, process);
        self.connect(&info).await.ok()
    }

    /// Says whether the kernel is being restarted or shut down, or was: its cell is interrupted then, so that it can end.
    fn is_being_ended(&self) -> bool {
        let key = self.project.current_key(&self.key);
        let now = self.project.state().ok().and_then(|it| it.session(&key));
        now.is_some_and(|now| {
            matches!(now.status, Status::Restarting | Status::Stopped)
                || now.generation != self.session.generation
        })
    }

    /// Writes the events that are not in the journal yet.
    fn write_down(&mut self) {
        let events = std::mem::take(&mut self.unwritten);
        if !events.is_empty() {
            self.project.record(&events);
        }
    }

    /// Interrupts the kernel by a signal; `None` if it wants a message, or its process is not visible.
    fn signal_interrupt(&self) -> Option<Result<(), SignalError>> {
        let process = self.process.as_ref();
        let process = process.filter(|_| self.session.interrupt_mode() == InterruptMode::Signal)?;
        // The signal goes to the whole process group: the code may wait for a program that it
        // started.
        Some(process.signal_group(Signal::INT))
    }

    /// Says whether another command has interrupted the kernel since `asked_at`. It records that just after the signal.
    async fn was_interrupted_since(&self, asked_at: jiff::Timestamp) -> bool {
        let is_one = |event: JournalEvent| {
            matches!(event.kind, EventKind::Interrupted)
                && event.generation == Some(self.session.generation)
        };
        let begun = Instant::now();
        while begun.elapsed() < INTERRUPT_RECORDED {
            let events = self.project.events(&self.key);
            if events.take_while(|it| it.at >= asked_at).any(is_one) {
                return true;
            }
            tokio::time::sleep(INTERRUPT_POLL).await;
        }
        false
    }

    fn event(&self, kind: EventKind) -> JournalEvent {
        JournalEvent {
            generation: Some(self.session.generation),
            by: Some(self.by.clone()),
            notebook: self.notebook.clone(),
            ..JournalEvent::now(&self.key, kind)
        }
    }
}

/// Returns the note that a kernel dropped messages.
fn lost(messages: u64) -> String {
    format!(
        "{messages} messages were lost by the kernel's own queue, which drops what is above 1000: fewer, larger prints lose nothing"
    )
}

/// Reads how a session's kernel is reached, and checks that it runs.
///
/// # Errors
/// The kernel has ended, or its state cannot be known from here.
pub(super) async fn reach(
    project: &Project,
    key: &str,
    session: &Session,
) -> Result<(ConnectionInfo, Option<Process>), RunError> {
    let info = connection::read(&session.connection_file)?;
    match liveness(session).await {
        Liveness::Own(process) => match OpenError::process_stopped(session, &process) {
            Some(error) => Err(RunError::Unseen(Box::new(error))),
            None => Ok((info, Some(process))),
        },
        Liveness::Foreign => Ok((info, None)),
        Liveness::Disconnected => {
            let session = reconnect(project, key).await;
            let session = session.map_err(|error| RunError::Unseen(Box::new(error)))?;
            Ok((
                connection::read(&session.connection_file)?,
                Process::recorded(&session),
            ))
        }
        Liveness::Dead => {
            let session = match session.status {
                Status::Live => note_death(project, key, session.clone())?,
                _ => session.clone(),
            };
            Err(RunError::ended(key, Some(&session)))
        }
        Liveness::OutOfReach => Err(RunError::Unseen(Box::new(OpenError::out_of_reach(session)))),
    }
}

/// Waits while the kernel is being started or restarted; returns its session afterwards.
async fn settled(
    project: &Project,
    key: &str,
    session: &Session,
    wait: Option<Duration>,
) -> Result<Session, RunError> {
    let is_settled =
        |session: &Session| !matches!(session.status, Status::Starting | Status::Restarting);
    if is_settled(session) {
        return Ok(session.clone());
    }
    let mut watch = FolderWatch::begin(&[project.dir()], POLL_PAUSE);
    let settled = async {
        loop {
            let state = project.state()?;
            if let Some(session) = state.sessions.get(key).filter(|it| is_settled(it)) {
                return Ok(session.clone());
            }
            let is_state = |name: Option<&str>| name.is_none_or(|name| name == "state.json");
            watch.changed(is_state).await;
        }
    };
    let timeout = wait.unwrap_or(SETTLES).min(SETTLES);
    let settled = tokio::time::timeout(timeout, settled).await;
    let settled = settled.unwrap_or(Err(RunError::NotReady(timeout)))?;
    // The kernel that was awaited may have been replaced at once.
    let awaited = session.generation_to_use();
    if settled.status == Status::Live && settled.generation != awaited {
        let ending = Ending::of_generation(key, Some(&settled), awaited);
        return Err(RunError::of(&ending, &settled));
    }
    Ok(settled)
}

/// Returns whether an output says that messages were lost with the connection to a server.
fn is_loss_note(event: &ExecutionEvent) -> bool {
    let ExecutionEvent::Iopub(message) = event else {
        return false;
    };
    let note = RemoteKernel::LOSS_NOTE.as_bytes();
    message.msg_type == "stream" && message.content.windows(note.len()).any(|it| it == note)
}

/// An input request that waits for its answer.
struct OpenPrompt<'a> {
    prompt: Prompt,
    answer: Pin<Box<dyn Future<Output = Option<String>> + 'a>>,
}

impl<'a> OpenPrompt<'a> {
    fn by(prompt: &Prompt, observer: &'a impl RunObserver) -> Self {
        Self {
            prompt: prompt.clone(),
            answer: Box::pin(observer.answer(prompt.clone())),
        }
    }

    /// A request whose answer is known and is to be sent over the next connection.
    fn unsent(prompt: Prompt, answer: Option<String>) -> Self {
        Self {
            prompt,
            answer: Box::pin(std::future::ready(answer)),
        }
    }
}

/// Waits for the answer to the input request, and takes both; without a request waits for ever.
async fn answered(open_prompt: &mut Option<OpenPrompt<'_>>) -> (Prompt, Option<String>) {
    let answer = match open_prompt {
        Some(open_prompt) => open_prompt.answer.as_mut().await,
        None => std::future::pending().await,
    };
    match open_prompt.take() {
        Some(OpenPrompt { prompt, .. }) => (prompt, answer),
        None => std::future::pending().await,
    }
}

struct Running<'a> {
    kernel: &'a mut JoinedKernel,
    options: &'a RunOptions,
    began: Instant,
    received: ReceivedOutputs,
    notes: Vec<String>,
    category: Option<ErrorCategory>,
    execution_count: Option<u64>,
    /// Whether the kernel did not send the idle status after the code.
    is_idle_missing: bool,
}

impl Running<'_> {
    /// Waits until the kernel answers on shell, so that it runs no cell. A returned outcome ends
    /// the run.
    async fn idle(
        &self,
        client: &mut Client,
        observer: &impl RunObserver,
    ) -> Result<Option<CellEnd>, RunError> {
        let report_waits = async {
            tokio::time::sleep(SOON).await;
            loop {
                self.report_wait(observer, None);
                tokio::time::sleep(STILL_WAITS).await;
            }
        };
        tokio::select! {
            answered = client.idle() => answered.map(|()| None).map_err(RunError::from),
            never = report_waits => never,
            () = observer.interrupted() => Ok(Some(CellEnd::Interrupted)),
        }
    }

    /// Reports that another client's cell runs. If the last execution in the journal is this one,
    /// which was sent already, the kernel is only slow.
    fn report_wait(&self, observer: &impl RunObserver, sent: Option<&str>) {
        let JoinedKernel {
            project,
            key,
            session,
            ..
        } = &*self.kernel;
        if let Some(lost) = server_connection::lost(session) {
            return observer.on_wait(None, &lost.awaited());
        }
        let present = project.present(key, session.generation);
        let is_ours = |cell: &RunningExecution| Some(cell.msg_id.as_str()) == sent;
        if !present.running.as_ref().is_some_and(is_ours) {
            observer.on_wait(present.running.as_ref(), "another client");
        }
    }

    /// Sends the code and follows it to its end.
    async fn once(
        &mut self,
        client: &mut Client,
        observer: &impl RunObserver,
    ) -> Result<CellEnd, RunError> {
        let mut request = Execute::new(self.options.code.as_str());
        request.allow_stdin = self.options.may_ask;
        let mut execution = tokio::select! {
            started = client.start(&request) => started?,
            () = observer.interrupted() => return Ok(CellEnd::Interrupted),
        };
        let msg_id = execution.msg_id().to_owned();
        let asked_at = jiff::Timestamp::now();
        self.note_asked(&msg_id);
        observer.on_sent(&msg_id);
        let sent = Instant::now();
        let mut interrupted = false;
        let mut begun = false;
        let waits = tokio::time::sleep(SOON);
        tokio::pin!(waits);
        let mut open_prompt: Option<OpenPrompt<'_>> = None;
        let server = self.kernel.session.as_remote().map(|it| it.server.clone());
        let mut is_loss_reported = false;
        loop {
            tokio::select! {
                event = execution.next() => {
                    let Some(event) = event else {
                        break;
                    };
                    is_loss_reported |= server.is_some() && is_loss_note(&event);
                    observer.on_event(&event);
                    if event == ExecutionEvent::Begun {
                        begun = true;
                        if interrupted {
                            self.interrupt(&mut execution);
                        }
                    }
                    if let ExecutionEvent::Prompt(prompt) = &event {
                        open_prompt = Some(OpenPrompt::by(prompt, observer));
                    }
                    self.received.take(&event);
                }
                (prompt, answer) = answered(&mut open_prompt), if open_prompt.is_some() && self.kernel.is_connected() => match answer {
                    _ if !self.kernel.is_connected() => {
                        open_prompt = Some(OpenPrompt::unsent(prompt, answer));
                    }
                    Some(text) => execution.answer(&prompt, &text),
                    None => execution.answer_eof(&prompt),
                },
                () = &mut waits, if !begun => {
                    self.report_wait(observer, Some(&msg_id));
                    waits.as_mut().reset(tokio::time::Instant::now() + STILL_WAITS);
                }
                () = observer.interrupted() => {
                    open_prompt = None;
                    interrupted = true;
                    // Before that the kernel runs another client's cell, which must not be
                    // interrupted.
                    if begun {
                        self.interrupt(&mut execution);
                    }
                }
            }
        }
        let (dropped, missing) = (execution.dropped(), execution.missing());
        let numbers = execution.numbers().clone();
        let outcome = execution.outcome().cloned();
        let outcome = outcome.as_ref();
        self.is_idle_missing = outcome.is_none_or(|outcome| outcome.idle_missing);
        self.execution_count = outcome.and_then(|outcome| outcome.execution_count);
        self.category = match outcome.map(|outcome| &outcome.end) {
            Some(RequestEnd::Raised(raised)) => Some(category::of_exception(raised)),
            _ => None,
        };
        let status = match outcome.map(|outcome| &outcome.end) {
            Some(RequestEnd::Ok) => CellEnd::Ok,
            Some(RequestEnd::Raised(_)) if interrupted => CellEnd::Interrupted,
            Some(RequestEnd::Raised(_)) if self.kernel.is_being_ended() => {
                self.kernel_ended(observer, "it was interrupted").await
            }
            // Another command or a front end has interrupted the kernel.
            Some(RequestEnd::Raised(raised)) if raised.is_interrupt() => CellEnd::Interrupted,
            // IPython ends an interrupted `await` so.
            Some(RequestEnd::Raised(raised))
                if raised.ename == "CancelledError"
                    && self.kernel.was_interrupted_since(asked_at).await =>
            {
                CellEnd::Interrupted
            }
            Some(RequestEnd::Raised(_)) => CellEnd::Error,
            Some(RequestEnd::Aborted) => CellEnd::Aborted,
            Some(RequestEnd::KernelGone(why)) => {
                match self
                    .follow_again(client, observer, (&msg_id, numbers), begun, open_prompt)
                    .await
                {
                    Some(status) => {
                        self.is_idle_missing = status == CellEnd::NoReply;
                        status
                    }
                    None => self.kernel_ended(observer, why).await,
                }
            }
            // An interrupt that meets ipykernel between its own steps costs the reply.
            Some(RequestEnd::NoReply)
                if interrupted
                    || self.received.interrupt
                    || self.kernel.was_interrupted_since(asked_at).await =>
            {
                CellEnd::Interrupted
            }
            Some(RequestEnd::NoReply) | None => CellEnd::NoReply,
        };
        let raised = match outcome.map(|outcome| &outcome.end) {
            Some(RequestEnd::Raised(raised)) if !interrupted && status != CellEnd::KernelDied => {
                Some(raised)
            }
            _ => None,
        };
        let reply = outcome.and_then(|outcome| outcome.reply.as_deref());
        for output in self
            .received
            .missing_outputs(reply.unwrap_or_default(), raised)
        {
            observer.on_event(&ExecutionEvent::Iopub(output));
        }
        self.notes
            .extend(reply.and_then(reply_outputs::offered_source));
        if dropped > 0 {
            self.notes
                .push(format!("{dropped} messages found no room in memory"));
        }
        if missing > 0 && !is_loss_reported {
            let note = match server {
                Some(server) => format!(
                    "{missing} messages did not arrive from {server}, which may have dropped them"
                ),
                None => lost(missing),
            };
            // The note is an output too, so that later readers do not take the outputs for
            // complete.
            observer.on_event(&ExecutionEvent::Iopub(IopubMessage::on_stderr(&format!(
                "[nb] {note}\n"
            ))));
            self.notes.push(note);
        }
        if self.is_idle_missing && status != CellEnd::KernelDied {
            self.notes
                .push("the kernel never said that it was idle: outputs may be missing".to_owned());
        }
        self.note_done(&msg_id, status, sent.elapsed());
        Ok(status)
    }

    /// Follows the request to its end over the next bridge to the kernel's server; `None` if the kernel has ended, or runs
    /// on this machine. Its reply goes to the client that sent it, which is gone.
    async fn follow_again<'a>(
        &mut self,
        client: &mut Client,
        observer: &'a impl RunObserver,
        (msg_id, numbers): (&str, SequenceNumbers),
        has_begun: bool,
        open_prompt: Option<OpenPrompt<'a>>,
    ) -> Option<CellEnd> {
        let mut numbers = numbers;
        let mut open_prompt = open_prompt;
        let mut has_begun = has_begun;
        let mut interrupted = false;
        loop {
            *client = self.kernel.join_again().await?;
            let mut followed = client.follow_requests([msg_id.to_owned()]);
            followed.continue_from(numbers);
            if has_begun {
                followed.has_begun(0, true);
            }
            loop {
                let received = tokio::select! {
                    received = followed.next() => received?,
                    (prompt, answer) = answered(&mut open_prompt), if open_prompt.is_some() && self.kernel.is_connected() => {
                        match self.kernel.is_connected() {
                            true => followed.answer(prompt.header, answer.as_deref().unwrap_or(EOF)),
                            false => open_prompt = Some(OpenPrompt::unsent(prompt, answer)),
                        }
                        continue;
                    }
                    () = observer.interrupted() => {
                        open_prompt = None;
                        interrupted = true;
                        followed.interrupt();
                        continue;
                    }
                };
                match received.step {
                    FollowedStep::Event(event) => {
                        has_begun = true;
                        if let ExecutionEvent::Counted(count) = &event {
                            self.execution_count = Some(*count);
                        }
                        observer.on_event(&event);
                        if let ExecutionEvent::Prompt(prompt) = &event {
                            open_prompt = Some(OpenPrompt::by(prompt, observer));
                        }
                        self.received.take(&event);
                    }
                    FollowedStep::Ended { ran: false } => return Some(CellEnd::Aborted),
                    FollowedStep::Ended { .. } if !self.received.error => return Some(CellEnd::Ok),
                    FollowedStep::Ended { .. } if interrupted || self.received.interrupt => {
                        return Some(CellEnd::Interrupted);
                    }
                    FollowedStep::Ended { .. } => return Some(CellEnd::Error),
                    FollowedStep::MissedEnd => return Some(CellEnd::NoReply),
                    FollowedStep::Gone(_) => break,
                }
            }
            numbers = followed.into_numbers();
        }
    }

    /// Returns the outcome for a kernel that has ended, and adds an error output, since the kernel
    /// sent none.
    async fn kernel_ended(&mut self, observer: &impl RunObserver, cause: &str) -> CellEnd {
        let JoinedKernel {
            project,
            key,
            session,
            process,
            ..
        } = &*self.kernel;
        let ending = kernel_ending(project, key, session, process.as_ref(), cause).await;
        observer.on_event(&ExecutionEvent::Iopub(ending.error_message()));
        self.notes.push(ending.text().to_owned());
        self.category = Some(ending.category());
        CellEnd::KernelDied
    }

    /// Returns an error from before the code was sent. If the kernel has ended meanwhile, the error says
    /// how: the code has waited for others' cells, and was in front of a restart or shutdown.
    async fn with_ending(&self, error: RunError) -> RunError {
        let RunError::Client(ClientError::KernelGone(cause)) = &error else {
            return error;
        };
        let JoinedKernel {
            project,
            key,
            session,
            process,
            ..
        } = &*self.kernel;
        let ending = kernel_ending(project, key, session, process.as_ref(), cause).await;
        RunError::of(&ending, session)
    }

    /// Interrupts the kernel by a signal or a message, as its kernelspec says.
    fn interrupt(&self, execution: &mut ExecuteRequest<'_>) {
        match self.kernel.signal_interrupt() {
            Some(Ok(())) => return,
            Some(Err(error)) => tracing::warn!(%error, "the kernel could not be signalled"),
            None => {}
        }
        execution.interrupt();
    }

    fn note_asked(&mut self, msg_id: &str) {
        let start = ExecutionStart {
            cell: self.options.cell.clone(),
            job: self.kernel.job.clone(),
            code: Some(self.options.code.clone()),
            // The kernel has just answered on shell.
            alone: true,
            ..ExecutionStart::new(msg_id)
        };
        let event = self.kernel.event(EventKind::Requested(start));
        self.kernel.unwritten.push(event);
        self.kernel.write_down();
    }

    fn note_done(&mut self, msg_id: &str, status: CellEnd, took: Duration) {
        let end = ExecutionEnd {
            execution_count: self.execution_count,
            ..ExecutionEnd::new(msg_id, status, Some(took))
        };
        let event = self.kernel.event(EventKind::Done(end));
        self.kernel.unwritten.push(event);
        // If another cell follows, this is written while that one runs, so that it need not wait.
        if !self.options.goes_on || status != CellEnd::Ok {
            self.kernel.write_down();
        }
    }
}

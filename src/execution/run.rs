//! Code on the shared kernel, in its turn and to its end.
//!
//! The request goes out when the kernel is idle, so that giving up while others' cells run leaves
//! nothing behind, and an interrupt can only mean this code. Where a cell follows a cell of ours, the
//! kernel is idle already; what another client asks for at that very moment is before it in the
//! queue, and an interrupt waits for its own turn. Nothing is kept here of what the code says: the
//! audience sees it.

use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::ending::how_it_went;
use super::heard::Heard;
use super::observed;
use crate::client::{Client, ClientError, Execute, Execution, IopubMessage, RequestEnd};
pub use crate::client::{DisplayContent, EOF, Event, KernelException, Output, Prompt, StreamText};
use crate::kernel::process::connection::{self, ConnectionError};
use crate::kernel::process::{Process, Signal};
use crate::kernel::spec::quirks;
use crate::lifecycle::death::{self, note_death};
use crate::lifecycle::liveness::{Liveness, liveness};
use crate::lifecycle::open_error::OpenError;
use crate::project::event::{
    Event as JournalEvent, EventKind, ExecutionEnd, ExecutionStart, Outcome, RunningCell,
    split_actor,
};
use crate::project::jobs::Job;
use crate::project::{InterruptMode, Project, Session, StateError, Status as SessionStatus};
use crate::wire::ConnectionInfo;

/// How often code is sent that another client's failing cell threw out of the queue.
const SENDS: u32 = 3;

/// A wait for others' cells of which nothing need be said.
const SOON: Duration = Duration::from_millis(300);

/// How long a start or restart that others began is awaited.
const SETTLES: Duration = Duration::from_secs(60);

/// Between two looks whether it is done.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The code.
    pub code: String,
    /// The notebook's cell that it is, if it is one.
    pub cell: Option<String>,
    /// Another piece follows at once where this one ends well: that it ended may go into the journal
    /// with the beginning of that.
    pub goes_on: bool,
}

/// What the caller does while the code runs.
pub trait Audience {
    /// Sees what happens, as it happens.
    fn sees(&self, event: &Event);

    /// Is told which request of the kernel the code is, once that was sent.
    fn sent(&self, _msg_id: &str) {}

    /// Answers the code's question; none is the end of the input. May be dropped halfway.
    fn answers(&self, prompt: Prompt) -> impl Future<Output = Option<String>>;

    /// Is told once that the kernel is busy, and with whose cell, where that is known.
    fn waits(&self, _behind: Option<&RunningCell>) {}

    /// Waits until the user wants the code interrupted. May be dropped halfway.
    fn interrupts(&self) -> impl Future<Output = ()>;
}

/// What came of it.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub status: Status,
    /// The number that the kernel gave it.
    pub execution_count: Option<u64>,
    /// How long it took, the waiting for others' cells included.
    pub took: Duration,
    /// What the caller should know besides: outputs that are missing.
    pub notes: Vec<String>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The code ran to its end.
    Ok,
    /// The code raised; the outputs say what.
    Error,
    /// The user's interrupt ended it.
    Interrupted,
    /// Another client's failing cell emptied the queue, again and again; nothing ran.
    Aborted,
    /// The kernel went idle without a reply.
    NoReply,
    /// The kernel died or was replaced meanwhile.
    KernelDied,
}

impl From<Status> for Outcome {
    fn from(status: Status) -> Self {
        match status {
            Status::Ok => Self::Ok,
            Status::Error => Self::Error,
            Status::Interrupted => Self::Interrupted,
            Status::Aborted => Self::Aborted,
            Status::NoReply => Self::NoReply,
            Status::KernelDied => Self::KernelDied,
        }
    }
}

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The connection file is missing or says nothing usable.
    #[error(transparent)]
    ConnectionFile(#[from] ConnectionError),
    /// The project's memory is unusable.
    #[error(transparent)]
    State(#[from] StateError),
    /// The kernel has ended.
    #[error("{told}")]
    Ended {
        /// How, in words.
        told: String,
        /// The command that mends it.
        mend: String,
    },
    /// The kernel is being started or restarted, and not ready yet.
    #[error("the kernel is not ready after {0:?}")]
    NotReady(Duration),
    /// The kernel cannot be seen from here.
    #[error(transparent)]
    Unseen(Box<OpenError>),
    /// The kernel cannot be talked to.
    #[error("cannot talk to the kernel")]
    Client(#[from] ClientError),
}

impl RunError {
    /// Returns that a session's kernel has ended, and how, where that is known.
    pub(super) fn ended(key: &str, session: Option<&Session>) -> Self {
        let ended = session.and_then(|session| session.ended.as_ref());
        let died = session.is_some_and(|session| session.status == SessionStatus::Died);
        let told = match ended.filter(|_| died) {
            Some(ended) => death::words(key, ended),
            None => format!("the kernel of {key} has ended"),
        };
        let notebook = session.map_or(Path::new(key), |session| &session.notebook);
        let mend = death::mend(notebook);
        Self::Ended { told, mend }
    }

    /// Returns whether the shell that `nb` runs in may not use sockets at all; whether the kernel
    /// lives is unknown then.
    pub fn is_sandboxed(&self) -> bool {
        match self {
            Self::Client(error) => error.is_sandboxed(),
            Self::Unseen(error) => matches!(**error, OpenError::Unchecked { .. }),
            _ => false,
        }
    }

    /// Returns the word for what became of the code: see [`crate::project::jobs::JobCell::status`].
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::State(_) | Self::NotReady(_) => "not_run",
            Self::ConnectionFile(_) | Self::Ended { .. } | Self::Unseen(_) | Self::Client(_) => {
                "no_kernel"
            }
        }
    }
}

/// A session's kernel, joined to run code one piece after the other.
pub struct Runner {
    project: Project,
    key: String,
    session: Session,
    by: String,
    origin: Origin,
    process: Option<Process>,
    client: Client,
    /// How many steps of other clients' cells were heard.
    others: Arc<AtomicU64>,
    /// How many it were when a cell of ours ended and left the kernel idle.
    left_idle: Option<u64>,
    /// What is to go into the journal before anything else.
    unwritten: Vec<JournalEvent>,
}

/// What the journal tells of an execution besides.
#[derive(Clone, Debug, Default)]
struct Origin {
    job: Option<String>,
    notebook: Option<String>,
}

impl Runner {
    /// Joins the kernel of a session, whose key in the project is `key`, as `by`; one that is being
    /// started is waited for.
    ///
    /// # Errors
    /// It has ended, is not ready in time, or cannot be talked to.
    pub async fn join(
        project: &Project,
        key: &str,
        session: &Session,
        by: &str,
        wait: Option<Duration>,
    ) -> Result<Self, RunError> {
        let session = settled(project, key, session, wait).await?;
        let (info, process) = reach(project, key, &session).await?;
        let mut client = Client::connect(&info, split_actor(by).0).await?;
        let spec = session.kernelspec.as_ref();
        if let Some(silence) = spec.and_then(quirks::silence_after_idle) {
            client.linger(silence);
        }
        let others = Arc::new(AtomicU64::new(0));
        let (count, mut journal) = (
            Arc::clone(&others),
            observed::journal(project, key, session.generation),
        );
        client.observe(move |foreign| {
            count.fetch_add(1, Ordering::Relaxed);
            journal(foreign);
        });
        if let Some(process) = process.clone() {
            client.watch(async move {
                process.death().await;
                format!("process {} has ended", process.pid)
            });
        }
        Ok(Self {
            project: project.clone(),
            key: key.to_owned(),
            session,
            by: by.to_owned(),
            origin: Origin::default(),
            process,
            client,
            others,
            left_idle: None,
            unwritten: Vec::new(),
        })
    }

    /// Says that what is run from now on belongs to this job.
    pub fn is_of(&mut self, job: &Job) {
        self.origin.job = Some(job.id.clone());
        self.origin.notebook = Some(job.notebook.clone()).filter(|it| *it != self.key);
    }

    /// Returns which of the session's kernels it is.
    pub fn generation(&self) -> u64 {
        self.session.generation
    }

    /// Runs code to its end.
    ///
    /// # Errors
    /// [`RunError`] where nothing was sent; after that the [`Status`] tells.
    pub async fn run(
        &mut self,
        options: &Options,
        audience: &impl Audience,
    ) -> Result<Ran, RunError> {
        // Straight after a cell of ours there is nobody to wait for, and asking the kernel takes as long
        // as a small cell. Who came in between is before us in the kernel's queue.
        let others = self.others.load(Ordering::Relaxed);
        let mut is_idle = self.left_idle.take() == Some(others);
        if !is_idle {
            self.write_down();
        }
        let client = &mut self.client;
        let mut running = Running {
            project: &self.project,
            key: &self.key,
            session: &self.session,
            by: &self.by,
            origin: &self.origin,
            options,
            process: self.process.as_ref(),
            began: Instant::now(),
            heard: Heard::default(),
            notes: Vec::new(),
            execution_count: None,
            is_idle_missing: false,
            unwritten: &mut self.unwritten,
        };
        let mut status = Status::Aborted;
        for _ in 0..SENDS {
            let ended = match std::mem::take(&mut is_idle) {
                true => None,
                false => running.idle(client, audience).await?,
            };
            status = match ended {
                Some(status) => status,
                None => running.once(client, audience).await?,
            };
            if status != Status::Aborted {
                break;
            }
        }
        if matches!(status, Status::Ok | Status::Error) && !running.is_idle_missing {
            self.left_idle = Some(self.others.load(Ordering::Relaxed));
        }
        Ok(running.into_ran(status))
    }

    /// Returns the kernel's client, and what is known of the kernel.
    pub(super) fn parts(&mut self) -> (&mut Client, &Session) {
        (&mut self.client, &self.session)
    }

    /// Tells the kernel's side of a comm something.
    pub fn tell_comm(&mut self, content: &RawValue) {
        self.client.tell_comm(&content);
    }

    /// Returns the kernel's process, where it can be seen.
    pub(super) fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Interrupts what the kernel runs; says whether it was asked to.
    pub(super) async fn interrupt(&mut self) -> bool {
        /// How long the kernel may take to answer a message.
        const ANSWERS: Duration = Duration::from_secs(2);
        if let (InterruptMode::Signal, Some(process)) =
            (self.session.interrupt_mode(), &self.process)
        {
            return process.signal_group(Signal::INT).is_ok();
        }
        self.client.interrupt(ANSWERS).await.is_ok()
    }

    /// Leaves the kernel, once what was sent is written: an interrupt or an answer may be on its way.
    pub async fn leave(mut self) {
        self.write_down();
        self.client.close().await;
    }

    /// Puts into the journal what is not in it yet.
    fn write_down(&mut self) {
        let events = std::mem::take(&mut self.unwritten);
        if !events.is_empty() {
            self.project.record(&events);
        }
    }
}

/// Says that a kernel dropped messages.
fn lost(messages: u64) -> String {
    format!(
        "{messages} messages were lost by the kernel's own queue, which drops what is above 1000: fewer, larger prints lose nothing"
    )
}

/// Returns a line of `nb` among what the code says.
fn on_stderr(text: &str) -> IopubMessage {
    IopubMessage {
        msg_type: "stream".to_owned(),
        content: json!({ "name": "stderr", "text": text }).to_string().into(),
        buffers: Vec::new(),
    }
}

/// Looks where a session's kernel is, and that it lives.
///
/// # Errors
/// It has ended, or nothing can be said from here.
pub(super) async fn reach(
    project: &Project,
    key: &str,
    session: &Session,
) -> Result<(ConnectionInfo, Option<Process>), RunError> {
    let info = connection::read(&session.connection_file)?;
    match liveness(session).await {
        Liveness::Own(process) => Ok((info, Some(process))),
        Liveness::Foreign => Ok((info, None)),
        Liveness::Dead => {
            let session = match session.status {
                SessionStatus::Live => note_death(project, key, session.clone())?,
                _ => session.clone(),
            };
            Err(RunError::ended(key, Some(&session)))
        }
        Liveness::OutOfReach => Err(RunError::Unseen(Box::new(OpenError::out_of_reach(session)))),
    }
}

/// Waits while the kernel is being started or restarted; returns what the record says then.
async fn settled(
    project: &Project,
    key: &str,
    session: &Session,
    wait: Option<Duration>,
) -> Result<Session, RunError> {
    let patience = wait.unwrap_or(SETTLES).min(SETTLES);
    let deadline = Instant::now() + patience;
    let mut session = session.clone();
    while matches!(
        session.status,
        SessionStatus::Starting | SessionStatus::Restarting
    ) {
        if Instant::now() > deadline {
            return Err(RunError::NotReady(patience));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        if let Some(now) = project.state()?.sessions.get(key) {
            session = now.clone();
        }
    }
    Ok(session)
}

/// A question that waits for its answer.
struct Asked<'a> {
    prompt: Prompt,
    answer: Pin<Box<dyn Future<Output = Option<String>> + 'a>>,
}

struct Running<'a> {
    project: &'a Project,
    key: &'a str,
    session: &'a Session,
    by: &'a str,
    origin: &'a Origin,
    options: &'a Options,
    process: Option<&'a Process>,
    began: Instant,
    heard: Heard,
    notes: Vec<String>,
    execution_count: Option<u64>,
    /// Whether the kernel never said that it was idle after it.
    is_idle_missing: bool,
    /// What is to go into the journal first.
    unwritten: &'a mut Vec<JournalEvent>,
}

impl Running<'_> {
    /// Waits until the kernel runs nobody's cell: it answers on shell. A status ends it all.
    async fn idle(
        &self,
        client: &mut Client,
        audience: &impl Audience,
    ) -> Result<Option<Status>, RunError> {
        let told = async {
            tokio::time::sleep(SOON).await;
            self.tell_wait(audience, None);
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            answered = client.idle() => answered.map(|()| None).map_err(RunError::from),
            never = told => match never {},
            () = audience.interrupts() => Ok(Some(Status::Interrupted)),
        }
    }

    /// Says that another's cell is waited for. Where the journal's last is our own, which was sent
    /// already, it is only the kernel that takes its time.
    fn tell_wait(&self, audience: &impl Audience, sent: Option<&str>) {
        let present = self.project.present(self.key, self.session.generation);
        let is_ours = |cell: &RunningCell| Some(cell.msg_id.as_str()) == sent;
        if !present.running.as_ref().is_some_and(is_ours) {
            audience.waits(present.running.as_ref());
        }
    }

    /// Sends the code and follows it to its end.
    async fn once(
        &mut self,
        client: &mut Client,
        audience: &impl Audience,
    ) -> Result<Status, RunError> {
        let mut request = Execute::new(self.options.code.as_str());
        request.allow_stdin = true;
        let mut execution = tokio::select! {
            started = client.start(&request) => started?,
            () = audience.interrupts() => return Ok(Status::Interrupted),
        };
        let msg_id = execution.msg_id().to_owned();
        self.note_asked(&msg_id);
        audience.sent(&msg_id);
        let sent = Instant::now();
        let mut interrupted = false;
        let mut begun = false;
        let mut told = false;
        let waits = tokio::time::sleep(SOON);
        tokio::pin!(waits);
        let mut asked: Option<Asked<'_>> = None;
        loop {
            let answered = async {
                match &mut asked {
                    Some(asked) => asked.answer.as_mut().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = execution.next() => {
                    let Some(event) = event else {
                        break;
                    };
                    audience.sees(&event);
                    if event == Event::Begun {
                        begun = true;
                        if interrupted {
                            self.interrupt(&mut execution);
                        }
                    }
                    if let Event::Prompt(prompt) = &event {
                        asked = Some(Asked {
                            prompt: prompt.clone(),
                            answer: Box::pin(audience.answers(prompt.clone())),
                        });
                    }
                    self.heard.take(&event);
                }
                answer = answered => {
                    let Some(Asked { prompt, .. }) = asked.take() else {
                        continue;
                    };
                    match answer {
                        Some(text) => execution.answer(&prompt, &text),
                        None => execution.answer_eof(&prompt),
                    }
                }
                () = &mut waits, if !begun && !told => {
                    told = true;
                    self.tell_wait(audience, Some(&msg_id));
                }
                () = audience.interrupts() => {
                    asked = None;
                    interrupted = true;
                    // Before that the kernel runs another's cell, which is not ours to end.
                    if begun {
                        self.interrupt(&mut execution);
                    }
                }
            }
        }
        let (dropped, missing) = (execution.dropped(), execution.missing());
        let outcome = execution.outcome();
        self.is_idle_missing = outcome.is_none_or(|outcome| outcome.idle_missing);
        self.execution_count = outcome.and_then(|outcome| outcome.execution_count);
        let status = match outcome.map(|outcome| &outcome.end) {
            Some(RequestEnd::Ok) => Status::Ok,
            Some(RequestEnd::Raised(_)) if interrupted => Status::Interrupted,
            Some(RequestEnd::Raised(_)) if self.is_being_ended() => {
                self.kernel_ended(audience, "it was interrupted").await
            }
            Some(RequestEnd::Raised(_)) => Status::Error,
            Some(RequestEnd::Aborted) => Status::Aborted,
            Some(RequestEnd::KernelGone(why)) => {
                let why = why.clone();
                self.kernel_ended(audience, &why).await
            }
            Some(RequestEnd::NoReply) | None => Status::NoReply,
        };
        let raised = match outcome.map(|outcome| &outcome.end) {
            Some(RequestEnd::Raised(raised)) if status == Status::Error => Some(raised),
            _ => None,
        };
        let reply = outcome.and_then(|outcome| outcome.reply.as_deref());
        for told in self.heard.untold(reply.unwrap_or_default(), raised) {
            audience.sees(&Event::Iopub(told));
        }
        if dropped > 0 {
            self.notes
                .push(format!("{dropped} messages found no room in memory"));
        }
        if missing > 0 {
            let note = lost(missing);
            // Among the outputs too: whoever reads them later must not take them for whole.
            audience.sees(&Event::Iopub(on_stderr(&format!("[nb] {note}\n"))));
            self.notes.push(note);
        }
        if outcome.is_some_and(|outcome| outcome.idle_missing) && status != Status::KernelDied {
            self.notes
                .push("the kernel never said that it was idle: outputs may be missing".to_owned());
        }
        self.note_done(&msg_id, status, sent.elapsed());
        Ok(status)
    }

    /// Says whether somebody restarts the kernel or shuts it down: its cell is interrupted then, so
    /// that it can end.
    fn is_being_ended(&self) -> bool {
        let state = self.project.state().ok();
        let now = state.and_then(|state| state.session(self.key));
        now.is_some_and(|now| {
            matches!(
                now.status,
                SessionStatus::Restarting | SessionStatus::Stopped
            ) || now.generation != self.session.generation
        })
    }

    /// Says how the kernel ended, among the outputs too: it sent no error itself.
    async fn kernel_ended(&mut self, audience: &impl Audience, seen: &str) -> Status {
        let ending = how_it_went(self.project, self.key, self.session, self.process, seen).await;
        audience.sees(&Event::Iopub(ending.told()));
        self.notes.push(ending.text().to_owned());
        Status::KernelDied
    }

    /// Interrupts in the kernel's own way.
    fn interrupt(&self, execution: &mut Execution<'_>) {
        if let (InterruptMode::Signal, Some(process)) =
            (self.session.interrupt_mode(), self.process)
        {
            // The whole group: the code may wait for a program that it started.
            match process.signal_group(Signal::INT) {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "the kernel could not be signalled"),
            }
        }
        execution.interrupt();
    }

    fn note_asked(&mut self, msg_id: &str) {
        let start = ExecutionStart {
            cell: self.options.cell.clone(),
            job: self.origin.job.clone(),
            code: Some(self.options.code.clone()),
            // It answered on shell just before.
            alone: true,
            ..ExecutionStart::new(msg_id)
        };
        let mut events = std::mem::take(self.unwritten);
        events.push(self.event(EventKind::Asked(start)));
        self.project.record(&events);
    }

    fn note_done(&mut self, msg_id: &str, status: Status, took: Duration) {
        let end = ExecutionEnd::new(msg_id, status.into(), Some(took));
        let event = self.event(EventKind::Done(end));
        if self.options.goes_on && status == Status::Ok {
            // The next cell does not wait for it: it is written while that runs.
            self.unwritten.push(event);
        } else {
            self.project.record(&[event]);
        }
    }

    fn event(&self, kind: EventKind) -> JournalEvent {
        JournalEvent {
            generation: Some(self.session.generation),
            by: Some(self.by.to_owned()),
            notebook: self.origin.notebook.clone(),
            ..JournalEvent::now(self.key, kind)
        }
    }

    fn into_ran(self, status: Status) -> Ran {
        Ran {
            status,
            execution_count: self.execution_count,
            took: self.began.elapsed(),
            notes: self.notes,
        }
    }
}

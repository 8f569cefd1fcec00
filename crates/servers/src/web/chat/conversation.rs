//! The conversation about one notebook: its turns, one after the other.
//!
//! Requests reach it from any thread. The assistant itself stays on the worker, in a task that answers one message at a
//! time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::task::LocalPoolHandle;

use super::backend::{AssistantChoice, Backend, StoredBackend, TurnEnd, TurnFront};
use super::turn::{Turn, TurnEvent, TurnLog, UpdateReader};
use crate::agent::stored::{ChatFile, beginning};
use crate::agent::update::Update;
use crate::agent::work::AgentWork;
use crate::agent::{Front, Workspace};
use crate::api::problem::{Problem, ProblemKind};
use crate::project::event::ChatTurn;
use crate::project::fresh_id;
use crate::web::feed::{Feed, PageMessage};

/// How many turns are stored.
const TURNS_MAX: usize = 50;

/// How many bytes the stored turns may have.
const BYTES_MAX: usize = 4 << 20;

/// How long an assistant without messages keeps its processes.
const IDLE_MAX: Duration = Duration::from_secs(15 * 60);

/// How long a question waits for its answer.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// A conversation as it is stored in `.nb/chat`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredConversation {
    turns: VecDeque<Turn>,
    backend: StoredBackend,
}

/// A conversation as pages see it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::web) struct ConversationAnswer {
    /// The turn that goes on.
    running: Option<String>,
    /// The turns, the oldest first.
    turns: Vec<Turn>,
}

/// A conversation.
pub(in crate::web) struct Conversation {
    notebook: String,
    root: PathBuf,
    state: Mutex<ConversationState>,
    requests: mpsc::Sender<TaskRequest>,
    feed: Arc<Feed>,
}

#[derive(Default)]
struct ConversationState {
    /// The last one may go on.
    turns: VecDeque<Arc<TurnLog>>,
    running: Option<RunningTurn>,
}

struct RunningTurn {
    stop: Arc<Notify>,
    question: Option<(u64, oneshot::Sender<String>)>,
}

/// A request to the task.
enum TaskRequest {
    Answer(TurnRequest),
    /// Forget all turns.
    Forget(oneshot::Sender<()>),
}

/// A message for the assistant.
struct TurnRequest {
    log: Arc<TurnLog>,
    message: String,
    model: Option<String>,
    stop: Arc<Notify>,
}

impl Conversation {
    /// Restores the conversation about a notebook, and starts the task that answers.
    pub(super) fn begin(
        choice: AssistantChoice,
        root: &Path,
        notebook: &str,
        feed: Arc<Feed>,
        worker: &LocalPoolHandle,
    ) -> Result<Arc<Self>, Problem> {
        let workspace = Workspace::of(root)?;
        let file = ChatFile::of(workspace.project(), &format!("web:{notebook}"));
        let file = file.map_err(|error| Problem::failed("store the conversation", &error))?;
        let stored: StoredConversation = file.read();
        let turns = stored.turns.into_iter().map(|turn| {
            let log = TurnLog::new(turn);
            if !log.is_over() {
                let message = "the server ended while the assistant was at work".to_owned();
                let hints = vec!["what it did is in the history of the notebook".to_owned()];
                log.add(TurnEvent::Error { message, hints });
                log.add(done_event("error"));
            }
            Arc::new(log)
        });
        let (requests, receiver) = mpsc::channel(1);
        let conversation = Arc::new(Self {
            notebook: notebook.to_owned(),
            root: root.to_owned(),
            state: Mutex::new(ConversationState {
                turns: turns.collect(),
                running: None,
            }),
            requests,
            feed,
        });
        let task = Task {
            conversation: Arc::downgrade(&conversation),
            choice,
            workspace,
            file,
        };
        let result = worker.spawn_pinned(move || task.run(receiver, stored.backend));
        let weak = Arc::downgrade(&conversation);
        tokio::spawn(async move {
            let result = result.await;
            if let (Err(error), Some(weak)) = (result, weak.upgrade()) {
                weak.end_after_panic(&error);
            }
        });
        Ok(conversation)
    }

    fn state(&self) -> MutexGuard<'_, ConversationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether messages are still answered.
    pub(super) fn is_alive(&self) -> bool {
        !self.requests.is_closed()
    }

    /// Ends the turn after the task has panicked.
    fn end_after_panic(&self, error: &dyn std::error::Error) {
        let mut state = self.state();
        state.running = None;
        if let Some(log) = state.turns.back().filter(|log| !log.is_over()) {
            let message = format!("the assistant broke down: {error}");
            let hints = vec!["send the message again".to_owned()];
            log.add(TurnEvent::Error { message, hints });
            log.add(done_event("error"));
        }
    }

    /// Returns whether the assistant is at work.
    pub(super) fn is_running(&self) -> bool {
        self.state().running.is_some()
    }

    /// Returns the conversation as pages see it.
    pub(super) fn answer(&self) -> ConversationAnswer {
        let state = self.state();
        let running = state.turns.back().filter(|_| state.running.is_some());
        ConversationAnswer {
            running: running.map(|log| log.id()),
            turns: state.turns.iter().map(|log| log.turn()).collect(),
        }
    }

    /// Returns a turn.
    pub(super) fn turn(&self, id: &str) -> Option<Arc<TurnLog>> {
        let state = self.state();
        state.turns.iter().find(|log| log.id() == id).cloned()
    }

    /// Begins a turn.
    pub(super) fn begin_turn(
        &self,
        message: String,
        model: Option<String>,
    ) -> Result<Arc<TurnLog>, Problem> {
        let busy = || {
            Problem::new(ProblemKind::Conflict, "the assistant is at work")
                .hint("wait for the end of its turn, or stop it: POST …/chat/stop")
        };
        let log = Arc::new(TurnLog::new(Turn {
            id: fresh_id(),
            at: jiff::Timestamp::now(),
            message: message.clone(),
            events: Vec::new(),
        }));
        let stop = Arc::new(Notify::new());
        {
            let mut state = self.state();
            if state.running.is_some() {
                return Err(busy());
            }
            let request = TurnRequest {
                log: log.clone(),
                message,
                model,
                stop: stop.clone(),
            };
            let result = self.requests.try_send(TaskRequest::Answer(request));
            result.map_err(|_| busy())?;
            state.turns.push_back(log.clone());
            state.running = Some(RunningTurn {
                stop,
                question: None,
            });
        }
        self.notify_pages(Some(&log), true);
        Ok(log)
    }

    /// Stops the turn; returns whether there was one.
    pub(super) fn stop(&self) -> bool {
        let state = self.state();
        let running = state.running.as_ref();
        running.is_some_and(|running| {
            running.stop.notify_one();
            true
        })
    }

    /// Answers the open question.
    pub(super) fn reply(&self, id: u64, text: String) -> Result<(), Problem> {
        let mut state = self.state();
        let running = state.running.as_mut();
        let question = running.and_then(|it| it.question.take_if(|(open, _)| *open == id));
        let result = question.and_then(|(_, answer)| answer.send(text).ok());
        result.ok_or_else(|| Problem::new(ProblemKind::Conflict, "this question is no longer open"))
    }

    /// Forgets all turns.
    pub(super) async fn forget(&self) -> Result<(), Problem> {
        let busy = || {
            Problem::new(ProblemKind::Conflict, "the assistant is at work").hint("stop it first")
        };
        if self.is_running() {
            return Err(busy());
        }
        let (sender, receiver) = oneshot::channel();
        self.requests
            .try_send(TaskRequest::Forget(sender))
            .map_err(|_| busy())?;
        receiver.await.map_err(|_| busy())
    }

    /// Adds the end to a turn.
    fn end(&self, log: &TurnLog, result: Result<String, TurnEnd>) {
        let reason = match result {
            Ok(reason) => reason,
            Err(TurnEnd::Stopped) => "stopped".to_owned(),
            Err(TurnEnd::Failed(problem)) => {
                let hints = problem.hints.iter().map(ToString::to_string);
                log.add(TurnEvent::Error {
                    message: problem.message,
                    hints: hints.chain(problem.lines).collect(),
                });
                "error".to_owned()
            }
        };
        // Before the last event: a page that has received it may send the next message.
        self.state().running = None;
        log.add(done_event(&reason));
    }

    /// Reports to the pages that a turn has begun or ended; without one, that all were forgotten.
    fn notify_pages(&self, log: Option<&TurnLog>, running: bool) {
        self.feed.send(&PageMessage::Assistant {
            notebook: self.notebook.clone(),
            turn: log.map(TurnLog::id),
            running,
        });
    }
}

fn done_event(reason: &str) -> TurnEvent {
    TurnEvent::Done {
        reason: reason.to_owned(),
    }
}

/// The task that answers.
struct Task {
    /// The task ends when the conversation is dropped.
    conversation: Weak<Conversation>,
    choice: AssistantChoice,
    workspace: Workspace,
    file: ChatFile,
}

impl Task {
    async fn run(self, mut receiver: mpsc::Receiver<TaskRequest>, mut stored: StoredBackend) {
        let mut backend = None;
        loop {
            let request = match backend {
                Some(_) => timeout(IDLE_MAX, receiver.recv()).await,
                None => Ok(receiver.recv().await),
            };
            let request = match request {
                Ok(Some(request)) => request,
                Ok(None) => return,
                Err(_) => {
                    backend = None;
                    continue;
                }
            };
            let Some(conversation) = self.conversation.upgrade() else {
                return;
            };
            match request {
                TaskRequest::Answer(request) => {
                    self.store(&conversation, &stored);
                    let result = match self
                        .find_backend(&conversation, &mut backend, &stored)
                        .await
                    {
                        Ok(backend) => self.answer(&conversation, backend, &request).await,
                        Err(problem) => Err(TurnEnd::Failed(problem)),
                    };
                    if let Some(backend) = &backend {
                        stored = backend.stored();
                    }
                    // A user who sees the end of the turn may end the server: the stored model must know the turn.
                    self.store(&conversation, &stored);
                    conversation.end(&request.log, result);
                    self.store(&conversation, &stored);
                    conversation.notify_pages(Some(&request.log), false);
                }
                TaskRequest::Forget(sender) => {
                    (backend, stored) = (None, StoredBackend::default());
                    conversation.state().turns.clear();
                    self.store(&conversation, &stored);
                    conversation.notify_pages(None, false);
                    let _ = sender.send(());
                }
            }
        }
    }

    /// Returns the assistant; finds one if there is none yet.
    async fn find_backend<'a>(
        &self,
        conversation: &Conversation,
        backend: &'a mut Option<Backend>,
        stored: &StoredBackend,
    ) -> Result<&'a mut Backend, Problem> {
        let current = match backend.take() {
            Some(current) => current,
            None => {
                let Conversation { root, notebook, .. } = conversation;
                Backend::find(&self.choice, root, notebook, stored.clone()).await?
            }
        };
        Ok(backend.insert(current))
    }

    async fn answer(
        &self,
        conversation: &Conversation,
        backend: &mut Backend,
        request: &TurnRequest,
    ) -> Result<String, TurnEnd> {
        let project = self.workspace.project();
        let begin = project.events_of(&[]).end();
        let front = PageFront {
            conversation,
            request,
            reader: RefCell::default(),
            questions: RefCell::default(),
        };
        let notebook = conversation.root.join(&conversation.notebook);
        let model = request.model.as_deref();
        let answer = backend.answer(&request.message, model, &notebook, &front, &request.stop);
        let result = answer.await;
        let turn = ChatTurn {
            chat: "nb web".to_owned(),
            cell: None,
            message: Some(beginning(&request.message)),
        };
        let name = backend.name();
        AgentWork::since(project, begin, name).record(project, name, &turn);
        result
    }

    /// Stores the conversation; drops the oldest turns if there are too many.
    fn store(&self, conversation: &Conversation, backend: &StoredBackend) {
        let mut state = conversation.state();
        let mut turns: VecDeque<_> = state.turns.iter().map(|log| log.turn()).collect();
        let sizes = turns
            .iter()
            .map(|turn| serde_json::to_string(turn).map_or(0, |it| it.len()));
        let sizes: Vec<_> = sizes.collect();
        let mut bytes: usize = sizes.iter().sum();
        let mut sizes = sizes.into_iter();
        while turns.len() > TURNS_MAX || (bytes > BYTES_MAX && turns.len() > 1) {
            bytes -= sizes.next().unwrap_or_default();
            turns.pop_front();
            state.turns.pop_front();
        }
        drop(state);
        #[derive(Serialize)]
        struct ToStore<'a> {
            turns: &'a VecDeque<Turn>,
            backend: &'a StoredBackend,
        }
        let to_store = ToStore {
            turns: &turns,
            backend,
        };
        if let Err(error) = self.file.write(&to_store) {
            tracing::warn!(%error, "a conversation could not be stored");
        }
    }
}

/// The pages' side of a turn.
struct PageFront<'a> {
    conversation: &'a Conversation,
    request: &'a TurnRequest,
    reader: RefCell<UpdateReader>,
    /// How many questions there were.
    questions: RefCell<u64>,
}

impl TurnFront for PageFront<'_> {
    fn add(&self, event: TurnEvent) {
        if !self.request.log.add(event) {
            self.request.stop.notify_one();
        }
    }
}

impl Front for PageFront<'_> {
    fn take(&self, update: Update) {
        let event = self.reader.borrow_mut().event(update);
        if let Some(event) = event {
            self.add(event);
        }
    }

    async fn ask(&self, prompt: String) -> Option<String> {
        let id = {
            let mut questions = self.questions.borrow_mut();
            *questions += 1;
            *questions
        };
        let (sender, answer) = oneshot::channel();
        if let Some(running) = &mut self.conversation.state().running {
            running.question = Some((id, sender));
        }
        self.add(TurnEvent::Question { id, text: prompt });
        let answer = timeout(QUESTION_TIMEOUT, answer)
            .await
            .ok()
            .and_then(Result::ok);
        self.add(TurnEvent::Answered { id });
        answer
    }
}

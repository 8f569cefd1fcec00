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

/// How many turns are kept.
const MOST_TURNS: usize = 50;

/// How many bytes the kept turns may have.
const MOST_BYTES: usize = 4 << 20;

/// How long an assistant without messages keeps its processes.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// How long a question waits for its answer.
const THINKS: Duration = Duration::from_secs(60 * 60);

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
    orders: mpsc::Sender<Order>,
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

/// What the task is to do.
enum Order {
    Answer(TurnOrder),
    /// Forget what was said.
    Forget(oneshot::Sender<()>),
}

/// A message for the assistant.
struct TurnOrder {
    log: Arc<TurnLog>,
    message: String,
    model: Option<String>,
    stop: Arc<Notify>,
}

impl Conversation {
    /// Takes up the conversation about a notebook, and starts the task that answers.
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
                log.add(done("error"));
            }
            Arc::new(log)
        });
        let (orders, received) = mpsc::channel(1);
        let conversation = Arc::new(Self {
            notebook: notebook.to_owned(),
            root: root.to_owned(),
            state: Mutex::new(ConversationState {
                turns: turns.collect(),
                running: None,
            }),
            orders,
            feed,
        });
        let task = Task {
            conversation: Arc::downgrade(&conversation),
            choice,
            workspace,
            file,
        };
        let ended = worker.spawn_pinned(move || task.run(received, stored.backend));
        let broken = Arc::downgrade(&conversation);
        tokio::spawn(async move {
            let ended = ended.await;
            if let (Err(error), Some(broken)) = (ended, broken.upgrade()) {
                broken.breaks_down(&error);
            }
        });
        Ok(conversation)
    }

    fn state(&self) -> MutexGuard<'_, ConversationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether messages are still answered.
    pub(super) fn is_alive(&self) -> bool {
        !self.orders.is_closed()
    }

    /// Ends the turn after the task has panicked.
    fn breaks_down(&self, error: &dyn std::error::Error) {
        let mut state = self.state();
        state.running = None;
        if let Some(log) = state.turns.back().filter(|log| !log.is_over()) {
            let message = format!("the assistant broke down: {error}");
            let hints = vec!["send the message again".to_owned()];
            log.add(TurnEvent::Error { message, hints });
            log.add(done("error"));
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
    pub(super) fn ask(
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
            let order = TurnOrder {
                log: log.clone(),
                message,
                model,
                stop: stop.clone(),
            };
            let sent = self.orders.try_send(Order::Answer(order));
            sent.map_err(|_| busy())?;
            state.turns.push_back(log.clone());
            state.running = Some(RunningTurn {
                stop,
                question: None,
            });
        }
        self.tell(Some(&log), true);
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
        let sent = question.and_then(|(_, answer)| answer.send(text).ok());
        sent.ok_or_else(|| Problem::new(ProblemKind::Conflict, "this question is no longer open"))
    }

    /// Forgets what was said.
    pub(super) async fn forget(&self) -> Result<(), Problem> {
        let failed = || {
            Problem::new(ProblemKind::Conflict, "the assistant is at work").hint("stop it first")
        };
        if self.is_running() {
            return Err(failed());
        }
        let (sender, done) = oneshot::channel();
        self.orders
            .try_send(Order::Forget(sender))
            .map_err(|_| failed())?;
        done.await.map_err(|_| failed())
    }

    /// Adds the end to a turn.
    fn end(&self, log: &TurnLog, ended: Result<String, TurnEnd>) {
        let reason = match ended {
            Ok(reason) => reason,
            Err(TurnEnd::Stopped) => "stopped".to_owned(),
            Err(TurnEnd::Failed(problem)) => {
                log.add(TurnEvent::Error {
                    message: problem.message,
                    hints: problem.hints.into_iter().chain(problem.lines).collect(),
                });
                "error".to_owned()
            }
        };
        // Before the last event: who has received it may send the next message.
        self.state().running = None;
        log.add(done(&reason));
    }

    /// Tells the pages that a turn has begun or ended; without one, that all were forgotten.
    fn tell(&self, log: Option<&TurnLog>, running: bool) {
        self.feed.send(&PageMessage::Assistant {
            notebook: self.notebook.clone(),
            turn: log.map(TurnLog::id),
            running,
        });
    }
}

fn done(reason: &str) -> TurnEvent {
    TurnEvent::Done {
        reason: reason.to_owned(),
    }
}

/// The task that answers.
struct Task {
    /// It ends the task when nobody has it any more.
    conversation: Weak<Conversation>,
    choice: AssistantChoice,
    workspace: Workspace,
    file: ChatFile,
}

impl Task {
    async fn run(self, mut received: mpsc::Receiver<Order>, mut stored: StoredBackend) {
        let mut backend = None;
        loop {
            let order = match backend {
                Some(_) => timeout(IDLE, received.recv()).await,
                None => Ok(received.recv().await),
            };
            let order = match order {
                Ok(Some(order)) => order,
                Ok(None) => return,
                Err(_) => {
                    backend = None;
                    continue;
                }
            };
            let Some(conversation) = self.conversation.upgrade() else {
                return;
            };
            match order {
                Order::Answer(order) => {
                    self.store(&conversation, &stored);
                    let ended = match self.found(&conversation, &mut backend, &stored).await {
                        Ok(backend) => self.answer(&conversation, backend, &order).await,
                        Err(problem) => Err(TurnEnd::Failed(problem)),
                    };
                    if let Some(backend) = &backend {
                        stored = backend.stored();
                    }
                    // Who reads that the turn has ended may end the server: the model must know the turn at its next start.
                    self.store(&conversation, &stored);
                    conversation.end(&order.log, ended);
                    self.store(&conversation, &stored);
                    conversation.tell(Some(&order.log), false);
                }
                Order::Forget(done) => {
                    (backend, stored) = (None, StoredBackend::default());
                    conversation.state().turns.clear();
                    self.store(&conversation, &stored);
                    conversation.tell(None, false);
                    let _ = done.send(());
                }
            }
        }
    }

    /// Returns the assistant, which is looked for if there is none yet.
    async fn found<'a>(
        &self,
        conversation: &Conversation,
        backend: &'a mut Option<Backend>,
        stored: &StoredBackend,
    ) -> Result<&'a mut Backend, Problem> {
        let found = match backend.take() {
            Some(known) => known,
            None => {
                let Conversation { root, notebook, .. } = conversation;
                Backend::find(&self.choice, root, notebook, stored.clone()).await?
            }
        };
        Ok(backend.insert(found))
    }

    async fn answer(
        &self,
        conversation: &Conversation,
        backend: &mut Backend,
        order: &TurnOrder,
    ) -> Result<String, TurnEnd> {
        let project = self.workspace.project();
        let begin = project.events_of(&[]).end();
        let front = PageFront {
            conversation,
            order,
            reader: RefCell::default(),
            questions: RefCell::default(),
        };
        let notebook = conversation.root.join(&conversation.notebook);
        let model = order.model.as_deref();
        let answer = backend.answer(&order.message, model, &notebook, &front, &order.stop);
        let ended = answer.await;
        let turn = ChatTurn {
            chat: "nb web".to_owned(),
            cell: None,
            message: Some(beginning(&order.message)),
        };
        let name = backend.name();
        AgentWork::since(project, begin, name).record(project, name, &turn);
        ended
    }

    /// Writes the conversation, as far as it is kept.
    fn store(&self, conversation: &Conversation, backend: &StoredBackend) {
        let mut state = conversation.state();
        let mut turns: VecDeque<_> = state.turns.iter().map(|log| log.turn()).collect();
        let sizes = turns
            .iter()
            .map(|turn| serde_json::to_string(turn).map_or(0, |it| it.len()));
        let sizes: Vec<_> = sizes.collect();
        let mut bytes: usize = sizes.iter().sum();
        let mut sizes = sizes.into_iter();
        while turns.len() > MOST_TURNS || (bytes > MOST_BYTES && turns.len() > 1) {
            bytes -= sizes.next().unwrap_or_default();
            turns.pop_front();
            state.turns.pop_front();
        }
        drop(state);
        #[derive(Serialize)]
        struct Kept<'a> {
            turns: &'a VecDeque<Turn>,
            backend: &'a StoredBackend,
        }
        let kept = Kept {
            turns: &turns,
            backend,
        };
        if let Err(error) = self.file.write(&kept) {
            tracing::warn!(%error, "a conversation could not be stored");
        }
    }
}

/// The side of a turn where the pages are.
struct PageFront<'a> {
    conversation: &'a Conversation,
    order: &'a TurnOrder,
    reader: RefCell<UpdateReader>,
    /// How many questions there were.
    questions: RefCell<u64>,
}

impl TurnFront for PageFront<'_> {
    fn add(&self, event: TurnEvent) {
        if !self.order.log.add(event) {
            self.order.stop.notify_one();
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
        let answer = timeout(THINKS, answer).await.ok().and_then(Result::ok);
        self.add(TurnEvent::Answered { id });
        answer
    }
}

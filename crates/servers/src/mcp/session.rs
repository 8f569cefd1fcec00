//! The sessions of clients, and what they have in common.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rmcp::RoleServer;
use rmcp::service::RequestContext;
use tokio::task::JoinHandle;
use tokio_util::task::LocalPoolHandle;

use super::audit::{RateLimit, TooManyCalls};
use super::positions::Positions;
use super::result::AnswerForm;
use super::tools::Allowed;
use super::turns::Turns;
use crate::activity::actor::Actor;
use crate::api::caller::{Caller, CallerSettings};
use crate::api::problem::{Problem, ProblemKind};
use crate::api::root::Root;
use crate::kernel::variables::ProcessVariables;
use crate::project::event::actor_id;
use crate::project::fresh_id;

/// How many clients of a version without sessions are remembered.
const MOST_CLIENTS: usize = 256;

/// How the server is started.
#[derive(Clone, Debug)]
pub struct McpOptions {
    /// The folder whose notebooks clients may name.
    pub root: PathBuf,
    /// The name to act under; `None` is the agent's in the environment, else the client's.
    pub name: Option<String>,
    /// Whether nothing may be changed or run.
    pub read_only: bool,
    /// The tools that may be called; an empty list allows all.
    pub tools: Vec<String>,
    /// How many calls a client may make in a minute; `None` is no limit.
    pub rate: Option<usize>,
    /// What answers contain; `None` is what the client wishes, else text and images.
    pub answers: Option<AnswerForm>,
    /// Receives a line for each thing that a request waits for.
    pub progress: fn(&str),
}

/// What the sessions of a server have in common.
#[derive(Clone)]
pub(super) struct Sessions {
    root: Root,
    allowed: Allowed,
    /// The name to act under, if it is not the client's.
    name: Option<String>,
    rate: Option<usize>,
    answers: Option<AnswerForm>,
    progress: fn(&str),
    /// The thread that does the work of all requests.
    worker: LocalPoolHandle,
    /// The sessions of clients whose version of the protocol has none, by their names and processes.
    of_clients: Arc<Mutex<HashMap<ClientKey, Session>>>,
}

/// The name of a client, and its process where the system tells it.
pub(super) type ClientKey = (String, Option<u32>);

impl Sessions {
    /// Starts the worker.
    ///
    /// # Errors
    /// The root is not a folder, or a tool does not exist.
    pub(super) fn new(options: McpOptions) -> Result<Self, Problem> {
        let allowed = Allowed {
            read_only: options.read_only,
            tools: options.tools,
        };
        if let Some(name) = allowed.unknown() {
            let text = format!("there is no tool {name:?}");
            let names = Allowed::default().names().join(", ");
            return Err(Problem::new(ProblemKind::Usage, text).hint(format!("they are {names}")));
        }
        Ok(Self {
            root: Root::of(&options.root)?,
            allowed,
            name: options.name,
            rate: options.rate,
            answers: options.answers,
            progress: options.progress,
            worker: LocalPoolHandle::new(1),
            of_clients: Arc::default(),
        })
    }

    /// Begins a client's session.
    pub(super) fn begin(&self) -> Session {
        Session {
            common: Arc::new(self.clone()),
            id: fresh_id(),
            positions: Arc::default(),
            turns: Arc::default(),
            limit: Arc::new(self.rate.map(RateLimit::new).into()),
        }
    }

    /// Returns the session of a client whose version of the protocol has none. Of very many clients, those that have no call
    /// under way are forgotten: each is another actor when it comes again.
    pub(super) fn of_client(&self, client: ClientKey) -> Session {
        let mut sessions = self
            .of_clients
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if sessions.len() >= MOST_CLIENTS && !sessions.contains_key(&client) {
            sessions.retain(|_, it| Arc::strong_count(&it.positions) > 1);
        }
        sessions
            .entry(client)
            .or_insert_with(|| self.begin())
            .clone()
    }
}

/// The session of one client.
#[derive(Clone)]
pub(super) struct Session {
    common: Arc<Sessions>,
    /// Two clients of one name are two actors.
    id: String,
    positions: Arc<Positions>,
    turns: Arc<Turns>,
    limit: Arc<Mutex<Option<RateLimit>>>,
}

impl Session {
    /// Returns the folder whose notebooks the client may name.
    pub(super) fn root(&self) -> &Root {
        &self.common.root
    }

    /// Returns which tools the client may call.
    pub(super) fn allowed(&self) -> &Allowed {
        &self.common.allowed
    }

    /// Returns where the client last saw each cell.
    pub(super) fn positions(&self) -> &Positions {
        &self.positions
    }

    /// Returns the session's id.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the turns of the client's calls.
    pub(super) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Counts a call.
    pub(super) fn count(&self) -> Result<(), TooManyCalls> {
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *limit {
            Some(limit) => limit.count(Instant::now()),
            None => Ok(()),
        }
    }

    /// Returns what answers to the client contain.
    pub(super) fn answer_form(&self, context: &RequestContext<RoleServer>) -> AnswerForm {
        let wished = || AnswerForm::wished(&context.client_capabilities()?);
        self.common.answers.or_else(wished).unwrap_or_default()
    }

    /// Does work on the server's worker.
    ///
    /// # Errors
    /// The work panicked.
    pub(super) async fn on_worker<T, F>(
        &self,
        work: impl FnOnce(Self) -> F + Send + 'static,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let result = self.spawn(work).await;
        result.map_err(|error| Problem::failed("do this", &error))
    }

    /// Begins work on the server's worker.
    pub(super) fn spawn<T, F>(&self, work: impl FnOnce(Self) -> F + Send + 'static) -> JoinHandle<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let session = self.clone();
        self.common.worker.spawn_pinned(move || work(session))
    }

    /// Makes the caller of a request about a notebook.
    pub(super) fn caller(
        &self,
        notebook: Option<PathBuf>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Caller, Problem> {
        let client = context.client_info().map(|client| client.name);
        let name = self.common.name.clone();
        Caller::of(CallerSettings {
            notebook,
            name: name.or_else(|| self.name_of(client.as_deref())),
            on_terminal: false,
            working_dir: self.common.root.folder().to_owned(),
            command: "nb".to_owned(),
            progress: self.common.progress,
            gets_json: true,
            has_own_thread: false,
        })
    }

    /// Returns the client's name with its session, unless the environment names the agent.
    fn name_of(&self, client: Option<&str>) -> Option<String> {
        let (actor, _) = Actor::of_command(None, &ProcessVariables, None, false);
        let name = Actor::name_of_client(client?).filter(|_| actor.is_unnamed_agent())?;
        Some(actor_id(&name, Some(&self.id)))
    }
}

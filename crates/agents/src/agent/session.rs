//! An agent with its session: started when it is needed, spoken to, interrupted, started again after its death.
//!
//! While a request of ours is open, the agent's own requests are carried out: permissions one after the other,
//! files and terminals at once. Between turns the agent is not read.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};

use super::connection::{AgentEnd, Connection, Launch};
use super::permission::{PermissionChoice, PermissionQuestion, StandingPermission};
use super::protocol::{
    self, AgentRequest, Call, Capabilities, Incoming, McpServer, PermissionKind, Refusal,
    RequestId, RpcError, SessionFacts,
};
use super::terminal::Terminals;
use super::update::{Content, SlashCommand, ToolChange, ToolContent, Update};
use super::workspace::Workspace;
use crate::api::problem::{Problem, ProblemKind};

/// How long an agent may take to introduce itself and to begin a session: some are downloaded first.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// How often the output of commands that run is shown.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(250);

/// How long an agent may take to end a turn that is interrupted.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How many tool calls of a turn are remembered, and how long the texts of one may be, in bytes.
const MOST_TOOLS: usize = 64;
const LONGEST_TOOL: usize = 1 << 20;

/// How many requests of an agent may be open at once.
const MOST_REQUESTS: usize = 64;

/// The side of a conversation where the person is.
pub trait Front {
    /// Takes an update of the running turn.
    fn take(&self, update: Update);

    /// Puts a question to the person; `None` if nobody can be asked.
    fn ask(&self, prompt: String) -> impl Future<Output = Option<String>>;
}

/// An agent, and the session with it.
#[derive(Debug)]
pub struct Agent {
    launch: Launch,
    workspace: Workspace,
    /// The MCP servers that each session gets.
    servers: Vec<McpServer>,
    /// The session to take up again at the next start.
    earlier_session: Option<String>,
    standing: Vec<StandingPermission>,
    state: AgentState,
}

#[derive(Debug)]
enum AgentState {
    /// It is started with the next message.
    Off,
    /// It runs.
    On(Box<Running>),
}

/// A running agent.
#[derive(Debug)]
struct Running {
    connection: Connection,
    capabilities: Capabilities,
    /// `None` for an agent that speaks only `chat/send`.
    session: Option<SessionFacts>,
    commands: Vec<SlashCommand>,
    terminals: Rc<Terminals>,
}

/// What the start of an agent has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentStart {
    /// It ran already.
    Already,
    /// It has begun a new session.
    New,
    /// It has taken up the earlier session.
    Resumed,
    /// It has begun a new session, since it cannot take up the earlier one.
    Forgotten {
        /// Why.
        why: String,
    },
}

/// Why an agent could not do something.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its program could not be started.
    #[error("cannot start {command}: {source}")]
    Start {
        /// The command.
        command: String,
        /// The system's error.
        source: io::Error,
    },
    /// It ended.
    #[error("{name} is gone: {}", end.how)]
    Gone {
        /// The agent.
        name: String,
        /// How.
        end: AgentEnd,
    },
    /// It did not introduce itself.
    #[error("{name} has not answered within {} s: {}", START_TIMEOUT.as_secs(), end.how)]
    Silent {
        /// The agent.
        name: String,
        /// What it wrote instead.
        end: AgentEnd,
    },
    /// It answered with an error.
    #[error("{name} answers: {source}")]
    Answer {
        /// The agent.
        name: String,
        /// The error.
        source: RpcError,
    },
    /// It answered with something that is no answer.
    #[error("{name} does not keep to the protocol: {why}")]
    Protocol {
        /// The agent.
        name: String,
        /// Why.
        why: String,
    },
    /// It wants the person to log in.
    #[error("{name} wants you to log in first")]
    Login {
        /// The agent.
        name: String,
        /// Its ways: id, and name.
        ways: Vec<(String, String)>,
    },
    /// The person interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// It was interrupted and did not stop.
    #[error("interrupted; {name} did not stop within {} s, and nb ended it", STOP_TIMEOUT.as_secs())]
    Stubborn {
        /// The agent.
        name: String,
    },
    /// It has no such mode, model or setting.
    #[error("{0}")]
    NoSuch(String),
}

impl AgentError {
    /// Returns whether this is the end of an interrupted turn.
    pub fn is_interrupt(&self) -> bool {
        matches!(self, Self::Interrupted | Self::Stubborn { .. })
    }

    /// Returns the error with what helps: the agent's last lines, or its ways to log in.
    pub fn problem(&self) -> Problem {
        let problem = Problem::new(ProblemKind::Failed, self.to_string());
        match self {
            Self::Gone { end, .. } | Self::Silent { end, .. } => problem.lines(&end.lines),
            Self::Login { ways, .. } => {
                let ways = ways.iter().map(|(id, name)| format!("{id}  {name}"));
                problem
                    .lines(&ways.collect::<Vec<_>>())
                    .hint("log in with the agent's own program, and send the message again")
            }
            _ => problem,
        }
    }
}

impl Agent {
    /// Makes an agent, which is not started yet.
    pub fn new(launch: Launch, workspace: Workspace, servers: Vec<McpServer>) -> Self {
        Self {
            launch,
            workspace,
            servers,
            earlier_session: None,
            standing: Vec::new(),
            state: AgentState::Off,
        }
    }

    /// Returns the command, and the name.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Returns whether it runs.
    pub fn is_running(&self) -> bool {
        matches!(self.state, AgentState::On(_))
    }

    /// Returns the id of its session, or of the one that it will take up.
    pub fn session(&self) -> Option<&str> {
        match &self.state {
            AgentState::On(running) => running.session.as_ref()?.id.as_deref(),
            AgentState::Off => self.earlier_session.as_deref(),
        }
    }

    /// Lets the next start take up an earlier session.
    pub fn resume(&mut self, session: Option<String>) {
        self.earlier_session = session;
    }

    /// Returns the capabilities that the agent has reported.
    pub fn capabilities(&self) -> Option<&Capabilities> {
        match &self.state {
            AgentState::On(running) => Some(&running.capabilities),
            AgentState::Off => None,
        }
    }

    /// Returns the slash commands that it has named.
    pub fn commands(&self) -> &[SlashCommand] {
        match &self.state {
            AgentState::On(running) => &running.commands,
            AgentState::Off => &[],
        }
    }

    /// Returns the MCP servers that its sessions get.
    pub fn servers(&self) -> &[McpServer] {
        &self.servers
    }

    /// Sets the MCP servers that its next session gets.
    pub fn set_servers(&mut self, servers: Vec<McpServer>) {
        self.servers = servers;
    }

    /// Returns what it may do without being asked.
    pub fn standing(&self) -> &[StandingPermission] {
        &self.standing
    }

    /// Allows what was allowed earlier; what is another agent's is passed over.
    pub fn allow(&mut self, standing: &[StandingPermission]) {
        let own = standing.iter().filter(|it| it.agent == self.launch.name);
        self.standing.extend(own.cloned());
    }

    /// Takes back a permission, or all.
    pub fn revoke(&mut self, index: Option<usize>) -> Vec<StandingPermission> {
        match index {
            None => std::mem::take(&mut self.standing),
            Some(index) if index < self.standing.len() => vec![self.standing.remove(index)],
            Some(_) => Vec::new(),
        }
    }

    /// Starts the agent and begins a session, if it does not run.
    ///
    /// # Errors
    /// It cannot be started, does not speak the protocol, or wants a login.
    pub async fn start(&mut self, interrupt: &Notify) -> Result<AgentStart, AgentError> {
        if self.is_running() {
            return Ok(AgentStart::Already);
        }
        let connection = Connection::start(&self.launch, self.workspace.root());
        let connection = connection.map_err(|source| AgentError::Start {
            command: self.launch.argv.join(" "),
            source,
        })?;
        self.state = AgentState::On(Box::new(Running {
            connection,
            capabilities: Capabilities::default(),
            session: None,
            commands: Vec::new(),
            terminals: Rc::default(),
        }));
        let result = tokio::select! {
            result = tokio::time::timeout(START_TIMEOUT, self.begin()) => result,
            () = interrupt.notified() => Ok(Err(AgentError::Interrupted)),
        };
        let result = result.unwrap_or_else(|_| {
            let AgentState::On(running) = &self.state else {
                return Err(AgentError::Interrupted);
            };
            Err(AgentError::Silent {
                name: self.launch.name.clone(),
                end: running.connection.describe_silence(),
            })
        });
        // An agent that wants a login keeps running: the person chooses how to log in.
        if result
            .as_ref()
            .is_err_and(|error| !matches!(error, AgentError::Login { .. }))
        {
            self.stop().await;
        }
        result
    }

    async fn begin(&mut self) -> Result<AgentStart, AgentError> {
        let answer = match self.call(Call::Initialize, &NoFrontEnd, None).await {
            Err(AgentError::Answer { source, .. }) if source.is_unknown_method() => {
                self.earlier_session = None;
                return Ok(AgentStart::New);
            }
            answer => answer?,
        };
        let capabilities = protocol::capabilities(answer);
        let capabilities = capabilities.map_err(|why| self.no_protocol(why))?;
        self.running()?.capabilities = capabilities;
        self.begin_session().await
    }

    /// Begins a session with an agent that has introduced itself.
    async fn begin_session(&mut self) -> Result<AgentStart, AgentError> {
        let root = self.workspace.root().to_owned();
        let servers = self.servers.clone();
        let loads = self.running()?.capabilities.loads;
        let mut result = AgentStart::New;
        if let Some(earlier_session) = self.earlier_session.take() {
            let why = if loads {
                // The agent repeats the conversation, which the notebook has already.
                let call = Call::Load(&earlier_session, &root, &servers);
                match self.call(call, &NoFrontEnd, None).await {
                    Ok(answer) => {
                        let mut facts = self.facts(answer)?;
                        facts.id = Some(earlier_session);
                        self.running()?.session = Some(facts);
                        return Ok(AgentStart::Resumed);
                    }
                    Err(AgentError::Answer { source, .. }) if !source.wants_login() => {
                        source.to_string()
                    }
                    Err(error) => {
                        self.earlier_session = Some(earlier_session);
                        return Err(self.login_error(error));
                    }
                }
            } else {
                "it cannot take up sessions".to_owned()
            };
            result = AgentStart::Forgotten { why };
        }
        let answer = self
            .call(Call::New(&root, &servers), &NoFrontEnd, None)
            .await;
        let answer = answer.map_err(|error| self.login_error(error))?;
        let facts = self.facts(answer)?;
        if facts.id.is_none() {
            return Err(self.no_protocol("its session has no id".to_owned()));
        }
        self.running()?.session = Some(facts);
        Ok(result)
    }

    /// Logs in by one of the agent's ways, and begins a session.
    ///
    /// # Errors
    /// The agent refuses.
    pub async fn login(&mut self, way: &str) -> Result<AgentStart, AgentError> {
        self.call(Call::Authenticate(way), &NoFrontEnd, None)
            .await?;
        self.begin_session().await
    }

    /// Sends a message and waits for the end of the turn; returns why it ended.
    ///
    /// # Errors
    /// The agent has died, was interrupted or answers with an error.
    pub async fn prompt(
        &mut self,
        message: Vec<Content>,
        front: &impl Front,
        interrupt: &Notify,
    ) -> Result<String, AgentError> {
        let session = self.session().map(str::to_owned);
        let call = match &session {
            Some(session) => Call::Prompt(session, message),
            None => {
                let text = message.into_iter().find_map(|content| match content {
                    Content::Text(text) => Some(text),
                    _ => None,
                });
                return self.chat(&text.unwrap_or_default(), front, interrupt).await;
            }
        };
        let answer = self.call(call, front, Some(interrupt)).await;
        if let AgentState::On(running) = &self.state {
            for (id, text) in running.terminals.release_all() {
                front.take(Update::Terminal { id, text });
            }
        }
        Ok(protocol::stop_reason(&answer?))
    }

    async fn chat(
        &mut self,
        text: &str,
        front: &impl Front,
        interrupt: &Notify,
    ) -> Result<String, AgentError> {
        let answer = self
            .call(Call::ChatSend(text), front, Some(interrupt))
            .await?;
        front.take(Update::Answer(Content::Text(protocol::chat_text(&answer))));
        Ok("end_turn".to_owned())
    }

    /// Returns the session's modes and settings as lines.
    pub fn settings(&self) -> Vec<String> {
        let AgentState::On(running) = &self.state else {
            return Vec::new();
        };
        let Some(facts) = &running.session else {
            return Vec::new();
        };
        let mut lines = Vec::new();
        if !facts.modes.is_empty() {
            let modes = facts.modes.iter();
            let modes: Vec<_> = modes
                .map(|mode| format!("{} ({})", mode.id, mode.name))
                .collect();
            let now = facts.mode.as_deref().unwrap_or("-");
            lines.push(format!("mode = {now} of {}", modes.join(", ")));
        }
        lines.extend(facts.options.iter().map(|option| {
            let values: Vec<_> = option
                .values
                .iter()
                .map(|(value, _)| value.as_str())
                .collect();
            format!("{} = {} of {}", option.id, option.value, values.join(", "))
        }));
        lines
    }

    /// Sets the session's mode.
    ///
    /// # Errors
    /// There is no such mode, or the agent refuses.
    pub async fn set_mode(&mut self, mode: &str) -> Result<(), AgentError> {
        let name = self.launch.name.clone();
        let facts = self.session_facts()?;
        let mode_id = facts
            .modes
            .iter()
            .find(|it| it.id == mode || it.name == mode);
        let Some(mode_id) = mode_id.map(|it| it.id.clone()) else {
            let ids: Vec<_> = facts.modes.iter().map(|it| it.id.as_str()).collect();
            return Err(AgentError::NoSuch(match ids.as_slice() {
                [] => format!("{name} has no modes"),
                ids => format!("{name} has no mode {mode:?}; its modes: {}", ids.join(", ")),
            }));
        };
        let session = facts.id.clone().unwrap_or_default();
        self.call(Call::SetMode(&session, &mode_id), &NoFrontEnd, None)
            .await?;
        self.session_facts()?.mode = Some(mode_id);
        Ok(())
    }

    /// Sets one of the session's settings; `None` is the one that chooses the model.
    ///
    /// # Errors
    /// There is no such setting or value, or the agent refuses.
    pub async fn set_option(
        &mut self,
        option: Option<&str>,
        value: &str,
    ) -> Result<(), AgentError> {
        let name = self.launch.name.clone();
        let facts = self.session_facts()?;
        let is_named = |it: &&super::update::SessionOption| match option {
            Some(option) => it.id == option || it.name == option,
            None => it.is_model,
        };
        let Some(setting) = facts.options.iter().find(is_named) else {
            let requested = option.unwrap_or("model");
            let ids: Vec<_> = facts.options.iter().map(|it| it.id.as_str()).collect();
            return Err(AgentError::NoSuch(match ids.as_slice() {
                [] => format!("{name} has no settings"),
                ids => format!(
                    "{name} has no setting {requested:?}; its settings: {}",
                    ids.join(", ")
                ),
            }));
        };
        let mut values = setting.values.iter();
        let chosen = values.find(|(id, shown)| id == value || shown == value);
        let Some((chosen, _)) = chosen.cloned() else {
            let values: Vec<_> = setting.values.iter().map(|(id, _)| id.as_str()).collect();
            let text = format!("{} is one of {}", setting.id, values.join(", "));
            return Err(AgentError::NoSuch(text));
        };
        let (session, id) = (facts.id.clone().unwrap_or_default(), setting.id.clone());
        let call = Call::SetOption(&session, &id, &chosen);
        self.call(call, &NoFrontEnd, None).await?;
        let facts = self.session_facts()?;
        if let Some(setting) = facts.options.iter_mut().find(|it| it.id == id) {
            setting.value = chosen;
        }
        Ok(())
    }

    /// Forgets the session: the next message begins a new one.
    pub async fn forget(&mut self) {
        self.stop().await;
        self.earlier_session = None;
    }

    /// Ends the agent. Its session is taken up again at the next start, if it can.
    pub async fn stop(&mut self) -> Option<AgentEnd> {
        let session = self.session().map(str::to_owned);
        let AgentState::On(mut running) = std::mem::replace(&mut self.state, AgentState::Off)
        else {
            return None;
        };
        running.terminals.release_all();
        self.earlier_session = session.or(self.earlier_session.take());
        Some(running.connection.end().await)
    }

    fn running(&mut self) -> Result<&mut Running, AgentError> {
        match &mut self.state {
            AgentState::On(running) => Ok(running),
            AgentState::Off => Err(AgentError::NoSuch(format!(
                "{} does not run: send it a message first",
                self.launch.name
            ))),
        }
    }

    fn session_facts(&mut self) -> Result<&mut SessionFacts, AgentError> {
        let name = self.launch.name.clone();
        let facts = self.running()?.session.as_mut();
        facts.ok_or_else(|| AgentError::NoSuch(format!("{name} has no session")))
    }

    fn facts(&self, answer: Value) -> Result<SessionFacts, AgentError> {
        protocol::session_facts(answer).map_err(|why| self.no_protocol(why))
    }

    fn no_protocol(&self, why: String) -> AgentError {
        AgentError::Protocol {
            name: self.launch.name.clone(),
            why,
        }
    }

    /// Returns an agent's error, or that it wants a login.
    fn login_error(&self, error: AgentError) -> AgentError {
        match error {
            AgentError::Answer { name, source } if source.wants_login() => AgentError::Login {
                name,
                ways: match &self.state {
                    AgentState::On(running) => running.capabilities.logins.clone(),
                    AgentState::Off => Vec::new(),
                },
            },
            error => error,
        }
    }

    /// Sends a request and carries out what the agent asks for until it answers.
    async fn call(
        &mut self,
        call: Call<'_>,
        front: &impl Front,
        interrupt: Option<&Notify>,
    ) -> Result<Value, AgentError> {
        let result = {
            let name = self.launch.name.clone();
            let AgentState::On(running) = &mut self.state else {
                return Err(self.running().err().unwrap_or(AgentError::Interrupted));
            };
            let mut exchange = Exchange {
                name: &name,
                running,
                workspace: &self.workspace,
                standing: &mut self.standing,
                front,
                tools: HashMap::new(),
                open_questions: VecDeque::new(),
            };
            exchange.until_answered(call, interrupt).await
        };
        match result {
            Ok(answer) => answer.map_err(|source| AgentError::Answer {
                name: self.launch.name.clone(),
                source,
            }),
            Err(CallFailure::Gone) => {
                let end = self.stop().await.unwrap_or_default();
                Err(AgentError::Gone {
                    name: self.launch.name.clone(),
                    end,
                })
            }
            Err(CallFailure::Stubborn) => {
                self.stop().await;
                Err(AgentError::Stubborn {
                    name: self.launch.name.clone(),
                })
            }
        }
    }
}

/// Why a request has no answer.
enum CallFailure {
    /// The agent has ended or reads nothing.
    Gone,
    /// It does not stop.
    Stubborn,
}

/// A front end without a person.
struct NoFrontEnd;

impl Front for NoFrontEnd {
    fn take(&self, _: Update) {}

    async fn ask(&self, _: String) -> Option<String> {
        None
    }
}

/// One request of ours, and what the agent asks for until it has answered.
struct Exchange<'a, F> {
    name: &'a str,
    running: &'a mut Running,
    workspace: &'a Workspace,
    standing: &'a mut Vec<StandingPermission>,
    front: &'a F,
    /// The tool calls of the turn, by their ids.
    tools: HashMap<String, ToolChange>,
    /// Permission questions without an answer; the first one is shown to the person.
    open_questions: VecDeque<(RequestId, PermissionQuestion)>,
}

type Work<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

impl<'a, F: Front> Exchange<'a, F> {
    async fn until_answered(
        &mut self,
        call: Call<'_>,
        interrupt: Option<&Notify>,
    ) -> Result<Result<Value, RpcError>, CallFailure> {
        let session = match &call {
            Call::Prompt(session, _) => Some((*session).to_owned()),
            _ => None,
        };
        let id = self
            .running
            .connection
            .request(call)
            .ok_or(CallFailure::Gone)?;
        let mut work: Vec<Work<'a, String>> = Vec::new();
        let mut asking: Option<Work<'a, Option<String>>> = None;
        let mut deadline: Option<Instant> = None;
        let mut terminal_ticks = tokio::time::interval(TERMINAL_INTERVAL);
        terminal_ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if asking.is_none()
                && deadline.is_none()
                && let Some((_, question)) = self.open_questions.front()
            {
                let front = self.front;
                asking = Some(Box::pin(front.ask(question.prompt())));
            }
            tokio::select! {
                message = self.running.connection.next() => match message {
                    None => return Err(CallFailure::Gone),
                    Some(Incoming::Answer(to, answer)) if to == id => {
                        self.refuse_all();
                        // It may have been at its end when it was interrupted.
                        let was_interrupted = deadline.is_some();
                        return Ok(answer.map(|answer| match was_interrupted {
                            true => protocol::cancelled(),
                            false => answer,
                        }));
                    }
                    Some(Incoming::Request(id, request)) => {
                        let open = work.len() + self.open_questions.len();
                        self.take_request(id, *request, open, deadline.is_some(), &mut work);
                    }
                    Some(Incoming::Update(of, update)) => {
                        let is_own = session.as_ref().is_none_or(|session| *session == of);
                        if is_own {
                            self.take_update(*update);
                        }
                    }
                    // An answer to a request that has been answered, or a message without a meaning.
                    Some(Incoming::Answer(..) | Incoming::Ignored | Incoming::Garbage) => {}
                },
                line = next_finished(&mut work) => {
                    self.running.connection.send(line);
                }
                answer = answered(&mut asking) => {
                    asking = None;
                    self.take_choice(answer);
                }
                () = notified(interrupt) => {
                    let Some(session) = session.as_ref().filter(|_| deadline.is_none()) else {
                        return Err(CallFailure::Stubborn);
                    };
                    asking = None;
                    // Before the answers to its questions, so that it does not go on after them.
                    self.running.connection.send(protocol::cancel_line(session));
                    self.refuse_all();
                    self.running.terminals.kill_all();
                    deadline = Some(Instant::now() + STOP_TIMEOUT);
                }
                _ = terminal_ticks.tick(), if !self.running.terminals.is_empty() => {
                    for (id, text) in self.running.terminals.take_changed() {
                        self.front.take(Update::Terminal { id, text });
                    }
                }
                () = sleep_until(deadline) => return Err(CallFailure::Stubborn),
            }
        }
    }

    /// Returns a tool call as it is known, with the changes of an update.
    fn known_tool(&self, change: &ToolChange) -> ToolChange {
        let known = self.tools.get(&change.id).cloned().unwrap_or_default();
        let change = change.clone();
        ToolChange {
            id: change.id,
            title: change.title.or(known.title),
            kind: change.kind.or(known.kind),
            state: change.state.or(known.state),
            content: change.content.or(known.content),
            locations: change.locations.or(known.locations),
            output: change.output.or(known.output),
            input: change.input.or(known.input),
        }
    }

    /// Remembers what a question about a tool call may need, unless that is too much.
    fn remember_tool(&mut self, change: &ToolChange) {
        let mut known = self.known_tool(change);
        known.output = None;
        let mut size = known.input.as_ref().map_or(0, |it| it.to_string().len());
        let content = known.content.iter_mut();
        content.for_each(|content| content.retain(|it| matches!(it, ToolContent::Diff { .. })));
        for content in known.content.iter().flatten() {
            if let ToolContent::Diff { old, new, .. } = content {
                size += old.len() + new.len();
            }
        }
        if self.tools.len() >= MOST_TOOLS {
            self.tools.clear();
        }
        match size <= LONGEST_TOOL {
            true => self.tools.insert(known.id.clone(), known),
            false => self.tools.remove(&known.id),
        };
    }

    fn take_update(&mut self, update: Update) {
        match &update {
            Update::Tool(change) => self.remember_tool(change),
            Update::Commands(commands) => self.running.commands.clone_from(commands),
            Update::Mode(mode) => {
                if let Some(facts) = &mut self.running.session {
                    facts.mode = Some(mode.clone());
                }
            }
            Update::Options(options) => {
                if let Some(facts) = &mut self.running.session {
                    facts.options.clone_from(options);
                }
            }
            _ => {}
        }
        self.front.take(update);
    }

    /// Takes a request of the agent. `open` is the number of those that are not answered yet.
    fn take_request(
        &mut self,
        id: RequestId,
        request: AgentRequest,
        open: usize,
        is_cancelled: bool,
        work: &mut Vec<Work<'a, String>>,
    ) {
        if open >= MOST_REQUESTS {
            let why = format!("{MOST_REQUESTS} requests are open: wait for some of them");
            return self.answer(&id, Err(Refusal::Failed(why)));
        }
        let workspace = self.workspace;
        let terminals = self.running.terminals.clone();
        let by = self.name.to_owned();
        match request {
            AgentRequest::Permission { tool, options } => {
                // The request may say only what has changed in the call.
                let question = self.question(&self.known_tool(&tool), options);
                self.front.take(Update::Tool(tool));
                let standing = question.standing.as_ref();
                let allowed = standing.is_some_and(|it| self.standing.contains(it));
                match question.once().filter(|_| allowed) {
                    Some(option) => {
                        let text = format!("allowed as before: {}", question.title);
                        self.answer(&id, Ok(protocol::permission_answer(Some(&option.id))));
                        self.front.take(Update::Note(text));
                    }
                    None if is_cancelled || question.options.is_empty() => {
                        self.answer(&id, Ok(protocol::permission_answer(None)));
                    }
                    None => self.open_questions.push_back((id, question)),
                }
            }
            AgentRequest::Read { path, line, limit } => {
                let reads_missing = self.running.capabilities.reads_missing;
                work.push(Box::pin(async move {
                    let answer = match workspace.read(&by, &path, line, limit).await {
                        Ok(Some(text)) => Ok(text),
                        Ok(None) if reads_missing => Ok(String::new()),
                        Ok(None) => Err(Refusal::NotFound(path.display().to_string())),
                        Err(why) => Err(Refusal::Failed(why)),
                    };
                    let answer = answer.map(|text| json!({ "content": text }));
                    protocol::answer_line(&id, answer)
                }));
            }
            AgentRequest::Write { path, text } => work.push(Box::pin(async move {
                let result = workspace.write(&by, &path, text).await;
                let answer = result.map(|()| json!({}));
                protocol::answer_line(&id, answer.map_err(Refusal::Failed))
            })),
            AgentRequest::Terminal(new) => work.push(Box::pin(async move {
                let folder = match &new.folder {
                    Some(folder) => workspace.resolve(folder),
                    None => Ok(workspace.root().to_owned()),
                };
                let started = match folder {
                    Ok(folder) => terminals.start(&new, folder).await,
                    Err(why) => Err(why),
                };
                let answer = started.map(|id| json!({ "terminalId": id }));
                protocol::answer_line(&id, answer.map_err(Refusal::Failed))
            })),
            AgentRequest::TerminalOutput(terminal) => {
                let found = terminals.get(&terminal);
                if let Ok(running) = &found {
                    let text = running.shown();
                    self.front.take(Update::Terminal { id: terminal, text });
                }
                let answer = found.map(|running| {
                    let (output, is_cut, exit) = running.output();
                    let exit = exit.as_ref().map(protocol::exit_answer);
                    json!({ "output": output, "truncated": is_cut, "exitStatus": exit })
                });
                self.answer(&id, answer.map_err(Refusal::Invalid));
            }
            AgentRequest::TerminalExit(terminal) => match terminals.get(&terminal) {
                Ok(running) => {
                    let front = self.front;
                    work.push(Box::pin(async move {
                        let exit = running.exit().await;
                        let text = running.shown();
                        front.take(Update::Terminal { id: terminal, text });
                        protocol::answer_line(&id, Ok(protocol::exit_answer(&exit)))
                    }));
                }
                Err(why) => self.answer(&id, Err(Refusal::Invalid(why))),
            },
            AgentRequest::TerminalKill(terminal) => {
                let killed = terminals.get(&terminal).map(|it| it.kill());
                self.answer(&id, killed.map(|()| json!({})).map_err(Refusal::Invalid));
            }
            AgentRequest::TerminalRelease(terminal) => {
                if let Ok(running) = terminals.get(&terminal) {
                    let text = running.shown();
                    let id = terminal.clone();
                    self.front.take(Update::Terminal { id, text });
                }
                terminals.release(&terminal);
                self.answer(&id, Ok(json!({})));
            }
            AgentRequest::Unknown => self.answer(&id, Err(Refusal::UnknownMethod)),
            AgentRequest::Invalid { method, why } => {
                self.answer(&id, Err(Refusal::Invalid(format!("{method}: {why}"))));
            }
        }
    }

    fn question(
        &self,
        tool: &ToolChange,
        options: Vec<protocol::PermissionOption>,
    ) -> PermissionQuestion {
        let places = tool.locations.iter().flatten().map(|location| {
            let path = self.workspace.shown(&location.path);
            location
                .line
                .map_or(path.clone(), |line| format!("{path}:{line}"))
        });
        PermissionQuestion {
            agent: self.name.to_owned(),
            title: tool
                .title
                .clone()
                .unwrap_or_else(|| "a tool call".to_owned()),
            kind: tool.kind.clone().unwrap_or_default(),
            places: places.collect(),
            options,
            standing: StandingPermission::of(self.name, tool),
        }
    }

    /// Takes the person's answer to the first permission that was asked for.
    fn take_choice(&mut self, answer: Option<String>) {
        let Some((id, question)) = self.open_questions.pop_front() else {
            return;
        };
        let Some(answer) = answer else {
            let chosen = question.default_option().map(|it| it.id.as_str());
            self.answer(&id, Ok(protocol::permission_answer(chosen)));
            let text = format!(
                "not allowed, since nobody can be asked here: {}",
                question.title
            );
            return self.front.take(Update::Note(text));
        };
        match question.choice(&answer) {
            PermissionChoice::Option(option) => {
                let chosen = self.option_to_send(&question, &option);
                self.answer(&id, Ok(protocol::permission_answer(Some(&chosen))));
                let text = format!("you answered: {}", option.name);
                self.front.take(Update::Note(text));
            }
            PermissionChoice::Nothing => {
                self.answer(&id, Ok(protocol::permission_answer(None)));
                self.front
                    .take(Update::Note("you allowed nothing".to_owned()));
            }
            PermissionChoice::Unclear => self.open_questions.push_front((id, question)),
        }
    }

    /// Returns the id of the option that is sent to the agent. A permission for the future is stored here, and not by
    /// the agent, so that it can be revoked.
    fn option_to_send(
        &mut self,
        question: &PermissionQuestion,
        option: &protocol::PermissionOption,
    ) -> String {
        if option.kind == PermissionKind::AllowAlways
            && let Some(once) = question.once()
        {
            match &question.standing {
                Some(standing) => self.standing.push(standing.clone()),
                None => self.front.take(Update::Note(
                    "allowed this time only: the request names neither files nor an input"
                        .to_owned(),
                )),
            }
            return once.id.clone();
        }
        option.id.clone()
    }

    /// Answers all open permission requests: nothing was chosen.
    fn refuse_all(&mut self) {
        for (id, _) in std::mem::take(&mut self.open_questions) {
            self.answer(&id, Ok(protocol::permission_answer(None)));
        }
    }

    fn answer(&self, id: &RequestId, answer: Result<Value, Refusal>) {
        let line = protocol::answer_line(id, answer);
        // An agent that does not read is noticed by its silence.
        self.running.connection.send(line);
    }
}

/// Waits for the first of some futures that is ready; for ever if there is none.
async fn next_finished<T>(list: &mut Vec<Work<'_, T>>) -> T {
    poll_fn(|context| {
        for at in 0..list.len() {
            if let Poll::Ready(result) = list[at].as_mut().poll(context) {
                drop(list.swap_remove(at));
                return Poll::Ready(result);
            }
        }
        Poll::Pending
    })
    .await
}

async fn answered<T>(future: &mut Option<Work<'_, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

async fn notified(notify: Option<&Notify>) {
    match notify {
        Some(notify) => notify.notified().await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

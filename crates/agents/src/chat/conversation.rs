//! The agents of a chat: commands start and stop them, messages go to them, and they are stored between kernels.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tokio::sync::Notify;

use super::cell::{self, ChatCell, ChatCommand};
use super::complete::ChatNames;
use super::front::CellFront;
use crate::agent::cell_link;
use crate::agent::known::{KnownAgents, own_server};
use crate::agent::registry::AgentRegistry;
use crate::agent::stored::{ChatFile, OpenTurn, StoredAgent, StoredChat, beginning};
use crate::agent::update::Update;
use crate::agent::work::AgentWork;
use crate::agent::{
    Agent, AgentError, AgentStart, ChatMessage, Front, Launch, McpServer, Workspace,
};
use crate::api::problem::Problem;
use crate::kernel::variables::{ProcessVariables, Variables};
use crate::notebook::visible_line;
use crate::project::event::ChatTurn;

/// How many changed cells are named after a turn.
const LINKS_MAX: usize = 20;

/// The agents of a chat.
pub(super) struct Conversation {
    workspace: Workspace,
    folder: PathBuf,
    known: KnownAgents,
    agents: Vec<ChatAgent>,
    file: ChatFile,
    stored: StoredChat,
    /// The notes that the person reads before the next answer.
    notes: Vec<String>,
}

/// One of the agents, and the MCP servers that the person has added for it.
struct ChatAgent {
    agent: Agent,
    servers: Vec<McpServer>,
}

/// Why a cell fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CellError {
    pub(super) name: String,
    pub(super) message: String,
    pub(super) lines: Vec<String>,
}

impl CellError {
    pub(super) fn new(name: &str, message: String) -> Self {
        Self {
            name: name.to_owned(),
            message,
            lines: Vec::new(),
        }
    }

    fn hint(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Returns the lines that a front end shows.
    pub(super) fn traceback(&self) -> Vec<String> {
        let first = match self.message.is_empty() {
            true => self.name.clone(),
            false => self.message.clone(),
        };
        std::iter::once(first)
            .chain(self.lines.iter().cloned())
            .collect()
    }
}

/// What helps if an agent of the chat has ended.
const STARTS_AGAIN: &str = "the next message starts it again";

/// What helps if an agent cannot be started.
const STARTS_ANOTHER: &str =
    "%agent start NAME|COMMAND starts another one; %agent list shows which";

impl CellError {
    /// Returns the error of an agent that was to be added to the chat, and is not in it.
    fn of_start(error: AgentError) -> Self {
        let mut error = Self::from(error);
        for line in &mut error.lines {
            if line == STARTS_AGAIN {
                STARTS_ANOTHER.clone_into(line);
            }
        }
        error
    }
}

impl From<AgentError> for CellError {
    fn from(error: AgentError) -> Self {
        let message = error.to_string();
        let with_lines = |name: &str, lines: &[String]| Self {
            name: name.to_owned(),
            message: message.clone(),
            lines: lines.iter().map(|line| format!("  {line}")).collect(),
        };
        match &error {
            AgentError::Start { .. } => Self::new("AgentNotStarted", message).hint(STARTS_ANOTHER),
            AgentError::Gone { end, .. } => with_lines("AgentGone", &end.lines).hint(STARTS_AGAIN),
            AgentError::Silent { end, .. } => with_lines("AgentSilent", &end.lines),
            AgentError::Login { ways, .. } => {
                let ways = ways.iter();
                let ways = ways.map(|(id, name)| format!("%agent login {id}  {name}"));
                Self {
                    name: "LoginNeeded".to_owned(),
                    lines: ways.collect(),
                    message,
                }
                .hint("or log in with the agent's own program, and send the message again")
            }
            AgentError::Interrupted | AgentError::Stubborn { .. } => {
                // The name by which front ends know an interrupt.
                Self::new("KeyboardInterrupt", message)
            }
            AgentError::Answer { .. } | AgentError::Protocol { .. } => {
                Self::new("AgentError", message)
            }
            AgentError::NoSuch(_) => Self::new("NoSuch", message),
        }
    }
}

/// Returns the name under which a chat is stored: its notebook, if the front end names it; else the connection
/// file, which stays the same when a front end restarts the kernel.
pub(super) fn name(connection_file: &Path) -> String {
    match ProcessVariables.get("JPY_SESSION_NAME") {
        Some(name) if !name.is_empty() => name.to_string_lossy().into_owned(),
        _ => connection_file.file_name().map_or_else(
            || "chat".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        ),
    }
}

impl Conversation {
    /// Opens a chat in a folder, and restores its stored state.
    ///
    /// # Errors
    /// The project cannot be opened.
    pub(super) fn open(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let in_words = |problem: Problem| anyhow::anyhow!("{}", problem.message);
        let workspace = Workspace::of(folder).map_err(in_words)?;
        let file = ChatFile::of(workspace.project(), name)?;
        let mut stored: StoredChat = file.read();
        stored.notebook = Some(name.to_owned());
        let known = KnownAgents::read(&ProcessVariables);
        let mut chat = Self {
            workspace,
            folder: folder.to_owned(),
            notes: known.errors.clone(),
            known,
            agents: Vec::new(),
            file,
            stored: StoredChat::default(),
        };
        for stored_agent in &stored.agents {
            let mut agent = chat.add(
                stored_agent.launch.clone(),
                stored_agent.servers.clone(),
                stored.on.as_deref(),
            );
            agent.agent.resume(stored_agent.session.clone());
            agent.agent.allow(&stored.standing);
            chat.agents.push(agent);
        }
        if let Some(open) = stored.open.take() {
            chat.notes.push(format!(
                "the kernel ended while {} answered “{}”: what it said last may be missing above",
                open.agent, open.message
            ));
        }
        chat.stored = stored;
        Ok(chat)
    }

    /// Returns the folder from which paths are shown.
    pub(super) fn root(&self) -> &Path {
        self.workspace.root()
    }

    /// Returns whether the chat has an agent of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.agents.iter().any(|it| it.agent.launch().name == name)
    }

    /// Returns the names that can be completed.
    pub(super) fn names(&self) -> ChatNames {
        let name = |it: &ChatAgent| it.agent.launch().name.clone();
        let current = self.stored.current.as_deref();
        let current = current.and_then(|current| self.agents.iter().find(|it| name(it) == current));
        let commands = current.map(|it| it.agent.commands()).unwrap_or_default();
        ChatNames {
            agents: self.agents.iter().map(name).collect(),
            known: self.known.names(),
            commands: commands.iter().map(|it| it.name.clone()).collect(),
        }
    }

    /// Runs a cell: its commands, then its message.
    ///
    /// # Errors
    /// A command or the message fails; later commands are not executed.
    pub(super) async fn run(
        &mut self,
        mut cell: ChatCell,
        front: &CellFront,
        interrupt: &Notify,
    ) -> Result<(), CellError> {
        for command in std::mem::take(&mut cell.commands) {
            let text = self.command(command, front, interrupt).await;
            self.store();
            front.print(&text?);
        }
        if cell.message.is_empty() {
            return Ok(());
        }
        self.send(&cell, front, interrupt).await
    }

    /// Ends the agents; the next kernel resumes their sessions.
    pub(super) async fn close(&mut self) {
        self.store();
        for entry in &mut self.agents {
            entry.agent.stop().await;
        }
    }

    async fn send(
        &mut self,
        cell: &ChatCell,
        front: &CellFront,
        interrupt: &Notify,
    ) -> Result<(), CellError> {
        let text = &cell.message;
        let name = cell.to.clone().or_else(|| self.stored.current.clone());
        let Some(index) = name.and_then(|name| self.position(&name)) else {
            return Err(CellError::new("NoAgent", "no agent is started".to_owned())
                .hint("%agent start NAME|COMMAND starts one, such as: %agent start claude")
                .hint("%agent list shows those that are installed"));
        };
        for note in std::mem::take(&mut self.notes) {
            front.take(Update::Note(note));
        }
        let start = front
            .run_with_displays(self.agents[index].agent.start(interrupt))
            .await?;
        let agent = &mut self.agents[index].agent;
        let agent_name = agent.launch().name.clone();
        if let Some(note) = started(&agent_name, agent, &start) {
            front.take(Update::Note(note));
        }
        self.stored.add_session(agent, text);
        self.stored.open = Some(OpenTurn {
            agent: agent_name,
            message: beginning(text),
        });
        self.store();
        let agent = &mut self.agents[index].agent;
        let capabilities = agent.capabilities().cloned().unwrap_or_default();
        let notebook = self.stored.on.as_deref();
        let message =
            ChatMessage::of(text, &self.workspace, &self.folder, &capabilities, notebook).await;
        for note in message.notes {
            front.take(Update::Note(note));
        }
        let name = agent.launch().name.clone();
        let begin = self.workspace.project().events_of(&[]).end();
        let result = front
            .run_with_displays(agent.prompt(message.content, front, interrupt))
            .await;
        let work = AgentWork::since(self.workspace.project(), begin, &name);
        work.record(
            self.workspace.project(),
            &name,
            &ChatTurn {
                chat: self.shown_name(),
                cell: cell.id.clone(),
                message: Some(beginning(text)),
            },
        );
        if let Some(note) = self.links(&work.changed) {
            front.take(Update::Note(note));
        }
        self.stored.open = None;
        self.store();
        match result {
            Ok(stop) => {
                front.end(&stop).await;
                match stop.as_str() {
                    "cancelled" => Err(AgentError::Interrupted.into()),
                    _ => Ok(()),
                }
            }
            Err(error) => {
                front
                    .end(if error.is_interrupt() {
                        "cancelled"
                    } else {
                        "end_turn"
                    })
                    .await;
                Err(error.into())
            }
        }
    }

    async fn command(
        &mut self,
        command: ChatCommand,
        front: &CellFront,
        interrupt: &Notify,
    ) -> Result<String, CellError> {
        match command {
            ChatCommand::Start(text) => self.start(&text, front, interrupt).await,
            ChatCommand::Stop(name) => {
                let index = self.agent_index(name.as_deref())?;
                let mut stopped = self.agents.remove(index);
                stopped.agent.stop().await;
                let name = stopped.agent.launch().name.clone();
                if self.stored.current.as_ref() == Some(&name) {
                    let next = self.agents.last();
                    self.stored.current = next.map(|it| it.agent.launch().name.clone());
                }
                let next = match &self.stored.current {
                    Some(current) => format!("; messages go to {current}"),
                    None => String::new(),
                };
                Ok(format!("{name} is stopped{next}\n"))
            }
            ChatCommand::List => Ok(self.list()),
            ChatCommand::Registry => match AgentRegistry::read(&ProcessVariables) {
                Ok(registry) => Ok(registry.lines()),
                Err(error) => Err(CellError::new("NoRegistry", error.to_string())
                    .hint("%agent registry update downloads it")),
            },
            ChatCommand::UpdateRegistry => {
                let registry = tokio::select! {
                    registry = AgentRegistry::download(&ProcessVariables) => registry,
                    () = interrupt.notified() => return Err(AgentError::Interrupted.into()),
                };
                let registry =
                    registry.map_err(|error| CellError::new("NoRegistry", error.to_string()))?;
                let text = registry.lines();
                self.known = KnownAgents::read(&ProcessVariables);
                Ok(text)
            }
            ChatCommand::Use(name) => {
                self.agent_index(Some(&name))?;
                self.stored.current = Some(name.clone());
                Ok(format!("messages go to {name}\n"))
            }
            ChatCommand::Settings => {
                let index = self.start_current(interrupt).await?;
                let lines = self.agents[index].agent.settings();
                Ok(match lines.is_empty() {
                    true => format!(
                        "{} has no settings\n",
                        self.agents[index].agent.launch().name
                    ),
                    false => lines.join("\n") + "\n",
                })
            }
            ChatCommand::Mode(mode) => {
                let index = self.start_current(interrupt).await?;
                self.agents[index].agent.set_mode(&mode).await?;
                Ok(format!("mode = {mode}\n"))
            }
            ChatCommand::Model(model) => {
                let index = self.start_current(interrupt).await?;
                self.agents[index].agent.set_option(None, &model).await?;
                Ok(format!("model = {model}\n"))
            }
            ChatCommand::Config { option, value } => {
                let index = self.start_current(interrupt).await?;
                self.agents[index]
                    .agent
                    .set_option(Some(&option), &value)
                    .await?;
                Ok(format!("{option} = {value}\n"))
            }
            ChatCommand::McpAdd { .. } | ChatCommand::McpList | ChatCommand::McpRemove(_) => {
                self.mcp(command).await
            }
            ChatCommand::Permissions => Ok(self.permissions()),
            ChatCommand::Revoke(number) => self.revoke(number),
            ChatCommand::New => {
                let index = self.agent_index(None)?;
                self.agents[index].agent.forget().await;
                Ok("the next message begins a new session\n".to_owned())
            }
            ChatCommand::Sessions => Ok(self.sessions()),
            ChatCommand::Resume(number) => self.resume(&number, interrupt).await,
            ChatCommand::On(notebook) => self.set_notebook(notebook).await,
            ChatCommand::Login(way) => {
                let index = self.agent_index(None)?;
                self.agents[index].agent.login(&way).await?;
                Ok("logged in\n".to_owned())
            }
            ChatCommand::Help => Ok(cell::help()),
        }
    }

    /// Returns the command for a name or command line. The user is asked whether a package is to be downloaded.
    async fn resolve_launch(&self, text: &str, front: &CellFront) -> Result<Launch, CellError> {
        let error = match self.known.resolve(text) {
            Ok(launch) => return Ok(launch),
            Err(error) => error,
        };
        let failed = CellError::new("AgentNotStarted", error.to_string());
        let Some(agent) = error.on_agreement() else {
            return Err(failed.hint("%agent list shows the agents that can be started"));
        };
        match front.ask(agent.question()).await.as_deref().map(str::trim) {
            Some("y" | "Y" | "yes") => Ok(agent.launch.clone()),
            Some(_) => Err(failed.hint("nothing was downloaded")),
            None => Err(failed
                .hint("nobody can be asked here, so nothing was downloaded")
                .hint(format!(
                    "!start-agent {} does without a question",
                    agent.how()
                ))),
        }
    }

    async fn start(
        &mut self,
        text: &str,
        front: &CellFront,
        interrupt: &Notify,
    ) -> Result<String, CellError> {
        self.known = KnownAgents::read(&ProcessVariables);
        let launch = tokio::select! {
            launch = self.resolve_launch(text, front) => launch?,
            () = interrupt.notified() => return Err(AgentError::Interrupted.into()),
        };
        let name = launch.name.clone();
        let notebook = self.stored.on.clone();
        let mut added = self.add(launch, Vec::new(), notebook.as_deref());
        let start = added.agent.start(interrupt).await;
        let is_login = matches!(start, Err(AgentError::Login { .. }));
        let note = match &start {
            Ok(start) => started(&name, &added.agent, start),
            Err(_) => None,
        };
        if start.is_ok() || is_login {
            if let Some(index) = self.position(&name) {
                let mut previous = self.agents.remove(index);
                previous.agent.stop().await;
            }
            self.agents.push(added);
            self.stored.current = Some(name);
        }
        start.map_err(CellError::of_start)?;
        Ok(note.map_or_else(String::new, |note| note + "\n"))
    }

    /// Makes an agent of the chat.
    fn add(&self, launch: Launch, servers: Vec<McpServer>, notebook: Option<&Path>) -> ChatAgent {
        let own = own_server(&launch.name, self.workspace.root(), notebook);
        let all = own.into_iter().chain(servers.iter().cloned()).collect();
        ChatAgent {
            agent: Agent::new(launch, self.workspace.clone(), all),
            servers,
        }
    }

    fn position(&self, name: &str) -> Option<usize> {
        let mut agents = self.agents.iter();
        agents.position(|it| it.agent.launch().name == name)
    }

    /// Returns the agent of this name, or the current one.
    fn agent_index(&self, name: Option<&str>) -> Result<usize, CellError> {
        let name = name.or(self.stored.current.as_deref());
        let Some(name) = name else {
            return Err(CellError::new("NoAgent", "no agent is started".to_owned())
                .hint("%agent start NAME|COMMAND starts one"));
        };
        self.position(name).ok_or_else(|| {
            let names: Vec<_> = self
                .agents
                .iter()
                .map(|it| it.agent.launch().name.as_str())
                .collect();
            let text = format!("no agent of this chat is called {name}");
            CellError::new("NoAgent", text).hint(match names.as_slice() {
                [] => "%agent start NAME|COMMAND starts one".to_owned(),
                names => format!("its agents: {}", names.join(", ")),
            })
        })
    }

    /// Returns the chat's name for people: its notebook, if the front end names it.
    fn shown_name(&self) -> String {
        let name = self.stored.notebook.as_deref().map(Path::new);
        let name = name.filter(|it| it.extension().is_some_and(|it| it == "ipynb"));
        name.map_or_else(|| "a chat".to_owned(), |name| self.workspace.shown(name))
    }

    /// Returns links to cells.
    fn links(&self, cells: &BTreeSet<(String, String)>) -> Option<String> {
        let links = cells.iter().take(LINKS_MAX).map(|(notebook, cell)| {
            let path = self.workspace.root().join(notebook);
            let path = path.strip_prefix(&self.folder).unwrap_or(&path);
            cell_link(&path.to_string_lossy(), cell)
        });
        let mut links: Vec<_> = links.collect();
        if cells.len() > LINKS_MAX {
            links.push(format!("and {} more", cells.len() - LINKS_MAX));
        }
        (!links.is_empty()).then(|| format!("changed: {}", links.join(" · ")))
    }

    /// Starts the current agent, unless it runs; returns its index.
    async fn start_current(&mut self, interrupt: &Notify) -> Result<usize, CellError> {
        let index = self.agent_index(None)?;
        self.agents[index].agent.start(interrupt).await?;
        Ok(index)
    }

    fn list(&self) -> String {
        let mut text = String::new();
        for entry in &self.agents {
            let launch = entry.agent.launch();
            let current = self.stored.current.as_ref() == Some(&launch.name);
            let mark = if current { "*" } else { " " };
            let state = if entry.agent.is_running() {
                "runs"
            } else {
                "is started by the next message"
            };
            text.push_str(&format!(
                "{mark} {}  {}  ({state})\n",
                launch.name,
                launch.argv.join(" ")
            ));
        }
        let started = |name: &String| self.has(name);
        for (name, agent) in self.known.agents.iter().filter(|(name, _)| !started(name)) {
            let state = if agent.is_installed {
                "installed"
            } else {
                "not installed"
            };
            text.push_str(&format!(
                "  {name}  {}  ({state})\n",
                agent.launch.argv.join(" ")
            ));
        }
        text.push_str(&match &self.known.registry {
            Some(registry) => format!("%agent registry lists {} more\n", registry.agents.len()),
            None => "%agent registry update downloads a list of more\n".to_owned(),
        });
        for fault in &self.known.errors {
            text.push_str(&format!("{fault}\n"));
        }
        text
    }

    async fn mcp(&mut self, command: ChatCommand) -> Result<String, CellError> {
        let index = self.agent_index(None)?;
        let notebook = self.stored.on.clone();
        let root = self.workspace.root().to_owned();
        let entry = &mut self.agents[index];
        match command {
            ChatCommand::McpAdd { name, command } => {
                let words = shell_words::split(&command);
                let words =
                    words.map_err(|error| CellError::new("NoCommand", error.to_string()))?;
                let Some((program, args)) = words.split_first() else {
                    return Err(CellError::new(
                        "NoCommand",
                        "the command is empty".to_owned(),
                    ));
                };
                if name == "nb" {
                    let text = "nb is the name of nb's own server".to_owned();
                    return Err(CellError::new("NoCommand", text));
                }
                entry.servers.retain(|server| server.name != name);
                entry.servers.push(McpServer {
                    name,
                    command: program.into(),
                    args: args.to_vec(),
                    env: Vec::new(),
                });
            }
            ChatCommand::McpRemove(name) => {
                let before = entry.servers.len();
                entry.servers.retain(|server| server.name != name);
                if entry.servers.len() == before {
                    let text = format!("no server of your own is called {name}");
                    return Err(CellError::new("NoSuch", text));
                }
            }
            _ => {
                let line = |server: &McpServer| {
                    let command = server.command.display();
                    format!("{}  {command} {}\n", server.name, server.args.join(" "))
                };
                return Ok(entry.agent.servers().iter().map(line).collect());
            }
        }
        let own = own_server(&entry.agent.launch().name, &root, notebook.as_deref());
        entry.agent.set_servers(
            own.into_iter()
                .chain(entry.servers.iter().cloned())
                .collect(),
        );
        // The next start resumes the session with the other servers.
        entry.agent.stop().await;
        Ok("the next message starts the agent with these servers\n".to_owned())
    }

    fn permissions(&self) -> String {
        let all = self.agents.iter().flat_map(|it| it.agent.standing());
        let lines = all.enumerate().map(|(index, it)| {
            let files = match it.files.is_empty() {
                true => String::new(),
                false => format!(" in {}", it.files.join(", ")),
            };
            let line = format!(
                "{}  {}: {} ({}){files}",
                index + 1,
                it.agent,
                it.title,
                it.kind
            );
            format!("{}\n", visible_line(&line))
        });
        let lines: String = lines.collect();
        match lines.is_empty() {
            true => "nothing is allowed without a question\n".to_owned(),
            false => lines,
        }
    }

    fn revoke(&mut self, number: Option<usize>) -> Result<String, CellError> {
        let mut revoked = Vec::new();
        let mut before = 0;
        for entry in &mut self.agents {
            let count = entry.agent.standing().len();
            match number {
                None => revoked.extend(entry.agent.revoke(None)),
                Some(number) if number > before && number <= before + count => {
                    revoked.extend(entry.agent.revoke(Some(number - before - 1)));
                }
                Some(_) => {}
            }
            before += count;
        }
        if let Some(number) = number.filter(|_| revoked.is_empty()) {
            let text = format!("there is no permission {number}: %agent permissions lists them");
            return Err(CellError::new("NoSuch", text));
        }
        let lines = revoked
            .iter()
            .map(|it| format!("taken back: {}: {}\n", it.agent, visible_line(&it.title)));
        Ok(lines.collect())
    }

    fn sessions(&self) -> String {
        let lines = self.stored.sessions.iter().enumerate().map(|(index, it)| {
            let current = self
                .agents
                .iter()
                .any(|agent| agent.agent.session() == Some(&it.session));
            let mark = if current { "*" } else { " " };
            format!(
                "{mark} {}  {}  {:.0}  {}\n",
                index + 1,
                it.agent,
                it.since,
                visible_line(&it.title)
            )
        });
        let lines: String = lines.collect();
        match lines.is_empty() {
            true => "no session was begun in this chat\n".to_owned(),
            false => lines,
        }
    }

    async fn resume(&mut self, number: &str, interrupt: &Notify) -> Result<String, CellError> {
        let number: Option<usize> = number.parse().ok();
        let session = number.and_then(|number| self.stored.sessions.get(number.checked_sub(1)?));
        let Some(session) = session.cloned() else {
            let text = "no session has this number: %agent sessions lists them".to_owned();
            return Err(CellError::new("NoSuch", text));
        };
        let index = self.agent_index(Some(&session.agent))?;
        let agent = &mut self.agents[index].agent;
        agent.stop().await;
        agent.resume(Some(session.session));
        let start = agent.start(interrupt).await?;
        let note = started(&session.agent, agent, &start).unwrap_or_default();
        self.stored.current = Some(session.agent);
        Ok(note + "\n")
    }

    async fn set_notebook(&mut self, name: Option<String>) -> Result<String, CellError> {
        let notebook = match &name {
            None => None,
            Some(name) => {
                let path = self.folder.join(name);
                let real = self.workspace.resolve(&path);
                let real = real.map_err(|reason| CellError::new("NoNotebook", reason))?;
                let is_notebook = real.extension().is_some_and(|it| it == "ipynb");
                if !is_notebook || !real.is_file() {
                    let text = format!("{name} is no notebook that exists");
                    return Err(CellError::new("NoNotebook", text));
                }
                Some(real)
            }
        };
        self.stored.on.clone_from(&notebook);
        for entry in &mut self.agents {
            let own = own_server(
                &entry.agent.launch().name,
                self.workspace.root(),
                notebook.as_deref(),
            );
            entry.agent.set_servers(
                own.into_iter()
                    .chain(entry.servers.iter().cloned())
                    .collect(),
            );
        }
        Ok(match &notebook {
            Some(path) => format!("the agents work on {}\n", self.workspace.shown(path)),
            None => "no notebook is named\n".to_owned(),
        })
    }

    /// Stores the chat. If that fails, the next answer has a note about it.
    fn store(&mut self) {
        self.stored.agents = self
            .agents
            .iter()
            .map(|it| StoredAgent {
                launch: it.agent.launch().clone(),
                session: it.agent.session().map(str::to_owned),
                servers: it.servers.clone(),
            })
            .collect();
        let standing = self.agents.iter().flat_map(|it| it.agent.standing());
        self.stored.standing = standing.cloned().collect();
        if let Err(error) = self.file.write(&self.stored) {
            let note = format!("this chat cannot be stored: {error}");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }
}

/// Returns the note for the person about the start of an agent.
fn started(name: &str, agent: &Agent, start: &AgentStart) -> Option<String> {
    let title = agent.capabilities().and_then(|it| it.title.clone());
    let title = title.map_or_else(String::new, |title| format!(" ({title})"));
    match start {
        AgentStart::Already => None,
        AgentStart::New => Some(format!("{name}{title}: a new session")),
        AgentStart::Resumed => Some(format!("{name}{title}: the session of before")),
        AgentStart::Forgotten { why } => Some(format!(
            "{name}{title}: a new session, which does not know what was said before: {why}"
        )),
    }
}

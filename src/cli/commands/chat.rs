//! `nb chat`: a message to a coding agent, from the shell.

use std::cell::{Cell, RefCell};
use std::io::{self, BufRead, IsTerminal, Read};
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::agent::known::{KnownAgents, UnknownAgent, own_server};
use crate::agent::registry::AgentRegistry;
use crate::agent::stored::{ChatFile, StoredAgent, StoredChat, beginning};
use crate::agent::update::{Content, ToolContent, ToolState, Update};
use crate::agent::work::AgentWork;
use crate::agent::{Agent, AgentError, AgentStart, ChatMessage, Front, Launch, Workspace};
use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::kernel::variables::ProcessVariables;
use crate::notebook::visible;
use crate::project::event::ChatTurn;

/// How long an agent starts before a person is told.
const STARTS_SOON: Duration = Duration::from_secs(3);

/// Send a message to a coding agent that speaks the Agent Client Protocol
///
/// The answer is printed as it comes. On a terminal without a message it goes on, a line a message, until the
/// end of input. The agent gets `nb mcp` as a tool, in its own name. Where it asks for a permission, a terminal
/// is asked; elsewhere nothing is allowed. The session is kept, and --continue takes it up again.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Chat {
    /// The message; `-` reads it from stdin
    #[arg(value_name = "TEXT")]
    text: Option<String>,
    /// The agent: its name, or the command that starts it; else the last one used here
    #[arg(long, value_name = "NAME|COMMAND")]
    agent: Option<String>,
    /// Download the published registry of agents, and list them
    #[arg(long, conflicts_with_all = ["text", "agent", "goes_on"])]
    registry: bool,
    /// Go on with the last session here
    #[arg(long = "continue")]
    goes_on: bool,
}

const EXAMPLES: &str = "\
Examples:
  nb chat --agent claude 'Why does the last cell of analysis.ipynb fail?'
  nb chat --agent 'gemini --acp'
  nb chat --continue 'Then fix it'
  nb serve --chat                              the same in a notebook";

/// The longest message from stdin, in bytes.
const MESSAGE_BYTES_MAX: u64 = 8 << 20;

/// The name under which the shell's conversation is stored.
const NAME: &str = "shell";

impl Command for Chat {
    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        if self.registry {
            let registry = AgentRegistry::download(&ProcessVariables).await;
            let registry =
                registry.map_err(|error| Problem::new(ProblemKind::Failed, error.to_string()))?;
            let _ = print::raw(registry.lines().as_bytes());
            return Ok(ExitCode::SUCCESS);
        }
        let workspace = Workspace::of(&context.caller.working_dir)?;
        let file = ChatFile::of(workspace.project(), NAME);
        let file = file.map_err(|error| Problem::failed("store the chat", &error))?;
        let stored: StoredChat = file.read();
        let last = stored.agents.first();
        let launch = match (&self.agent, last) {
            (Some(text), _) => {
                let known = KnownAgents::read(&ProcessVariables);
                known.errors.iter().for_each(|fault| print::note(fault));
                match known.resolve(text) {
                    Ok(launch) => launch,
                    Err(error) => confirm_download(&error).await?,
                }
            }
            (None, Some(last)) => last.launch.clone(),
            (None, None) => return Err(no_agent("no agent is named, and none was used here yet")),
        };
        let notebook = context.typed.as_deref().map(|path| {
            let resolved = workspace.resolve(&context.caller.working_dir.join(path));
            resolved.map_err(|why| Problem::new(ProblemKind::Usage, why))
        });
        let notebook = notebook.transpose()?;
        let own = own_server(&launch.name, workspace.root(), notebook.as_deref());
        let mut agent = Agent::new(launch, workspace.clone(), own.into_iter().collect());
        if self.goes_on {
            let last = last.filter(|it| it.launch == *agent.launch());
            agent.resume(last.and_then(|it| it.session.clone()));
        }
        let mut chat = ShellChat {
            workspace,
            file,
            stored,
            agent,
            notebook,
        };
        let result = tokio::select! {
            result = chat.run_chat(self.text.as_deref()) => Some(result),
            () = terminated() => None,
        };
        // The agent has a process group of its own, which would go on.
        chat.agent.stop().await;
        // A line that is being read from the terminal would hold up the end.
        result.unwrap_or_else(|| std::process::exit(128 + 15))
    }
}

/// Waits for SIGTERM.
async fn terminated() {
    match signal(SignalKind::terminate()) {
        Ok(mut signal) => drop(signal.recv().await),
        Err(_) => std::future::pending().await,
    }
}

/// Asks whether an agent's package is to be downloaded.
async fn confirm_download(error: &UnknownAgent) -> Result<Launch, Problem> {
    let problem = no_agent(&error.to_string());
    let Some(agent) = error.on_agreement() else {
        return Err(problem);
    };
    let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    let answer = match is_terminal {
        true => read_answer(&agent.question()).await,
        false => None,
    };
    match answer.as_deref().map(str::trim) {
        Some("y" | "Y" | "yes") => Ok(agent.launch.clone()),
        _ => Err(problem
            .hint("nothing was downloaded; the command itself as --agent does without a question")),
    }
}

fn no_agent(message: &str) -> Problem {
    Problem::new(ProblemKind::Usage, message)
        .hint("nb chat --agent NAME|COMMAND 'TEXT', such as --agent claude")
}

/// A conversation on a terminal or through pipes.
struct ShellChat {
    workspace: Workspace,
    file: ChatFile,
    stored: StoredChat,
    agent: Agent,
    /// The notebook that the user named, for the agent to work on.
    notebook: Option<PathBuf>,
}

impl ShellChat {
    async fn run_chat(&mut self, text: Option<&str>) -> Result<ExitCode, Problem> {
        match text {
            Some("-") => {
                let mut text = String::new();
                let read = io::stdin()
                    .lock()
                    .take(MESSAGE_BYTES_MAX)
                    .read_to_string(&mut text);
                read.map_err(|error| Problem::failed("read the message", &error))?;
                self.send(&text).await
            }
            Some(text) => self.send(text).await,
            None if io::stdin().is_terminal() => {
                while let Some(line) = read_answer("> ").await {
                    if !line.trim().is_empty() {
                        self.send(&line).await?;
                    }
                }
                Ok(ExitCode::SUCCESS)
            }
            None => Err(Problem::new(ProblemKind::Usage, "no message is given")
                .hint("nb chat 'TEXT', or nb chat - to read it from stdin")),
        }
    }

    async fn send(&mut self, text: &str) -> Result<ExitCode, Problem> {
        let interrupt = Notify::new();
        let turn = async {
            let result = self.turn(text, &interrupt).await;
            result.map_err(|error| error.problem())
        };
        let interrupted = async {
            loop {
                if tokio::signal::ctrl_c().await.is_err() {
                    return std::future::pending::<()>().await;
                }
                interrupt.notify_one();
            }
        };
        tokio::select! {
            result = turn => result,
            () = interrupted => unreachable!("it waits for ever"),
        }
    }

    async fn turn(&mut self, text: &str, interrupt: &Notify) -> Result<ExitCode, AgentError> {
        let name = self.agent.launch().name.clone();
        let start = {
            let mut start = pin!(self.agent.start(interrupt));
            match tokio::time::timeout(STARTS_SOON, &mut start).await {
                Ok(start) => start,
                Err(_) => {
                    print::note(&format!(
                        "{name} has not answered yet; it has two minutes to start, and Ctrl-C ends it"
                    ));
                    start.await
                }
            }
        };
        match start? {
            AgentStart::Already | AgentStart::New => {}
            AgentStart::Resumed => print::note(&format!("{name}: the session of before")),
            AgentStart::Forgotten { why } => print::note(&format!(
                "{name}: a new session, which does not know what was said before: {why}"
            )),
        }
        self.stored.add_session(&self.agent, text);
        self.stored.agents = vec![StoredAgent {
            launch: self.agent.launch().clone(),
            session: self.agent.session().map(str::to_owned),
            servers: Vec::new(),
        }];
        if let Err(error) = self.file.write(&self.stored) {
            print::note(&format!("this chat cannot be stored: {error}"));
        }
        let capabilities = self.agent.capabilities().cloned().unwrap_or_default();
        let working_dir =
            std::env::current_dir().unwrap_or_else(|_| self.workspace.root().to_owned());
        let message = ChatMessage::of(
            text,
            &self.workspace,
            &working_dir,
            &capabilities,
            self.notebook.as_deref(),
        )
        .await;
        message.notes.iter().for_each(|note| print::note(note));
        let front = ShellFront::default();
        let project = self.workspace.project();
        let begin = project.events_of(&[]).end();
        let stop = self.agent.prompt(message.content, &front, interrupt).await;
        front.end_line();
        let turn = ChatTurn {
            chat: "nb chat".to_owned(),
            cell: None,
            message: Some(beginning(text)),
        };
        AgentWork::since(project, begin, &name).record(project, &name, &turn);
        match stop?.as_str() {
            "end_turn" => Ok(ExitCode::SUCCESS),
            "cancelled" => Err(AgentError::Interrupted),
            other => {
                print::note(&format!("{name} stopped: {other}"));
                Ok(ExitCode::FAILURE)
            }
        }
    }
}

/// Prints a turn as it comes: the answer on stdout, the rest on stderr.
#[derive(Default)]
struct ShellFront {
    /// Whether the last character of the answer was no line break.
    in_line: Cell<bool>,
    /// The tool calls whose beginning was printed, and whether their end was.
    tools: RefCell<Vec<(String, String, bool)>>,
}

impl ShellFront {
    fn end_line(&self) {
        if self.in_line.take() {
            let _ = print::line("");
        }
    }

    fn note(&self, text: &str) {
        self.end_line();
        text.lines().for_each(print::note);
    }
}

impl Front for ShellFront {
    fn take(&self, update: Update) {
        match update {
            Update::Answer(Content::Text(text)) if !text.is_empty() => {
                let text = visible(&text);
                // A closed pipe is a quiet end.
                let _ = print::raw(text.as_bytes());
                self.in_line.set(!text.ends_with('\n'));
            }
            Update::Answer(Content::Link { name, uri }) => self.note(&format!("{name} {uri}")),
            Update::Answer(Content::File { uri, .. }) => self.note(&uri),
            Update::Answer(Content::Media { mime, data }) => {
                self.note(&format!("<{mime} of {} bytes>", data.len() / 4 * 3));
            }
            Update::Tool(change) => {
                let mut tools = self.tools.borrow_mut();
                let at = tools.iter().position(|(id, ..)| *id == change.id);
                let at = at.unwrap_or_else(|| {
                    let title = change.title.clone().unwrap_or_default();
                    self.note(&format!("… {title}"));
                    tools.push((change.id.clone(), title, false));
                    tools.len() - 1
                });
                let (_, title, is_over) = &mut tools[at];
                if let Some(new) = change.title {
                    *title = new;
                }
                let mark = match change.state {
                    Some(ToolState::Done) => "✓",
                    Some(ToolState::Failed) => "✗",
                    _ => return,
                };
                if !std::mem::replace(is_over, true) {
                    self.note(&format!("{mark} {title}"));
                }
                for content in change.content.iter().flatten() {
                    if let ToolContent::Diff { path, .. } = content {
                        self.note(&format!("  {}", path.display()));
                    }
                }
            }
            Update::Plan(steps) => {
                for step in steps {
                    self.note(&format!("  {:?}: {}", step.state, step.text));
                }
            }
            Update::Note(text) => self.note(&text),
            _ => {}
        }
    }

    async fn ask(&self, prompt: String) -> Option<String> {
        self.end_line();
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return None;
        }
        read_answer(&prompt).await
    }
}

/// Reads a line from the terminal; `None` at the end of input.
async fn read_answer(prompt: &str) -> Option<String> {
    eprint!("{}", visible(prompt));
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        read.is_ok_and(|count| count > 0).then_some(line)
    });
    read.await.ok().flatten()
}

//! The assistant itself: a model, or a coding agent that speaks ACP.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::turn::TurnEvent;
use crate::agent::known::{KnownAgents, own_server};
use crate::agent::update::Update;
use crate::agent::{
    Agent, AgentError, AgentStart, ChatMessage, Front, Launch, McpServer, Workspace,
};
use crate::api::problem::{Problem, ProblemKind};
use crate::assistant::{
    Assistant, AssistantError, AssistantOptions, ConversationPart, ModelError, Provider, TokenUsage,
};
use crate::kernel::variables::ProcessVariables;

/// The name under which a model acts.
const NAME: &str = "assistant";

/// How many calls a model may make in a minute.
const RATE: &str = "20";

/// Which assistant answers.
#[derive(Clone, Debug, Default)]
pub struct AssistantChoice {
    /// `anthropic`, `openai`, or the name or command of a coding agent that speaks ACP; `None` is the provider whose key
    /// is there.
    pub assistant: Option<String>,
    /// The model; `None` is the provider's default.
    pub model: Option<String>,
    /// Whether the person is asked before each call of a model that writes, undoes or runs something.
    pub approves: bool,
    /// What a million tokens cost, read and written, in dollars.
    pub price: Option<(f64, f64)>,
}

impl AssistantChoice {
    /// Checks the assistant that is named: whether its key or its program is there. None needs to be named.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(in crate::web) async fn check(&self) -> Result<(), Problem> {
        match self.assistant {
            None => Ok(()),
            Some(_) => self.described().await.map(drop),
        }
    }

    /// Returns who answers.
    async fn described(&self) -> Result<String, Problem> {
        let name = self.assistant.as_deref();
        if let Some(command) = name.filter(|name| !Provider::is_name(name)) {
            return Ok(format!("{}, a coding agent", launch(command)?.name));
        }
        let provider = Provider::find(name, self.model.as_deref(), &ProcessVariables).await;
        let provider = provider.map_err(|error| of_model(&error))?;
        Ok(format!("{} at {}", provider.model(), provider.host()))
    }

    /// Returns who answers, or how that is set up. No request is sent to a model, but the command that prints the key is run.
    pub(super) async fn setup(&self) -> AssistantSetup {
        match self.described().await {
            Ok(text) => AssistantSetup {
                text,
                hints: Vec::new(),
            },
            Err(problem) => AssistantSetup {
                text: problem.message,
                hints: problem.hints.iter().map(ToString::to_string).collect(),
            },
        }
    }
}

/// Who answers on the page, as far as it is known before the first message.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in crate::web) struct AssistantSetup {
    /// The model and its host, or the coding agent; else why there is none.
    text: String,
    /// How an assistant is set up; nothing if one is.
    hints: Vec<String>,
}

/// The stored state of an assistant.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StoredBackend {
    /// The conversation with a model, with its tool calls.
    messages: Vec<ConversationPart>,
    /// The agent, and its session.
    agent: Option<(Launch, Option<String>)>,
}

/// An assistant.
pub(super) enum Backend {
    Model {
        assistant: Box<Assistant>,
        price: Option<(f64, f64)>,
    },
    Agent {
        agent: Box<Agent>,
        workspace: Workspace,
    },
}

/// Why a turn has ended early.
pub(super) enum TurnEnd {
    Stopped,
    Failed(Problem),
}

/// The receiver of a backend's reports.
pub(super) trait TurnFront: Front {
    /// Adds an event to the turn.
    fn add(&self, event: TurnEvent);
}

impl Backend {
    /// Finds the chosen assistant. No request is sent to a model yet, and no agent is started.
    pub(super) async fn find(
        choice: &AssistantChoice,
        root: &Path,
        notebook: &str,
        stored: StoredBackend,
    ) -> Result<Self, Problem> {
        let workspace = Workspace::of(root)?;
        let name = choice.assistant.as_deref();
        if let Some(command) = name.filter(|name| !Provider::is_name(name)) {
            let launch = launch(command)?;
            let server = server(&launch.name, root, notebook)?;
            let mut agent = Agent::new(launch, workspace.clone(), vec![server]);
            let stored_agent = stored.agent.filter(|(launch, _)| launch == agent.launch());
            agent.resume(stored_agent.and_then(|(_, session)| session));
            return Ok(Self::Agent {
                agent: Box::new(agent),
                workspace,
            });
        }
        let model = choice.model.as_deref();
        let provider = Provider::find(name, model, &ProcessVariables).await;
        let mut server = server(NAME, root, notebook)?;
        server.args.extend(["--rate".to_owned(), RATE.to_owned()]);
        let options = AssistantOptions {
            provider: provider.map_err(|error| of_model(&error))?,
            server,
            root: root.to_owned(),
            notebook: notebook.to_owned(),
            approves: choice.approves,
        };
        Ok(Self::Model {
            assistant: Box::new(Assistant::new(options, stored.messages)),
            price: choice.price,
        })
    }

    /// Returns the name under which it acts.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Model { .. } => NAME,
            Self::Agent { agent, .. } => &agent.launch().name,
        }
    }

    /// Returns its state, to be stored.
    pub(super) fn stored(&self) -> StoredBackend {
        match self {
            Self::Model { assistant, .. } => StoredBackend {
                messages: assistant.kept(),
                agent: None,
            },
            Self::Agent { agent, .. } => StoredBackend {
                messages: Vec::new(),
                agent: Some((agent.launch().clone(), agent.session().map(str::to_owned))),
            },
        }
    }

    /// Answers a message; returns why the turn has ended.
    pub(super) async fn answer(
        &mut self,
        text: &str,
        model: Option<&str>,
        notebook: &Path,
        front: &impl TurnFront,
        stop: &Notify,
    ) -> Result<String, TurnEnd> {
        match self {
            Self::Model { assistant, price } => {
                let usage = |token_usage: TokenUsage| front.add(usage(token_usage, *price));
                let result = assistant.prompt(text, model, front, usage, stop).await;
                result.map(str::to_owned).map_err(|error| match error {
                    AssistantError::Stopped => TurnEnd::Stopped,
                    AssistantError::Model(error) => TurnEnd::Failed(of_model(&error)),
                    error => TurnEnd::Failed(failed(&error)),
                })
            }
            Self::Agent { agent, workspace } => {
                let note = |text: String| front.take(Update::Note(text));
                match agent.start(stop).await.map_err(|error| of_agent(&error))? {
                    AgentStart::Already | AgentStart::New | AgentStart::Resumed => {}
                    AgentStart::Forgotten { why } => note(format!(
                        "a new session, which does not know what was said before: {why}"
                    )),
                }
                let capabilities = agent.capabilities().cloned().unwrap_or_default();
                let root = workspace.root().to_owned();
                let message =
                    ChatMessage::of(text, workspace, &root, &capabilities, Some(notebook)).await;
                message.notes.into_iter().for_each(note);
                agent
                    .prompt(message.content, front, stop)
                    .await
                    .map_err(|error| of_agent(&error))
            }
        }
    }
}

/// Returns how an agent is started, by its name or command.
fn launch(command: &str) -> Result<Launch, Problem> {
    let launch = KnownAgents::read(&ProcessVariables).runnable(command);
    launch.map_err(|error| Problem::new(ProblemKind::Usage, error.to_string()))
}

/// Returns the server that has the tools.
fn server(name: &str, root: &Path, notebook: &str) -> Result<McpServer, Problem> {
    let server = own_server(name, root, Some(&root.join(notebook)));
    server.map_err(|error| Problem::failed("find the program for the tools", &error))
}

fn usage(token_usage: TokenUsage, price: Option<(f64, f64)>) -> TurnEvent {
    #[expect(clippy::cast_precision_loss, reason = "a price needs no 15 digits")]
    let cost = price.map(|(input, output)| {
        let sum = token_usage.input as f64 * input + token_usage.output as f64 * output;
        (sum / 1e6, "USD".to_owned())
    });
    TurnEvent::Usage {
        input_tokens: token_usage.input,
        output_tokens: token_usage.output,
        cost,
    }
}

fn of_model(error: &ModelError) -> Problem {
    failed(error).hint(error.hint())
}

fn of_agent(error: &AgentError) -> TurnEnd {
    match error.is_interrupt() {
        true => TurnEnd::Stopped,
        false => TurnEnd::Failed(error.problem()),
    }
}

fn failed(error: &dyn std::error::Error) -> Problem {
    Problem::new(ProblemKind::Failed, error.to_string())
}

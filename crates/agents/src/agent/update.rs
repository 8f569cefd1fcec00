//! What an agent's updates say, in types of our own.

use std::path::PathBuf;

use serde_json::Value;

/// An update of a session.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "updates are passed on, not kept")]
pub enum Update {
    /// A piece of the answer.
    Answer(Content),
    /// A piece of the agent's thoughts.
    Thought(String),
    /// A new tool call, or what has changed in one.
    Tool(ToolChange),
    /// The whole plan.
    Plan(Vec<PlanStep>),
    /// The slash commands that the agent understands.
    Commands(Vec<SlashCommand>),
    /// The session's mode.
    Mode(String),
    /// The session's settings.
    Options(Vec<SessionOption>),
    /// How much of its context the agent has used.
    Usage {
        /// Tokens in the context.
        used: u64,
        /// The context's size in tokens.
        size: u64,
        /// What the session has cost, with the currency.
        cost: Option<(f64, String)>,
    },
    /// The output of a terminal that a tool call shows.
    Terminal {
        /// The terminal.
        id: String,
        /// The command and its output so far.
        text: String,
    },
    /// A line from `nb` itself.
    Note(String),
    /// An update that means nothing here.
    Other,
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Markdown.
    Text(String),
    /// An image, a sound or another file in base64.
    Media {
        /// Its media type.
        mime: String,
        /// Base64.
        data: String,
    },
    /// A link to a file or a page.
    Link {
        /// The name to show.
        name: String,
        /// Where it leads.
        uri: String,
    },
    /// The text of a file.
    File {
        /// The file's address.
        uri: String,
        /// Its text.
        text: String,
    },
}

/// A new tool call, or what has changed in one. `None` is no change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolChange {
    /// The call.
    pub id: String,
    /// What it does, for the person.
    pub title: Option<String>,
    /// The kind of tool, such as `edit`.
    pub kind: Option<String>,
    /// How far it is.
    pub state: Option<ToolState>,
    /// What it shows.
    pub content: Option<Vec<ToolContent>>,
    /// The files that it concerns.
    pub locations: Option<Vec<Location>>,
    /// The tool's own output, shown where there is no content.
    pub output: Option<Value>,
    /// The tool's own input.
    pub input: Option<Value>,
}

/// How far a tool call is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolState {
    /// Not begun: it may wait for a permission.
    #[default]
    Waiting,
    /// Running.
    Running,
    /// Done.
    Done,
    /// Failed.
    Failed,
}

/// Something that a tool call shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolContent {
    /// A text, image or link.
    Content(Content),
    /// A changed file.
    Diff {
        /// The file.
        path: PathBuf,
        /// Its text before.
        old: String,
        /// Its text after.
        new: String,
    },
    /// The output of a terminal.
    Terminal(String),
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub path: PathBuf,
    /// The line.
    pub line: Option<u32>,
}

/// A step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanStep {
    /// What is to be done.
    pub text: String,
    /// How far it is.
    pub state: StepState,
}

/// How far a step of a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepState {
    /// Not begun.
    Open,
    /// Begun.
    Doing,
    /// Done.
    Done,
}

/// A command that an agent understands as `/name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlashCommand {
    /// Its name, without the slash.
    pub name: String,
    /// What it does.
    pub description: String,
}

/// A mode that a session can be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeChoice {
    /// The id that the agent knows it by.
    pub id: String,
    /// The text for the person.
    pub name: String,
}

/// A setting of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOption {
    /// The id that the agent knows it by.
    pub id: String,
    /// The text for the person.
    pub name: String,
    /// Whether it chooses the model.
    pub is_model: bool,
    /// Its value.
    pub value: String,
    /// The values that it can have, each with its name.
    pub values: Vec<(String, String)>,
}

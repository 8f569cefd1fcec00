//! Parses a cell of a chat: commands, one on each line, and a message. Pure.

/// A parsed cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChatCell {
    /// The commands in the cell's first lines.
    pub(super) commands: Vec<ChatCommand>,
    /// The agent that the message is for; `None` is the current one.
    pub(super) to: Option<String>,
    /// The message; empty if the cell has only commands.
    pub(super) message: String,
    /// The cell's id, or its number in brackets.
    pub(super) id: Option<String>,
}

/// A command of a chat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChatCommand {
    Start(String),
    Stop(Option<String>),
    List,
    Registry,
    UpdateRegistry,
    Use(String),
    Settings,
    Mode(String),
    Model(String),
    Config {
        option: String,
        value: String,
    },
    McpAdd {
        name: String,
        command: String,
    },
    McpList,
    McpRemove(String),
    Permissions,
    /// Takes back one permission, by its number from 1, or all.
    Revoke(Option<usize>),
    New,
    Sessions,
    Resume(String),
    On(Option<String>),
    Login(String),
    Help,
}

/// A line that is no command, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct CommandError(String);

/// The subcommands of `%agent`, each with its arguments and its description.
pub(super) const SUBCOMMANDS: [(&str, &str, &str); 16] = [
    ("start", "NAME|COMMAND", "start an agent; messages go to it"),
    (
        "list",
        "",
        "list the agents of this chat, and those that can be started",
    ),
    (
        "registry",
        "[update]",
        "list the agents of the published registry, or download the list",
    ),
    ("use", "NAME", "send the next messages to this agent"),
    ("stop", "[NAME]", "end an agent"),
    (
        "config",
        "[OPTION VALUE]",
        "list the session's mode, model and other settings, or set one",
    ),
    ("mode", "MODE", "set the session's mode"),
    ("model", "MODEL", "set the session's model"),
    (
        "on",
        "[NOTEBOOK]",
        "name the notebook to work on; without a name, none",
    ),
    (
        "mcp",
        "add NAME COMMAND | list | remove NAME",
        "give the agent's sessions an MCP server",
    ),
    (
        "permissions",
        "[revoke N|all]",
        "list what is allowed from now on, or take it back",
    ),
    ("new", "", "begin a new session"),
    ("sessions", "", "list the sessions of this chat"),
    ("resume", "N", "take up an earlier session"),
    ("login", "WAY", "log in, where an agent wants it"),
    ("help", "", "print this"),
];

/// Reads a cell. `is_agent` says whether an agent of the chat has this name.
pub(super) fn read(code: &str, is_agent: impl Fn(&str) -> bool) -> Result<ChatCell, CommandError> {
    let mut cell = ChatCell::default();
    let mut rest = code.trim_start();
    while rest.starts_with(['%', '!']) && !rest.starts_with("![") {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        cell.commands.push(command(line.trim())?);
        rest = after.trim_start();
    }
    rest = rest.trim_end();
    if let Some(addressed) = rest.strip_prefix('@') {
        let end = addressed.find(|c: char| c.is_whitespace() || c == ':');
        let (name, text) = addressed.split_at(end.unwrap_or(addressed.len()));
        if is_agent(name) {
            cell.to = Some(name.to_owned());
            rest = text.trim_start_matches(':').trim_start();
        }
    }
    rest.clone_into(&mut cell.message);
    Ok(cell)
}

fn command(line: &str) -> Result<ChatCommand, CommandError> {
    let (word, rest) = split(line);
    match word {
        "!start-agent" => require(rest, "!start-agent COMMAND").map(ChatCommand::Start),
        "!stop-agent" => Ok(ChatCommand::Stop(non_empty(rest))),
        "%agent" => subcommand(rest),
        _ => Err(CommandError(format!(
            "{word} is not a command of a chat: %agent help lists them; a message begins with another character"
        ))),
    }
}

fn subcommand(rest: &str) -> Result<ChatCommand, CommandError> {
    let (word, rest) = split(rest);
    let usage = |text: &str| require(rest, &format!("%agent {text}"));
    match word {
        "" | "help" => Ok(ChatCommand::Help),
        "start" => usage("start NAME|COMMAND").map(ChatCommand::Start),
        "stop" => Ok(ChatCommand::Stop(non_empty(rest))),
        "list" => Ok(ChatCommand::List),
        "registry" => match rest {
            "" => Ok(ChatCommand::Registry),
            "update" => Ok(ChatCommand::UpdateRegistry),
            _ => Err(CommandError("%agent registry [update]".to_owned())),
        },
        "use" => usage("use NAME").map(ChatCommand::Use),
        "mode" if rest.is_empty() => Ok(ChatCommand::Settings),
        "mode" => Ok(ChatCommand::Mode(rest.to_owned())),
        "model" if rest.is_empty() => Ok(ChatCommand::Settings),
        "model" => Ok(ChatCommand::Model(rest.to_owned())),
        "config" if rest.is_empty() => Ok(ChatCommand::Settings),
        "config" => {
            let (option, value) = split(rest);
            let value = require(value, "%agent config OPTION VALUE")?;
            let option = option.to_owned();
            Ok(ChatCommand::Config { option, value })
        }
        "mcp" => match split(rest) {
            ("list" | "", "") => Ok(ChatCommand::McpList),
            ("remove", name) => require(name, "%agent mcp remove NAME").map(ChatCommand::McpRemove),
            ("add", rest) => {
                let (name, command) = split(rest);
                let command = require(command, "%agent mcp add NAME COMMAND")?;
                let name = name.to_owned();
                Ok(ChatCommand::McpAdd { name, command })
            }
            _ => Err(CommandError(
                "%agent mcp add NAME COMMAND, %agent mcp list or %agent mcp remove NAME".to_owned(),
            )),
        },
        "permissions" => match split(rest) {
            ("", _) => Ok(ChatCommand::Permissions),
            ("revoke", "all") => Ok(ChatCommand::Revoke(None)),
            ("revoke", number) => match number.parse() {
                Ok(number) => Ok(ChatCommand::Revoke(Some(number))),
                Err(_) => Err(CommandError("%agent permissions revoke N|all".to_owned())),
            },
            _ => Err(CommandError("%agent permissions [revoke N|all]".to_owned())),
        },
        "new" => Ok(ChatCommand::New),
        "sessions" => Ok(ChatCommand::Sessions),
        "resume" => usage("resume N").map(ChatCommand::Resume),
        "on" => Ok(ChatCommand::On(non_empty(rest))),
        "login" => usage("login WAY").map(ChatCommand::Login),
        other => Err(CommandError(format!(
            "%agent {other} is not known: %agent help lists what is"
        ))),
    }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn require(text: &str, usage: &str) -> Result<String, CommandError> {
    non_empty(text).ok_or_else(|| CommandError(format!("something is missing: {usage}")))
}

/// Returns the text of `%agent help`.
pub(super) fn help() -> String {
    let mut text = String::from(
        "A cell is a message to an agent; @NAME at its beginning says to which one.\n\
         ![](figure.png) sends an image, @notebook.ipynb#CELL a cell's last figure, @file a file's address.\n\n",
    );
    for (word, arguments, description) in SUBCOMMANDS {
        let usage = format!("%agent {word} {arguments}");
        let line = match usage.len() {
            0..=34 => format!("{usage:<36}{description}\n"),
            _ => format!("{usage}\n{:36}{description}\n", ""),
        };
        text.push_str(&line);
    }
    text.push_str("!start-agent COMMAND and !stop-agent are %agent start and %agent stop.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(code: &str) -> ChatCell {
        read(code, |name| name == "claude").unwrap()
    }

    #[test]
    fn commands_come_before_the_message() {
        let cell =
            cell("!start-agent python3 'a b.py'\n%agent on x.ipynb\n\n@claude: What is\nthis? \n");
        let commands = [
            ChatCommand::Start("python3 'a b.py'".to_owned()),
            ChatCommand::On(Some("x.ipynb".to_owned())),
        ];
        assert_eq!(cell.commands, commands);
        assert_eq!(
            (cell.to.as_deref(), &*cell.message),
            (Some("claude"), "What is\nthis?")
        );
    }

    #[test]
    fn a_text_without_a_command_is_a_message() {
        for text in [
            "@file.py why?",
            "a\n%agent list",
            "![](x.png) see",
            "@ claude",
        ] {
            let cell = cell(text);
            assert_eq!(
                (&*cell.message, cell.to, cell.commands.len()),
                (text, None, 0)
            );
        }
        assert_eq!(cell(" \n"), ChatCell::default());
    }

    #[test]
    fn the_error_of_a_wrong_command_names_a_right_one() {
        let wrong = [
            "!ls",
            "%matplotlib inline",
            "%agent dance",
            "%agent use",
            "!start-agent",
            "%agent permissions revoke x",
            "%agent mcp add x",
            "%agent config x",
        ];
        for line in wrong {
            let error = read(line, |_| false).unwrap_err().to_string();
            assert!(
                error.contains("%agent") || error.contains("!start-agent"),
                "{line}: {error}"
            );
        }
    }

    #[test]
    fn each_listed_subcommand_is_one() {
        for (word, _, _) in SUBCOMMANDS {
            let arguments = ["", " x", " x y", " list", " revoke all"];
            let known = arguments
                .iter()
                .any(|it| command(&format!("%agent {word}{it}")).is_ok());
            assert!(
                known && help().contains(&format!("%agent {word}")),
                "{word}"
            );
        }
    }
}

//! Agents by their names: those of `agents.toml`, those whose programs are on `PATH`, and those of the registry.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::connection::Launch;
use super::program::{AGENTS, is_program};
use super::protocol::McpServer;
use super::registry::{AgentRegistry, AgentSource, RegisteredAgent, RegistryError};
use crate::activity::actor::Actor;
use crate::kernel::process::own_path;
use crate::kernel::variables::{Variables, own_data_dir};
use crate::project::beneath;

/// The file with agents of the user's own, in `nb`'s own data folder: commands in a project's folder may be a stranger's.
const FILE: &str = "agents.toml";

/// Programs that run a script or a package, whose name says more than theirs.
const RUNNERS: [&str; 11] = [
    "node", "npx", "bunx", "deno", "python", "python3", "uv", "uvx", "pipx", "sh", "env",
];

/// The agents that can be named.
#[derive(Clone, Debug, Default)]
pub struct KnownAgents {
    /// By name.
    pub agents: BTreeMap<String, KnownAgent>,
    /// The local copy of the registry, if there is one.
    pub registry: Option<AgentRegistry>,
    /// What is wrong with the files.
    pub errors: Vec<String>,
    /// Where programs are looked for.
    path: OsString,
}

/// An agent that can be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownAgent {
    /// Its command.
    pub launch: Launch,
    /// The file that names it; `None` for one that `nb` knows itself.
    pub file: Option<PathBuf>,
    /// Whether its program is there.
    pub is_installed: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    command: Command,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Command {
    Line(String),
    Words(Vec<String>),
}

/// Why a text names no agent that can be started.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownAgent {
    /// The text is empty.
    #[error("no agent is named")]
    Empty,
    /// A quote is open.
    #[error("{0:?} has a quote without an end")]
    Quote(String),
    /// Its program is not there.
    #[error("the program of {name} is not there: {program}")]
    Missing {
        /// The agent.
        name: String,
        /// The program.
        program: String,
    },
    /// It is in the registry, and not on this machine.
    #[error("{} is not installed. The registry of agents says how to run it: {}", .0.title, .0.how())]
    NotInstalled(Box<RegisteredAgent>),
}

impl UnknownAgent {
    /// Returns the agent that runs if the user agrees to a download.
    pub fn on_agreement(&self) -> Option<&RegisteredAgent> {
        match self {
            Self::NotInstalled(agent) if agent.source == AgentSource::Package => Some(agent),
            _ => None,
        }
    }
}

impl KnownAgents {
    /// Reads the agents of the user.
    pub fn read(variables: &dyn Variables) -> Self {
        let mut known = Self::default();
        let path = variables.get("PATH").unwrap_or_default();
        for (name, argv) in AGENTS {
            let argv: Vec<_> = argv.iter().map(|word| (*word).to_owned()).collect();
            known.add(name, argv, Vec::new(), None, &path);
        }
        if let Ok(folder) = own_data_dir(variables) {
            known.read_file(&folder.join(FILE), &path);
        }
        known.registry = match AgentRegistry::read(variables) {
            Ok(registry) => Some(registry),
            Err(RegistryError::Missing | RegistryError::NoHome(_)) => None,
            Err(error) => {
                known.errors.push(error.to_string());
                None
            }
        };
        known.path = path;
        known
    }

    fn read_file(&mut self, file: &Path, path: &OsStr) {
        let text = match beneath::read_text(file, beneath::SMALL) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                let error = format!("{} cannot be read: {error}", file.display());
                return self.errors.push(error);
            }
        };
        let entries: BTreeMap<String, Entry> = match toml::from_str(&text) {
            Ok(entries) => entries,
            Err(error) => {
                let error = format!("{} names no agents: {}", file.display(), error.message());
                return self.errors.push(error);
            }
        };
        for (name, entry) in entries {
            let argv = match entry.command {
                Command::Words(words) => words,
                Command::Line(line) => shell_words::split(&line).unwrap_or_default(),
            };
            let usable = Actor::name_of_client(&name).is_some_and(|usable| usable == name);
            if argv.is_empty() || !usable {
                let why = match usable {
                    true => "has no command",
                    false => {
                        "is not a valid name: use lower-case letters, digits and hyphens, and no name that nb uses itself"
                    }
                };
                let error = format!("{}: {name:?} {why}", file.display());
                self.errors.push(error);
                continue;
            }
            let env = entry.env.into_iter().collect();
            self.add(&name, argv, env, Some(file.to_owned()), path);
        }
    }

    fn add(
        &mut self,
        name: &str,
        argv: Vec<String>,
        env: Vec<(String, String)>,
        file: Option<PathBuf>,
        path: &OsStr,
    ) {
        let program = argv.first().map(String::as_str).unwrap_or_default();
        let agent = KnownAgent {
            is_installed: is_program(program, path),
            launch: Launch {
                name: name.to_owned(),
                argv,
                env,
            },
            file,
        };
        self.agents.insert(name.to_owned(), agent);
    }

    /// Returns the names of all agents, sorted.
    pub fn names(&self) -> Vec<String> {
        let registered = self.registry.iter().flat_map(|it| it.agents.keys());
        let names: BTreeSet<_> = self.agents.keys().chain(registered).cloned().collect();
        names.into_iter().collect()
    }

    /// Returns the agent that a text names: by its name, or by its command.
    ///
    /// # Errors
    /// The text is empty or no command, or the named agent is not installed.
    pub fn resolve(&self, text: &str) -> Result<Launch, UnknownAgent> {
        let text = text.trim();
        let missing = |launch: &Launch| UnknownAgent::Missing {
            name: text.to_owned(),
            program: launch.argv.first().cloned().unwrap_or_default(),
        };
        let known = self.agents.get(text);
        if let Some(agent) = known.filter(|it| it.is_installed) {
            return Ok(agent.launch.clone());
        }
        let is_program = |program: &str| is_program(program, &self.path);
        let registered = self.registry.as_ref().and_then(|it| it.find(text));
        if let Some(agent) = registered.filter(|_| !is_program(text)) {
            let runner = agent.launch.argv.first().map(String::as_str);
            let can_run = match agent.source {
                AgentSource::Package => runner.is_some_and(is_program),
                AgentSource::Archive { .. } => true,
            };
            return Err(match can_run {
                true => UnknownAgent::NotInstalled(Box::new(agent.clone())),
                false => missing(&agent.launch),
            });
        }
        if let Some(agent) = known {
            return Err(missing(&agent.launch));
        }
        let argv = shell_words::split(text).map_err(|_| UnknownAgent::Quote(text.to_owned()))?;
        if argv.is_empty() {
            return Err(UnknownAgent::Empty);
        }
        Ok(Launch {
            name: name_of(&argv),
            argv,
            env: Vec::new(),
        })
    }

    /// Returns the agent that a text names, if its program is on `PATH` or is named by its path.
    ///
    /// # Errors
    /// The text is empty or no command, the named agent is not installed, or there is no such program.
    pub fn runnable(&self, text: &str) -> Result<Launch, UnknownAgent> {
        let launch = self.resolve(text)?;
        match launch.argv.first() {
            Some(program) if !program.contains('/') && !is_program(program, &self.path) => {
                Err(UnknownAgent::Missing {
                    name: launch.name,
                    program: program.clone(),
                })
            }
            _ => Ok(launch),
        }
    }
}

/// Returns the name of an agent that is given by its command.
fn name_of(argv: &[String]) -> String {
    let stem = |word: &String| {
        let name = Path::new(word).file_name().unwrap_or_default();
        let name = name.to_string_lossy();
        let scripts = [".py", ".js", ".mjs", ".ts", ".sh"];
        let ending = scripts.iter().find_map(|ending| name.strip_suffix(ending));
        ending.unwrap_or(&name).to_owned()
    };
    let is_runner = |name: &str| RUNNERS.contains(&name);
    let mut words = argv.iter().filter(|word| !word.starts_with('-')).map(stem);
    let found = words.find(|word| !is_runner(word) && word != "run" && !word.contains('='));
    let found = found.or_else(|| argv.first().map(stem)).unwrap_or_default();
    Actor::name_of_client(&found).unwrap_or_else(|| "agent".to_owned())
}

/// Returns the MCP server that every session gets: `nb`'s own, which acts in the agent's name.
///
/// # Errors
/// The path of this program is unknown.
pub fn own_server(agent: &str, root: &Path, notebook: Option<&Path>) -> std::io::Result<McpServer> {
    let mut env = vec![("NB_AS".to_owned(), agent.to_owned())];
    if let Some(notebook) = notebook {
        env.push(("NB_NOTEBOOK".to_owned(), notebook.display().to_string()));
    }
    let root = root.display().to_string();
    Ok(McpServer {
        name: "nb".to_owned(),
        command: own_path()?,
        args: vec!["mcp".to_owned(), "--root".to_owned(), root],
        env,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn an_agent_is_named_by_what_it_runs() {
        let name = |line: &str| KnownAgents::default().resolve(line).unwrap().name;
        assert_eq!(name("python3 -u '/a b/echo_agent.py' --x"), "echo-agent");
        assert_eq!(name("npx -y @google/gemini-cli --acp"), "gemini");
        assert_eq!(name("env 'A=b c' npx -y @ann/agent-1 --acp"), "agent-1");
        assert_eq!(name("/opt/my-agent acp"), "my-agent");
        assert_eq!(name("uv run agent.py"), "agent");
        assert_eq!(name("human"), "agent");
        assert_eq!(name("node"), "node");
        let resolve = |line| KnownAgents::default().resolve(line);
        assert_eq!(resolve("  "), Err(UnknownAgent::Empty));
        assert!(matches!(resolve("a 'b"), Err(UnknownAgent::Quote(_))));
    }

    #[test]
    fn files_add_agents_and_their_faults_are_told() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().canonicalize().unwrap();
        let program = folder.join("mine");
        std::fs::write(&program, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let text = "[mine]\ncommand = \"mine 'one word'\"\nenv = { K = \"v\" }\n\
                    [human]\ncommand = [\"mine\"]\n[nothing]\ncommand = \"\"\n";
        let home = folder.join("home").display().to_string();
        let path = folder.display().to_string();
        let variables = HashMap::from([("HOME", home.as_str()), ("PATH", path.as_str())]);
        let file = own_data_dir(&variables).unwrap().join(FILE);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        let known = KnownAgents::read(&variables);
        let mine = known.resolve("mine").unwrap();
        assert_eq!(mine.argv, ["mine", "one word"]);
        assert_eq!(mine.env, [("K".to_owned(), "v".to_owned())]);
        assert_eq!(known.errors.len(), 2, "{:?}", known.errors);
        assert!(matches!(
            known.resolve("gemini"),
            Err(UnknownAgent::Missing { .. })
        ));
        assert_eq!(known.runnable("mine").unwrap(), mine);
        assert!(matches!(
            known.runnable("another --acp"),
            Err(UnknownAgent::Missing { program, .. }) if program == "another"
        ));
        assert!(known.runnable("./another").is_ok());

        std::fs::write(&file, "[mine]\ncomand = 3").unwrap();
        let damaged = KnownAgents::read(&variables);
        assert_eq!(damaged.errors.len(), 1);
        assert!(!damaged.agents.contains_key("mine"));
    }
}

//! The published registry of agents: a local copy of it, and the commands that it names.
//!
//! The format is described at <https://agentclientprotocol.com/get-started/registry>. Nothing is downloaded unless the
//! user says so: neither the registry nor an agent.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::connection::Launch;
use crate::activity::actor::Actor;
use crate::kernel::variables::{NoHome, Variables, own_data_dir};
use crate::project::beneath;
use crate::server::download;

/// The address of the registry, unless [`ADDRESS`] names another one.
const URL: &str = "https://cdn.agentclientprotocol.com/registry/v1/latest/registry.json";

/// The variable with another address.
const ADDRESS: &str = "NB_AGENT_REGISTRY";

/// The local copy, in the folder of `nb`'s own data.
const FILE: &str = "agent-registry.json";

/// The largest registry, in bytes. The published one has some hundred kilobytes.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// The longest text of the registry that is shown, in characters.
const TEXT_CHARS_MAX: usize = 200;

/// The local copy of the registry.
#[derive(Clone, Debug, Default)]
pub struct AgentRegistry {
    /// The agents by their ids in the registry.
    pub agents: BTreeMap<String, RegisteredAgent>,
    /// How many entries cannot be used: they are damaged, or have nothing for this machine.
    pub left_out: usize,
}

/// An agent of the registry that can run on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredAgent {
    /// What people call it, and its version.
    pub title: String,
    /// The command.
    pub launch: Launch,
    /// Where its program is.
    pub source: AgentSource,
}

/// Where the program of a registered agent comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentSource {
    /// The command downloads a package, and runs it.
    Package,
    /// An archive, which the user has to unpack.
    Archive {
        /// Its address.
        url: String,
        /// Its checksum, as hexadecimal digits.
        sha256: Option<String>,
    },
}

/// Why there is no registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// It was never downloaded.
    #[error("no copy of the registry of agents is on this machine")]
    Missing,
    /// The local copy is no registry.
    #[error("{} is damaged: {why}", path.display())]
    Damaged {
        /// The local copy.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// It cannot be downloaded, or what was downloaded is no registry.
    #[error("the registry of agents cannot be downloaded: {0}")]
    Download(String),
    /// The local copy cannot be stored.
    #[error("the registry of agents cannot be stored: {0}")]
    Store(std::io::Error),
    /// There is no place for the local copy.
    #[error(transparent)]
    NoHome(#[from] NoHome),
}

#[derive(Deserialize)]
struct Document {
    agents: Vec<Value>,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
    name: String,
    version: String,
    distribution: Distribution,
}

#[derive(Deserialize)]
struct Distribution {
    npx: Option<Package>,
    uvx: Option<Package>,
    #[serde(default)]
    binary: BTreeMap<String, Binary>,
}

#[derive(Deserialize)]
struct Package {
    package: String,
    cmd: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Binary {
    archive: String,
    sha256: Option<String>,
    cmd: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

impl AgentRegistry {
    /// Reads the local copy.
    ///
    /// # Errors
    /// There is none, or it cannot be used.
    pub fn read(variables: &dyn Variables) -> Result<Self, RegistryError> {
        let path = file(variables)?;
        let damaged = |why: String| RegistryError::Damaged {
            path: path.clone(),
            why,
        };
        match beneath::read(&path, FILE_BYTES_MAX) {
            Ok(text) => Self::parse(&text).map_err(damaged),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(RegistryError::Missing)
            }
            Err(error) => Err(damaged(error.to_string())),
        }
    }

    /// Downloads the registry, and replaces the local copy.
    ///
    /// # Errors
    /// It cannot be downloaded or stored; the local copy is as before.
    pub async fn download(variables: &dyn Variables) -> Result<Self, RegistryError> {
        let path = file(variables)?;
        let address = variables.get(ADDRESS);
        let address = address.as_deref().and_then(|it| it.to_str());
        let text = download(address.unwrap_or(URL), FILE_BYTES_MAX).await;
        let text = text.map_err(|error| RegistryError::Download(error.to_string()))?;
        let registry = Self::parse(&text).map_err(RegistryError::Download)?;
        let folder = path.parent().unwrap_or(&path);
        let stored = beneath::make_folder(folder).and_then(|()| beneath::replace(&path, &text));
        stored.map_err(RegistryError::Store)?;
        Ok(registry)
    }

    /// Reads a registry. An entry that cannot be used is left out, so that a new kind of entry costs none of the others.
    fn parse(text: &[u8]) -> Result<Self, String> {
        let document: Document = serde_json::from_slice(text).map_err(|it| it.to_string())?;
        let platform = platform();
        let mut registry = Self::default();
        for entry in document.agents {
            match serde_json::from_value::<Entry>(entry).ok().and_then(|it| {
                let agent = it.agent(&platform)?;
                Some((it.id, agent))
            }) {
                Some((id, agent)) => drop(registry.agents.insert(id, agent)),
                None => registry.left_out += 1,
            }
        }
        Ok(registry)
    }

    /// Returns the agent with this id, or else the first one that acts under this name.
    pub fn find(&self, name: &str) -> Option<&RegisteredAgent> {
        let by_id = self.agents.get(name);
        by_id.or_else(|| self.agents.values().find(|it| it.launch.name == name))
    }

    /// Returns a line for each agent: its id, its title, the command.
    pub fn lines(&self) -> String {
        let mut text = String::new();
        for (id, agent) in &self.agents {
            let _ = writeln!(text, "{id}  {}: {}", agent.title, agent.how());
        }
        if self.left_out > 0 {
            let _ = writeln!(text, "not for this machine, or damaged: {}", self.left_out);
        }
        text
    }
}

impl RegisteredAgent {
    /// Returns what makes the agent run: a command, or an archive and a command.
    pub fn how(&self) -> String {
        let env = self.launch.env.iter();
        let env = env.map(|(name, value)| format!("{name}={value}"));
        let program = (!self.launch.env.is_empty()).then(|| "env".to_owned());
        let words = program.into_iter().chain(env);
        let command = shell_words::join(words.chain(self.launch.argv.iter().cloned()));
        match &self.source {
            AgentSource::Package => command,
            AgentSource::Archive { url, sha256: None } => format!("unpack {url}, then {command}"),
            AgentSource::Archive {
                url,
                sha256: Some(sum),
            } => format!("unpack {url} (SHA-256 {sum}), then {command}"),
        }
    }

    /// Returns the question whether the agent's package is to be downloaded and run.
    pub fn question(&self) -> String {
        format!(
            "{} is not installed. This command downloads it, and runs it with your rights:\n  {}\n\
             y to run it, Enter for [no]: ",
            self.title,
            self.how()
        )
    }
}

impl Entry {
    /// Returns how to run the agent; a package is preferred, since its program needs no step of the user's.
    fn agent(&self, platform: &str) -> Option<RegisteredAgent> {
        let name = Actor::name_of_client(&self.id)?;
        let found = &self.distribution;
        let package = |runner: &[&str], from: &str, package: &Package| {
            let runner = runner.iter().map(|word| (*word).to_owned());
            let named = match &package.cmd {
                Some(cmd) => vec![from.to_owned(), package.package.clone(), cmd.clone()],
                None => vec![package.package.clone()],
            };
            let argv = runner.chain(named).chain(package.args.iter().cloned());
            // The name of a package is no option of the runner.
            let is_package = !package.package.is_empty() && !package.package.starts_with('-');
            let is_command = package.cmd.as_ref().is_none_or(|it| !it.starts_with('-'));
            let env = package.env.clone();
            (is_package && is_command)
                .then(|| (argv.collect::<Vec<_>>(), env, AgentSource::Package))
        };
        let npx = found.npx.as_ref();
        let npx = npx.and_then(|it| package(&["npx", "-y"], "--package", it));
        let uvx = found.uvx.as_ref();
        let uvx = uvx.and_then(|it| package(&["uvx"], "--from", it));
        let binary = found.binary.get(platform).map(|it| {
            let argv = std::iter::once(&it.cmd).chain(&it.args).cloned().collect();
            let source = AgentSource::Archive {
                url: it.archive.clone(),
                sha256: it.sha256.clone(),
            };
            (argv, it.env.clone(), source)
        });
        let (argv, env, source) = npx.or(uvx).or(binary)?;
        let env: Vec<_> = env.into_iter().collect();
        let title = format!("{} {}", self.name, self.version);
        let agent = RegisteredAgent {
            title: title.chars().take(TEXT_CHARS_MAX).collect(),
            launch: Launch { name, argv, env },
            source,
        };
        // Such a text would not be shown as it is.
        let is_plain = |text: &str| !text.chars().any(|c| c.is_control() || is_directional(c));
        (is_plain(&agent.title) && is_plain(&agent.how()) && is_plain(&self.id)).then_some(agent)
    }
}

/// Returns whether a character changes the direction in which others are shown.
fn is_directional(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn file(variables: &dyn Variables) -> Result<PathBuf, NoHome> {
    Ok(own_data_dir(variables)?.join(FILE))
}

/// Returns this machine's name in the registry.
fn platform() -> String {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    format!("{system}-{}", std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::*;

    fn registry(agents: &Value) -> AgentRegistry {
        let document = json!({ "version": "1.0.0", "agents": agents, "extensions": [] });
        AgentRegistry::parse(document.to_string().as_bytes()).unwrap()
    }

    fn entry(id: &str, distribution: &Value) -> Value {
        json!({
            "id": id, "name": "Ann", "version": "1.2.3", "description": "d", "distribution": distribution,
        })
    }

    #[test]
    fn each_kind_of_distribution_is_shown_with_its_command() {
        let sum = "0".repeat(64);
        let registry = registry(&json!([
            entry(
                "claude-acp",
                &json!({ "npx": { "package": "@a/claude-agent-acp@0.85.1" } })
            ),
            entry(
                "one",
                &json!({ "npx": { "package": "@a/one", "cmd": "one-acp", "args": ["a b"], "env": { "K": "v w" } } })
            ),
            entry(
                "two",
                &json!({ "uvx": { "package": "two[acp]==1", "cmd": "two-acp" } })
            ),
            entry(
                "three",
                &json!({ "binary": { platform(): {
                "archive": "https://example.org/three.tgz", "sha256": sum, "cmd": "./three", "args": ["acp"] } } })
            ),
        ]));
        let how = |name: &str| registry.find(name).map(RegisteredAgent::how).unwrap();
        assert_eq!(how("claude"), "npx -y @a/claude-agent-acp@0.85.1");
        assert_eq!(
            how("one"),
            "env 'K=v w' npx -y --package @a/one one-acp 'a b'"
        );
        assert_eq!(how("two"), "uvx --from 'two[acp]==1' two-acp");
        let archive =
            format!("unpack https://example.org/three.tgz (SHA-256 {sum}), then ./three acp");
        assert_eq!(how("three"), archive);
        assert_eq!(registry.left_out, 0);
        assert_eq!(registry.lines().lines().count(), 4);
        let question = registry.find("claude-acp").unwrap().question();
        assert!(
            question.contains("\n  npx -y @a/claude-agent-acp@0.85.1\n"),
            "{question}"
        );
    }

    #[test]
    fn entries_that_cannot_be_used_cost_none_of_the_others() {
        let registry = registry(&json!([
            3,
            { "id": "x" },
            entry("human", &json!({ "npx": { "package": "a" } })),
            entry("option", &json!({ "npx": { "package": "--call=rm" } })),
            entry("option-2", &json!({ "uvx": { "package": "a", "cmd": "--with" } })),
            entry("hidden", &json!({ "npx": { "package": "a\u{1b}[8m" } })),
            entry("turned", &json!({ "npx": { "package": "a\u{202e}b" } })),
            entry("elsewhere", &json!({ "binary": { "plan9-mips": { "archive": "https://a", "cmd": "b" } } })),
            entry("good", &json!({ "npx": { "package": "good", "new": 1 }, "new": {} })),
        ]));
        assert_eq!(registry.agents.keys().collect::<Vec<_>>(), ["good"]);
        assert_eq!(registry.left_out, 8);
    }

    #[test]
    fn a_damaged_copy_is_told_with_its_path() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap().display().to_string();
        let variables = HashMap::from([("HOME", home.as_str())]);
        assert!(matches!(
            AgentRegistry::read(&variables),
            Err(RegistryError::Missing)
        ));
        let path = file(&variables).unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        for text in ["", "[]", r#"{"agents": 3}"#, "\u{0}\u{ff}"] {
            std::fs::write(&path, text).unwrap();
            let error = AgentRegistry::read(&variables).unwrap_err().to_string();
            assert!(error.contains(FILE) && error.contains("damaged"), "{error}");
        }
    }
}

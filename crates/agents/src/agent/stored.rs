//! Conversations in `.nb/chat`: what a chat needs to go on after its kernel has ended.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::connection::Launch;
use super::permission::StandingPermission;
use super::protocol::McpServer;
use super::session::Agent;
use crate::project::{Project, beneath};

/// After this time without a message a conversation is forgotten.
const KEPT: Duration = Duration::from_secs(180 * 24 * 60 * 60);

/// How many sessions of a chat are listed.
const MOST_SESSIONS: usize = 50;

/// A conversation as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredChat {
    /// The chat's notebook, as its front end names it.
    pub notebook: Option<String>,
    /// Its agents.
    pub agents: Vec<StoredAgent>,
    /// The agent that gets messages which name none.
    pub current: Option<String>,
    /// The notebook that the agents work on.
    pub on: Option<PathBuf>,
    /// What agents may do without being asked.
    pub standing: Vec<StandingPermission>,
    /// The turn that runs, or that was running when the kernel ended.
    pub open: Option<OpenTurn>,
    /// The sessions that were begun, the last at the end.
    pub sessions: Vec<StoredSession>,
}

/// An agent of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredAgent {
    /// Its command.
    pub launch: Launch,
    /// Its session.
    pub session: Option<String>,
    /// The MCP servers that the person has added.
    #[serde(default)]
    pub servers: Vec<McpServer>,
}

/// A session with an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSession {
    /// The agent's name.
    pub agent: String,
    /// The session's id.
    pub session: String,
    /// How its first message begins.
    pub title: String,
    /// When it was begun.
    pub since: jiff::Timestamp,
}

/// A turn that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenTurn {
    /// The agent's name.
    pub agent: String,
    /// How the message begins.
    pub message: String,
}

/// The place of a conversation.
#[derive(Clone, Debug)]
pub struct ChatFile(PathBuf);

impl ChatFile {
    /// Returns the place of a chat with this name; makes the folder, and forgets old chats.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn of(project: &Project, name: &str) -> io::Result<Self> {
        let folder = project.make_folder("chat")?;
        beneath::remove_unused(&folder, KEPT);
        let hash = hex::encode(Sha256::digest(name.as_bytes()));
        Ok(Self(folder.join(format!("{}.json", &hash[..16]))))
    }

    /// Reads the conversation; a new one if there is none, or none that can be read.
    pub fn read<T: DeserializeOwned + Default>(&self) -> T {
        beneath::read_json(&self.0, beneath::SMALL).unwrap_or_default()
    }

    /// Writes the conversation.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, chat: &impl Serialize) -> io::Result<()> {
        beneath::write_json(&self.0, chat)
    }
}

impl StoredChat {
    /// Adds the session of an agent that gets a message, if it is new.
    pub fn add_session(&mut self, agent: &Agent, message: &str) {
        let Some(session) = agent.session() else {
            return;
        };
        if self.sessions.iter().any(|it| it.session == session) {
            return;
        }
        self.sessions.push(StoredSession {
            agent: agent.launch().name.clone(),
            session: session.to_owned(),
            title: beginning(message),
            since: jiff::Timestamp::now(),
        });
        let over = self.sessions.len().saturating_sub(MOST_SESSIONS);
        self.sessions.drain(..over);
    }
}

/// Returns the beginning of a message, on one line.
pub fn beginning(message: &str) -> String {
    let words: Vec<_> = message.split_whitespace().take(12).collect();
    let line = words.join(" ");
    match line.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

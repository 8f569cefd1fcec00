//! The record of a server: everything but its secrets.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A Jupyter server that the user has named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// The user's name for it.
    pub name: String,
    /// Its base URL, with a slash at the end and without a token; for a hub the hub's.
    pub url: String,
    /// The kind of server.
    pub kind: ServerKind,
    /// Where its token comes from.
    pub credential: CredentialSource,
    /// The names of the headers that every request has besides; their values are kept with the token.
    #[serde(default)]
    pub headers: Vec<String>,
    /// Where its secrets are stored.
    #[serde(default)]
    pub secrets: SecretPlace,
    /// A file with the certificates of authorities that count besides the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How many kernels this user opens there at most.
    #[serde(default)]
    pub max_kernels: Option<u32>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// The kinds of server, which differ in what they offer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum ServerKind {
    /// A Jupyter Server: sessions, contents, kernels.
    Jupyter,
    /// A kernel gateway: kernels only.
    Gateway,
    /// A JupyterHub, which starts a Jupyter Server for each of its users.
    Hub {
        /// The user that the token belongs to.
        user: String,
    },
}

impl ServerKind {
    /// Returns the kind in a word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Jupyter => "jupyter",
            Self::Gateway => "gateway",
            Self::Hub { .. } => "hub",
        }
    }
}

/// Where the token of a server comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "from")]
pub enum CredentialSource {
    /// The server wants no token.
    Nothing,
    /// The user gave it: it is stored.
    Stored {
        /// The file that the token was read from: it is read again when the server refuses the token.
        token_file: Option<PathBuf>,
    },
    /// A command prints it, and is run anew when the server refuses the token.
    Command {
        /// The command, as `sh -c` takes it.
        command: String,
    },
    /// The variables `JUPYTER_GATEWAY_…` have it.
    Variables,
}

impl CredentialSource {
    /// Returns the source in a few words.
    pub fn in_words(&self) -> &'static str {
        match self {
            Self::Nothing => "no token",
            Self::Stored { .. } => "stored token",
            Self::Command { .. } => "token command",
            Self::Variables => "JUPYTER_GATEWAY_… variables",
        }
    }
}

/// Where the secrets of a server are stored: its token and the values of its headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretPlace {
    /// Nothing is stored.
    #[default]
    Nowhere,
    /// A private file of the state folder.
    File,
}

/// Returns whether a name may be a server's: it names a file, and stands before a colon in `nb cp`.
pub fn is_server_name(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=64).contains(&name.len())
        && name.chars().all(is_allowed)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_name_is_no_path() {
        assert!(is_server_name("gpu-box.lab_2"));
        for name in ["", ".", "..", ".a", "-a", "a/b", "a:b", "a b", "é"] {
            assert!(!is_server_name(name), "{name}");
        }
    }
}

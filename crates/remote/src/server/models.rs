//! The JSON of a Jupyter server's REST interface, as far as `nb` reads it.
//!
//! Servers differ in what they fill in: what `nb` can do without is optional, and unknown fields are passed over.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The answer to `GET /api`.
#[derive(Clone, Debug, Deserialize)]
pub struct ServerVersion {
    /// The version of Jupyter Server.
    pub version: String,
    /// The version of the gateway, where it is one.
    #[serde(default)]
    pub gateway_version: Option<String>,
}

/// A kernel of a server.
#[derive(Clone, Debug, Deserialize)]
pub struct KernelModel {
    /// Its id.
    pub id: String,
    /// The name of its kernelspec.
    #[serde(default)]
    pub name: String,
    /// When it was last active, as the server writes it.
    #[serde(default)]
    pub last_activity: Option<String>,
    /// `starting`, `idle`, `busy`, `dead` …
    #[serde(default)]
    pub execution_state: Option<String>,
    /// How many websockets it has.
    #[serde(default)]
    pub connections: Option<u32>,
}

/// A session of a server: a path and its kernel.
#[derive(Clone, Debug, Deserialize)]
pub struct SessionModel {
    /// Its id.
    pub id: String,
    /// The path of its notebook, as the client named it.
    #[serde(default)]
    pub path: String,
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its kernel.
    pub kernel: Option<KernelModel>,
}

/// The answer to `GET /api/kernelspecs`.
#[derive(Clone, Debug, Deserialize)]
pub struct KernelspecsModel {
    /// The name of the default.
    #[serde(default)]
    pub default: Option<String>,
    /// All of them, by their names.
    pub kernelspecs: BTreeMap<String, KernelspecModel>,
}

/// A kernelspec of a server.
#[derive(Clone, Debug, Deserialize)]
pub struct KernelspecModel {
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its content.
    pub spec: KernelspecContent,
}

/// The part of a `kernel.json` that a client needs.
#[derive(Clone, Debug, Deserialize)]
pub struct KernelspecContent {
    /// The name that people see.
    #[serde(default)]
    pub display_name: String,
    /// Its language.
    #[serde(default)]
    pub language: String,
    /// `signal` or `message`.
    #[serde(default)]
    pub interrupt_mode: Option<String>,
    /// What it says of itself.
    #[serde(default)]
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

/// A server's message about a failure.
#[derive(Debug, Default, Deserialize)]
pub(super) struct FailureModel {
    #[serde(default)]
    pub(super) message: Option<String>,
    #[serde(default)]
    pub(super) reason: Option<String>,
}

/// A user of a hub.
#[derive(Debug, Deserialize)]
pub(super) struct HubUserModel {
    pub(super) name: String,
    #[serde(default)]
    pub(super) servers: BTreeMap<String, HubServerModel>,
}

/// A server of a hub's user.
#[derive(Debug, Deserialize)]
pub(super) struct HubServerModel {
    #[serde(default)]
    pub(super) ready: bool,
    #[serde(default)]
    pub(super) pending: Option<String>,
}

/// A step of a server's start, as the hub reports it.
#[derive(Debug, Deserialize)]
pub(super) struct HubProgressModel {
    #[serde(default)]
    pub(super) progress: Option<f64>,
    #[serde(default)]
    pub(super) message: Option<String>,
    #[serde(default)]
    pub(super) ready: bool,
    #[serde(default)]
    pub(super) failed: bool,
}

/// A file or folder of a server, without its content.
#[derive(Clone, Debug, Deserialize)]
pub struct ContentsModel {
    /// `file`, `notebook` or `directory`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its size in bytes.
    #[serde(default)]
    pub size: Option<u64>,
    /// When it was last changed, as the server writes it.
    #[serde(default)]
    pub last_modified: Option<String>,
    /// The checksum of its content, where the server reports one.
    #[serde(default)]
    pub hash: Option<String>,
    /// How the checksum is made.
    #[serde(default)]
    pub hash_algorithm: Option<String>,
}

impl ContentsModel {
    /// Returns whether it is a folder.
    pub fn is_folder(&self) -> bool {
        self.kind == "directory"
    }

    /// Returns the SHA-256 of its content in hexadecimal digits, where the server reports it; none if it is
    /// another text.
    pub fn sha256(&self) -> Option<&str> {
        let is_sha256 = self.hash_algorithm.as_deref() == Some("sha256");
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_digest = |hash: &&str| hash.len() == 64 && hash.bytes().all(is_digit);
        self.hash.as_deref().filter(|_| is_sha256).filter(is_digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest becomes a part of a file's name.
    #[test]
    fn a_hash_that_is_no_digest_is_none() {
        let digest = "0123456789abcdef".repeat(4);
        let of = |hash: &str| {
            let entry = serde_json::json!({
                "name": "a", "path": "a", "type": "file", "hash": hash, "hash_algorithm": "sha256",
            });
            let entry: ContentsModel = serde_json::from_value(entry).unwrap();
            entry.sha256().map(str::to_owned)
        };
        assert_eq!(of(&digest).as_ref(), Some(&digest));
        for hash in ["", "/../../x", "..", &digest[1..], &digest.to_uppercase()] {
            assert_eq!(of(hash), None, "{hash}");
        }
        assert_eq!(of(&format!("/../{}", &digest[4..])), None);
    }
}

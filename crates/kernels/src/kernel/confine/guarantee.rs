//! The guarantees of a sandbox.

use serde::{Deserialize, Serialize};

use super::view::FilesystemView;

/// A guarantee of a sandbox. Each is tried from inside before the kernel begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// The kernel cannot reach anything outside over TCP or UDP, and cannot make raw packets.
    Network,
    /// The kernel cannot reach other programs' Unix sockets, with or without a path.
    Sockets,
    /// The kernel cannot change anything in the workspace.
    Workspace,
    /// Of all other files, including home, the kernel sees only programs and allowed folders.
    Files,
    /// The kernel cannot signal, trace or see other processes.
    Processes,
    /// The kernel cannot mount anything, make namespaces or gain privileges.
    Privileges,
    /// The kernel cannot use more processors than it was given.
    Cpus,
    /// The kernel can use its scratch folder, its sockets' folder and the folders that it may write.
    OwnFolders,
}

impl Guarantee {
    /// Returns the guarantees of a sandbox with this view.
    pub fn of(view: &FilesystemView) -> Vec<Self> {
        let all = [
            Self::Network,
            Self::Sockets,
            Self::Workspace,
            Self::Files,
            Self::Processes,
            Self::Privileges,
            Self::Cpus,
            Self::OwnFolders,
        ];
        let is_kept = |guarantee: &Self| match guarantee {
            Self::Network => !view.allow_net,
            Self::Cpus => view.cpus.is_some(),
            // A workspace that may be written as a whole has no such guarantee.
            Self::Workspace => !view.writes_workspace(),
            _ => true,
        };
        all.into_iter().filter(is_kept).collect()
    }

    /// Returns the words for it in messages and answers.
    pub fn words(self) -> &'static str {
        match self {
            Self::Network => "no network",
            Self::Sockets => "no sockets of other programs",
            Self::Workspace => "workspace read-only",
            Self::Files => "no other files",
            Self::Processes => "no other processes",
            Self::Privileges => "no mounts, no privileges",
            Self::Cpus => "limited processors",
            Self::OwnFolders => "its folders usable",
        }
    }
}

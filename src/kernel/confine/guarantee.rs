//! The guarantees of a sandbox.

use serde::{Deserialize, Serialize};

use super::view::FilesystemView;

/// A guarantee of a sandbox. Each is tried from inside before the kernel begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// Nothing outside is reached over TCP or UDP, and no packets are made by hand.
    Network,
    /// Other programs' Unix sockets, with or without a path, are not reached.
    Sockets,
    /// Nothing in the workspace is changed.
    Workspace,
    /// Of all other files, home included, only programs and allowed folders are seen.
    Files,
    /// Other processes are not signalled, traced or looked at.
    Processes,
    /// Nothing is mounted, no namespace made, no privilege gained.
    Privileges,
    /// No more processors are used than were given.
    Cpus,
    /// The kernel can use its scratch folder, its sockets' folder and the folders that it may write.
    OwnFolders,
}

impl Guarantee {
    /// Returns the guarantees that are given for a view.
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
        let given = |guarantee: &Self| match guarantee {
            Self::Network => !view.allow_net,
            Self::Cpus => view.cpus.is_some(),
            // A workspace that may be written as a whole has no guarantee.
            Self::Workspace => !view.writes_workspace(),
            _ => true,
        };
        all.into_iter().filter(given).collect()
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

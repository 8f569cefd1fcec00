//! What a sandbox promises.

use serde::{Deserialize, Serialize};

use super::view::FilesystemView;

/// One promise. Each is tried from inside before the kernel begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// Nothing outside is reached over TCP or UDP, and no packets are made by hand.
    Network,
    /// Other programs' Unix sockets, with or without a path, are not reached.
    Sockets,
    /// Nothing in the workspace is changed.
    Workspace,
    /// Of the other files, home included, only programs and what was allowed are seen.
    Files,
    /// Other processes are not signalled, traced or looked at.
    Processes,
    /// Nothing is mounted, no namespace made, no privilege gained.
    Privileges,
    /// No more processors are used than were given.
    Cpus,
    /// What it needs is there: its scratch folder, its sockets' folder, what it may write.
    OwnFolders,
}

impl Guarantee {
    /// Returns the promises that are made for a view.
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
        let made = |promise: &Self| match promise {
            Self::Network => !view.allow_net,
            Self::Cpus => view.cpus.is_some(),
            // Where all of it may be written, nothing is promised for it.
            Self::Workspace => !view.writes_workspace(),
            _ => true,
        };
        all.into_iter().filter(made).collect()
    }

    /// Returns it in words that stand after "cannot promise".
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

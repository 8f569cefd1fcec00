//! What a sandbox promises.

use serde::{Deserialize, Serialize};

use super::view::Room;

/// One promise. Each is tried from inside before the kernel begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
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
    Room,
}

impl Promise {
    /// Returns the promises that are made for a room.
    pub fn of(room: &Room) -> Vec<Self> {
        let all = [
            Self::Network,
            Self::Sockets,
            Self::Workspace,
            Self::Files,
            Self::Processes,
            Self::Privileges,
            Self::Cpus,
            Self::Room,
        ];
        let made = |promise: &Self| match promise {
            Self::Network => !room.allow_net,
            Self::Cpus => room.cpus.is_some(),
            // Where all of it may be written, nothing is promised for it.
            Self::Workspace => !room.writes_workspace(),
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
            Self::Room => "its folders usable",
        }
    }
}

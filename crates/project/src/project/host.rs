//! Identity of the machine on which a process runs.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The machine, its boot and the process namespace in which a pid means something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostIdentity {
    /// The host's name.
    pub name: String,
    /// The id of this boot of the machine.
    pub boot_id: String,
    /// The pid namespace; empty where the platform has none.
    pub pid_namespace: String,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// How a recorded host relates to the one where this process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The same host: pids recorded there are valid here.
    Here,
    /// This machine before its last boot: every process recorded there has ended.
    EarlierBoot,
    /// Another host or container: its pids mean nothing here.
    OtherHost,
}

impl HostIdentity {
    /// Returns the identity of the host on which this process runs.
    pub fn here() -> Self {
        Self {
            name: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            boot_id: boot_id().to_owned(),
            pid_namespace: pid_namespace(),
            other: Map::new(),
        }
    }

    /// Says whether it is this machine, possibly in another container or sandbox.
    pub fn is_on_this_machine(&self) -> bool {
        let this_host = Self::here();
        self.name == this_host.name && self.boot_id == this_host.boot_id
    }

    /// Returns how this recorded host relates to the one where this process runs.
    pub fn relation(&self) -> Relation {
        self.relation_to(&Self::here())
    }

    fn relation_to(&self, this_host: &Self) -> Relation {
        let same =
            self.boot_id == this_host.boot_id && self.pid_namespace == this_host.pid_namespace;
        // A laptop's host name changes with its network; boot and namespace do not. A record
        // without any of the three was written by another program, which is assumed to run here.
        if same || *self == Self::default() {
            Relation::Here
        } else if self.name == this_host.name
            && self.boot_id != this_host.boot_id
            // Empty in a container without /proc: then no process is called dead.
            && !this_host.boot_id.is_empty()
        {
            Relation::EarlierBoot
        } else {
            Relation::OtherHost
        }
    }
}

/// Returns the id of this boot of the machine.
pub fn boot_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(read_boot_id)
}

#[cfg(target_os = "linux")]
fn read_boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(not(target_os = "linux"))]
fn read_boot_id() -> String {
    let out = std::process::Command::new("/usr/sbin/sysctl")
        .args(["-n", "kern.bootsessionuuid"])
        .output();
    out.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
        .unwrap_or_default()
}

/// Returns the id of this process's pid namespace.
#[cfg(target_os = "linux")]
pub fn pid_namespace() -> String {
    std::fs::read_link("/proc/self/ns/pid")
        .map(|link| link.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Returns nothing: this platform has a single pid namespace.
#[cfg(not(target_os = "linux"))]
pub fn pid_namespace() -> String {
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, boot: &str, namespace: &str) -> HostIdentity {
        HostIdentity {
            name: name.into(),
            boot_id: boot.into(),
            pid_namespace: namespace.into(),
            other: Map::new(),
        }
    }

    #[test]
    fn a_restarted_machine_is_not_another_machine() {
        let here = host("box", "b2", "pid:[1]");
        assert_eq!(
            host("box", "b2", "pid:[1]").relation_to(&here),
            Relation::Here
        );
        assert_eq!(
            host("renamed", "b2", "pid:[1]").relation_to(&here),
            Relation::Here
        );
        assert_eq!(
            host("box", "b1", "pid:[1]").relation_to(&here),
            Relation::EarlierBoot
        );
        assert_eq!(
            host("box", "b2", "pid:[9]").relation_to(&here),
            Relation::OtherHost
        );
        assert_eq!(
            host("other", "b1", "pid:[1]").relation_to(&here),
            Relation::OtherHost
        );
        assert_eq!(HostIdentity::default().relation_to(&here), Relation::Here);
        let blind = host("box", "", "");
        assert_eq!(
            host("box", "b2", "pid:[1]").relation_to(&blind),
            Relation::OtherHost
        );
    }

    #[test]
    fn here_is_here() {
        assert_eq!(HostIdentity::here().relation(), Relation::Here);
    }
}

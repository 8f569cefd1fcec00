//! The front end, the limits and the user's settings, as the bridge gets them.

use std::time::Duration;

/// The settings that the bridge gets once, at its start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Unique to this proxy and plain text: the identity of its own sockets to the kernel.
    pub id: String,
    /// How many bytes of one client may wait for the kernel before its connections are no longer read.
    pub held_bytes: usize,
    /// How many bytes may wait for one client that is disconnected; the oldest are dropped, with a log line.
    pub undelivered_bytes: usize,
    /// The front end that launched the proxy: front ends mean different things by the same messages.
    pub front_end: FrontEnd,
}

/// The kind of front end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrontEnd {
    /// VS Code's Jupyter extension. It names the notebook only in its traffic.
    VsCode,
    /// A Jupyter server. It sends an interrupt at the same moment as a shutdown.
    Jupyter,
    /// A console, nbclient, anything else.
    #[default]
    Other,
}

/// The user's settings, which may change later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    /// Whether a person's cell waits in the proxy while another client's cell runs.
    pub turns: bool,
    /// Whether the bridge answers front ends' own start-up code in the kernel's stead.
    pub answer_startup: bool,
    /// Fingerprints of further start-up code, as the log prints them.
    pub startup_known: Vec<String>,
    /// Whether a front end's restart restarts the real kernel.
    pub restart: bool,
    /// How long a client without connections has to come back before a recorder takes its running cells.
    pub return_time: Duration,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            turns: true,
            answer_startup: true,
            startup_known: Vec::new(),
            restart: true,
            return_time: Duration::from_secs(10),
        }
    }
}

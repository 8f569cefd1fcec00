//! The front end, the limits and the user's settings, as the bridge gets them.

/// What the bridge gets once.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Unique to this proxy and plain text: the identity of its own sockets to the kernel.
    pub id: String,
    /// How many bytes of one client may wait for the kernel before its connections are not read.
    pub held_bytes: usize,
    /// How many bytes may wait for one client that is away; more are dropped, with a log line.
    pub undelivered_bytes: usize,
    /// What launched the proxy: front ends mean different things by the same messages.
    pub front_end: FrontEnd,
}

/// The kind of front end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrontEnd {
    /// VS Code's Jupyter extension. It names the notebook only in its traffic.
    VsCode,
    /// A Jupyter server. It interrupts a kernel in the same moment in which it ends it.
    Jupyter,
    /// A console, nbclient, anything else.
    #[default]
    Other,
}

/// What the user wants otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    /// Whether a person's cell waits here while somebody else's runs.
    pub turns: bool,
    /// Whether front ends' own start-up code is answered in the kernel's stead.
    pub answer_startup: bool,
    /// Fingerprints of more such code, as the log names them.
    pub startup_known: Vec<String>,
    /// Whether a front end's restart is one of the real kernel.
    pub restart: bool,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            turns: true,
            answer_startup: true,
            startup_known: Vec::new(),
            restart: true,
        }
    }
}

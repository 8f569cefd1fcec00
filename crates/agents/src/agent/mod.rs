//! Conversations with coding agents: the client's side of the Agent Client Protocol.
//!
//! | file | content |
//! |---|---|
//! | `protocol` | the protocol's messages; the one module that names its crate |
//! | `update` | what an agent's updates say |
//! | `turn`, `markdown` | a turn as displays that grow in place. Pure |
//! | `permission` | what an agent may do, as a question. Pure |
//! | `connection` | an agent's process |
//! | `workspace`, `terminal` | the files and commands that an agent gets through its client |
//! | `message` | a message with what it names: images, figures, files |
//! | `session` | an agent that is started, spoken to, interrupted |
//! | `work` | what an agent did in notebooks, and for which message |
//! | `known` | agents by their names: those on `PATH`, and those in `agents.toml` |
//! | `registry` | the published registry of agents, and its local copy |
//! | `stored` | conversations in `.nb/chat` |

mod connection;
pub mod known;
mod markdown;
pub mod message;
pub mod permission;
mod program;
mod protocol;
pub mod registry;
pub mod session;
pub mod stored;
mod terminal;
pub mod turn;
pub mod update;
pub mod work;
pub mod workspace;

pub use connection::{AgentEnd, Launch};
pub use markdown::cell_link;
pub use message::ChatMessage;
pub use protocol::{Capabilities, McpServer, PermissionKind, PermissionOption};
pub use session::{Agent, AgentError, AgentStart, Front};
pub use turn::{Display, Turn};
pub use workspace::Workspace;

//! Who acts on a kernel and a notebook, and what each actor did.

pub mod actor;
pub mod collaboration;
pub mod jupyter_server;
pub mod labels;
pub mod notification;
pub mod participants;
pub mod zone;

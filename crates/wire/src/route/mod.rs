//! Routing between the clients of one front end, their outstanding requests, and one kernel after another.
//!
//! [`Bridge`] is the entry point and does no I/O: it takes verified messages and the time, and returns
//! [`Action`]s. The caller loops: it calls one input method, then [`Bridge::poll_action`] until that returns
//! `None`, then waits for input or for [`Bridge::poll_timeout`].
//!
//! Its promises:
//! - A request is sent to at most one generation of the kernel. If that ends before it answers, the client gets an
//!   error; the request is not sent to the next one.
//! - Replies and `input_request` go to the client that asked, iopub to all.
//! - No request is sent to a kernel before messages on its iopub are known to arrive here.
//! - A message that passes through keeps its bytes, except `header.session` towards the clients, which has
//!   one value over all generations of the kernel.
//!
//! | part | owns |
//! |---|---|
//! | `clients` | the clients' connections, their sockets to the kernel, the messages that wait for either |
//! | `request` | the outstanding requests |
//! | `execution_queue` | the running cell, and which clients' cells wait for it |
//! | `connection` | the kernel and the proxy's own requests to it |
//! | `startup`, `stored_answers` | VS Code's start-up code; the answers to connecting clients while the kernel is busy |
//! | `editor_comm` | the comm of editors that speak with `nb live` |
//! | `resolution` | which notebook the traffic names |
//! | `dropped`, `missed` | messages that the kernel's iopub queue dropped; messages that a cut subscriber missed |
//! | `output` | the actions, and the messages that the bridge makes itself |
//! | `bridge` | connects the parts: what each input changes in them |

mod action;
mod attendance;
mod bridge;
mod cell_uri;
mod client_id;
mod clients;
mod comms;
mod connection;
mod dropped;
mod editor_comm;
mod execution;
mod execution_queue;
mod kernel;
mod missed;
mod output;
mod request;
mod resolution;
mod settings;
mod startup;
mod stored_answers;
mod synthetic;
mod timer;

pub use action::{Action, Note};
pub use bridge::Bridge;
pub use client_id::ClientId;
pub use clients::HeldMessages;
pub use editor_comm::{EDITOR_COMM, EditorMessage};
pub use execution::{ExecutionProgress, Phase};
pub use kernel::{Ending, Interrupt, Kernel};
pub use settings::{FrontEnd, Policies, Settings};
pub use timer::Now;

#[cfg(test)]
mod tests;

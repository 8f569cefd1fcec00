//! Who gets what: the clients of one front end, their outstanding requests, one kernel after another.
//!
//! [`Bridge`] is the whole of it and does no I/O: it takes verified messages and the time, and
//! gives back [`Action`]s. The caller's loop is: one input method, then
//! [`Bridge::poll_action`] until it returns `None`, then wait for input or [`Bridge::poll_timeout`].
//!
//! Its promises:
//! - A request reaches one generation of the kernel, or its client gets an error; never both.
//! - Replies and `input_request` go to the client that asked, iopub to all.
//! - Nothing is sent to a kernel before its iopub is known to arrive here.
//! - A message that passes keeps its bytes, but for `header.session` towards the clients, which stays one
//!   value over all generations of the kernel.
//!
//! | part | owns |
//! |---|---|
//! | `clients` | the clients' connections, their sockets to the kernel, the messages that wait for either |
//! | `request` | the requests without an answer |
//! | `execution_queue` | what runs on the kernel, and whose cells wait for it |
//! | `connection` | the kernel and the proxy's own requests to it |
//! | `startup`, `stored_answers` | VS Code's start-up code; the answers to connecting clients while the kernel cannot answer |
//! | `resolution` | which notebook the traffic names |
//! | `dropped`, `missed` | messages that the kernel's queue dropped; those that a subscriber that was cut did not get |
//! | `output` | the actions, and the messages that the bridge makes itself |
//! | `bridge` | the parts together: what each input means for them |

mod action;
mod attendance;
mod bridge;
mod cell_uri;
mod client_id;
mod clients;
mod comms;
mod connection;
mod dropped;
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
pub use execution::{Execution, Phase};
pub use kernel::{Ending, Interrupt, Kernel};
pub use settings::{FrontEnd, Policies, Settings};
pub use timer::Now;

#[cfg(test)]
mod tests;

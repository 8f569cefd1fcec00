//! Who gets what: the clients of one front end, their outstanding requests, the kernel's lives.
//!
//! [`Bridge`] is the whole of it and does no I/O: it takes verified messages and the time, and
//! gives back [`Action`]s. The caller's loop is: one `…` input method, then
//! [`Bridge::poll_action`] until it returns `None`, then wait for input or [`Bridge::poll_timeout`].
//!
//! What it promises:
//! - A request reaches one generation of the kernel, or its client is told that it failed; never both.
//! - Replies and `input_request` go to the client that asked, iopub to all.
//! - Nothing is sent to a kernel before its iopub is known to arrive here.
//! - What passes keeps its bytes, but for `header.session` towards the clients, which stays one
//!   value over all of the kernel's lives.

mod action;
mod batch;
mod binding;
mod bridge;
mod client;
mod comms;
mod connect;
mod control;
mod dropped;
mod endings;
mod kernel;
mod links;
mod missed;
mod naming;
mod request;
mod settings;
mod spread;
mod startup;
mod timer;
mod to_clients;
mod to_kernel;
mod turns;
mod voice;

pub use action::{Action, Execution, Note, Phase};
pub use bridge::Bridge;
pub use client::{ClientId, HeldMessages};
pub use kernel::{Ending, Interrupt, Kernel};
pub use settings::{FrontEnd, Policies, Settings};
pub use spread::Spread;
pub use timer::Now;

#[cfg(test)]
mod tests;

//! Jupyter servers on other machines, and their kernels as kernels of this machine.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`server`] | Jupyter servers elsewhere: records, secrets, the REST client, the websocket of a kernel, categories of failure | wire, project, kernel |
//! | [`remote`] | the bridge: presents a kernel on a server as one of this machine | wire, socket, kernel, project, server, task |
//!
//! Secrets are in headers only, and in no message or log. A request to a kernel is sent again only if it left no
//! trace there. Each failure says in a line what failed and what to do.

pub mod remote;
pub mod server;

use nb_kernels::{kernel, task};
use nb_project::project;
use nb_wire::{socket, wire};

//! Jupyter servers on other machines, and their kernels as kernels of this machine.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`server`] | Jupyter servers elsewhere: records, secrets, the REST client, the websocket of a kernel, categories of failure | wire, project, kernel |
//! | [`remote`] | kernels on servers found, started, restarted, ended; the bridge, which presents one as a kernel of this machine | wire, socket, notebook, kernel, hint, project, server, task, editing, lifecycle |
//!
//! Secrets are in headers only, and in no message or log. A request to a kernel is sent again only if it left no
//! trace there. Each failure says in a line what failed and what to do.

pub mod remote;
pub mod server;

use nb_core::{editing, lifecycle};
use nb_kernels::{kernel, task};
use nb_notebook::notebook;
use nb_project::{hint, project};
use nb_wire::{socket, wire};

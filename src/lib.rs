//! One live Jupyter kernel and one notebook, for people and AI agents at once.
//!
//! This package has what is left above the crates: the proxy and the command line. Without the feature `cli` it has the
//! proxy alone. Each crate has a map of its own; a crate depends only on crates above it in this list:
//!
//! | crate | modules |
//! |---|---|
//! | `nb_wire` | `wire`, `zmtp`, `route`, `socket` |
//! | `nb_notebook` | `notebook` |
//! | `nb_python` | `code`, `graph`, `witness` |
//! | `nb_project` | `hint`, `project` |
//! | `nb_kernels` | `kernel`, `client`, `task` |
//! | `nb_core` | `activity`, `editing`, `lifecycle`, `execution` |
//! | `nb_live` | `live`, `editors`, `pages` |
//! | `nb_remote` | `server`, `remote` |
//! | `nb_setup` | `setup` |
//! | `nb_api` | `stale`, `api`, `text` |
//! | `nb_agents` | `agent`, `assistant`, `chat` |
//! | `nb_servers` | `http`, `mcp`, `web` |
//!
//! The map, lowest first. A module imports only from those its row names; `tests/it/layers.rs`
//! keeps that true.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`demo`] | what `nb demo` plays | wire, notebook, hint, project, kernel, client, setup |
//! | [`proxy`] | the I/O shell round `route` | wire, route, socket, kernel, hint, project, activity, task, editing, lifecycle, execution |
//! | [`cli`] | the `nb` command line: arguments, commands, printing | agent, api, text, mcp, web, editors, pages, activity, task, editing, lifecycle, execution, setup, demo, hint, and types of wire, notebook, kernel, project, server |
//! | [`program`] | what both programs do before their own `main` | project, kernel, task, editing, lifecycle, execution |
//!
//! Adapters (`proxy`, `mcp`, `web`, `chat`, `cli`) never import each other, except that `nb mcp` and `nb web` start their servers.

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
pub mod demo;
pub mod program;
pub mod proxy;

pub use nb_core::{activity, editing, execution, lifecycle};
pub use nb_kernels::{client, kernel, task};
pub use nb_notebook::notebook;
pub use nb_project::{hint, project};
pub use nb_wire::{route, socket, wire, zmtp};

#[cfg(feature = "cli")]
pub use nb_agents::{agent, assistant, chat};
#[cfg(feature = "cli")]
pub use nb_api::{api, stale, text};
#[cfg(feature = "cli")]
pub use nb_live::{editors, live, pages};
#[cfg(feature = "cli")]
pub use nb_python::{code, graph, witness};
#[cfg(feature = "cli")]
pub use nb_remote::{remote, server};
#[cfg(feature = "cli")]
pub use nb_servers::{http, mcp, web};
#[cfg(feature = "cli")]
pub use nb_setup::setup;

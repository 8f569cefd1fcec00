//! The servers: tools for agents over the Model Context Protocol, and a page of the notebooks.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`http`] | what servers over HTTP have in common: addresses, secrets, limits | socket, api |
//! | [`mcp`] | the commands as tools for agents, over the Model Context Protocol | code, api, text, http, activity, editing, hint, and types of kernel, notebook, project |
//! | [`web`] | a page of the notebooks, with REST, a websocket and an assistant; the same kernels for Jupyter's clients by URL | wire, socket, kernel, project, server, agent, assistant, api, http, and types of notebook |
//!
//! Each request is checked for its origin, its host and its secret before anything is done for it. Each body, queue and number
//! of connections has a limit.

pub mod http;
pub mod mcp;
pub mod web;

use nb_agents::{agent, assistant};
use nb_api::{api, text};
use nb_core::{activity, editing};
use nb_kernels::kernel;
use nb_notebook::notebook;
use nb_project::{hint, project};
use nb_python::code;
use nb_remote::server;
use nb_wire::{socket, wire};

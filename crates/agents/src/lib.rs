//! Conversations with coding agents and with models.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`agent`] | conversations with coding agents: the client's side of the Agent Client Protocol | notebook, kernel, server, project, activity, api |
//! | [`assistant`] | a model that works in notebooks: its provider's interface, and the tools of `nb mcp` | code, notebook, kernel, server, project, agent |
//! | [`chat`] | a kernel whose cells are messages to agents | wire, socket, kernel, project, setup, agent, api, and functions of notebook |
//!
//! What an agent or a model sends is untrusted: it is bounded, and shown as text. An agent gets no permission that
//! the user has not given. A provider's key stands in one header, and in no message or log.

pub mod agent;
pub mod assistant;
pub mod chat;

use nb_api::api;
use nb_core::activity;
use nb_kernels::kernel;
use nb_notebook::notebook;
use nb_project::project;
use nb_python::code;
use nb_remote::server;
use nb_setup::setup;
use nb_wire::{socket, wire};

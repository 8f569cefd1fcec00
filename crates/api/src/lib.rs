//! The use cases, one function a command, and their answers as plain text.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`stale`] | which cells of a notebook are out of date: the graph of its code, and what its kernel has run | notebook, graph, witness, project, task, editing, execution |
//! | [`api`] | the use cases, one function a command | wire, notebook, graph, witness, hint, project, kernel, client, activity, task, editing, lifecycle, execution, setup, stale, server, remote |
//! | [`text`] | answers and problems as plain text | api, editing, execution, lifecycle, hint, and types of activity, kernel, notebook, project |
//!
//! A request is plain data and so is its answer, which each front door shows in its own way. A failure says what failed, on
//! what, why, and what to do.

pub mod api;
pub mod stale;
pub mod text;

use nb_core::{activity, editing, execution, lifecycle};
use nb_kernels::{kernel, task};
use nb_notebook::notebook;
use nb_project::{hint, project};
use nb_python::{graph, witness};
use nb_remote::{remote, server};
use nb_setup::setup;
use nb_wire::wire;

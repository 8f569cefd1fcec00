//! Notebooks edited and run: who acts, edits, the life cycles of kernels, and executions.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`activity`] | who acts, who else is there, what they did since somebody last looked | notebook, hint, project, kernel |
//! | [`editing`] | a notebook read, edited, undone, restored | wire, notebook, hint, project, kernel, activity, task |
//! | [`lifecycle`] | a kernel opened, shared, restarted, ended; which notebook a command means | wire, notebook, hint, project, kernel, client, activity, task, editing |
//! | [`execution`] | cells and code run, recorded, followed, replayed | wire, notebook, hint, project, kernel, client, activity, task, editing, lifecycle |
//!
//! An edit that was written can be undone. A cell that was sent to a kernel is recorded to its end, also when the command
//! that sent it ends first. Nothing here prints, or knows which front door a request came through.

pub mod activity;
pub mod editing;
pub mod execution;
pub mod lifecycle;

use nb_kernels::{client, kernel, task};
use nb_notebook::notebook;
use nb_project::{hint, project};
use nb_wire::wire;

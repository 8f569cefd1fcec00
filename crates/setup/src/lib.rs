//! What is set up on a machine.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`setup`] | kernelspecs, the extension for VS Code, agents' files, the checks of `nb doctor` | notebook, hint, project, kernel, server, activity, task, editing, lifecycle |
//!
//! Files of other programs are changed only where the user asked for it, and a change is shown before. `vscode` beside this
//! file is not a module: it holds the extension for VS Code, in JavaScript, which `setup` packs and installs.

pub mod setup;

use nb_core::{activity, editing, lifecycle};
use nb_kernels::{kernel, task};
use nb_notebook::notebook;
use nb_project::{hint, project};
use nb_remote::server;

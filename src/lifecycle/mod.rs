//! The life cycle of kernels: opening one for a notebook, sharing it, restarting and ending it, and the
//! kernelspecs through which front ends find it.

mod action_event;
pub mod agent_setup;
pub mod attach;
pub mod available;
pub mod consent;
pub mod create;
pub mod death;
pub mod doctor;
mod end_kernel;
pub mod everywhere;
pub mod gc;
pub mod idle;
pub mod install;
pub mod interrupt;
pub mod liveness;
pub mod move_notebook;
pub mod named_files;
pub mod open;
pub mod open_error;
pub mod program;
mod ready;
pub mod reconnect;
pub mod restart;
pub mod sandbox;
pub mod serve;
pub mod serve_chat;
pub mod server_connection;
pub mod server_kernel;
pub mod share;
pub mod shutdown;
pub(super) mod start;
pub mod status;
pub mod target;
pub mod trust_again;
pub mod vscode_extension;
pub mod vscode_package;

//! Kernels as processes: detached from the process that starts them, supervised, signalled, limited in
//! memory.

pub mod command_tree;
pub mod connection;
pub mod detach;
mod identity;
pub mod launch;
pub mod limits;
pub mod plan;
mod platform;
mod starter;
mod supervisor;

pub use identity::{Process, Signal, SignalError, own_path, own_program};
pub use starter::Starter;

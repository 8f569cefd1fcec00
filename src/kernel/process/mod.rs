//! Kernels as processes: started as nobody's descendant, supervised, signalled, bounded.

pub mod connection;
pub mod detach;
mod identity;
pub mod launch;
pub mod limits;
pub mod plan;
mod platform;
mod supervisor;

pub use identity::{Process, Signal, SignalError, own_program};

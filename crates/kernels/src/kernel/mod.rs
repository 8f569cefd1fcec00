//! Kernels: their specs, their environments, their processes, and what confines them.
//!
//! Nothing here communicates with a kernel; code that needs a client (readiness, restart) is in `lifecycle`.

pub mod confine;
pub mod environment;
mod foreign_file;
pub mod process;
pub mod programs;
pub mod spec;
pub mod variables;
pub mod witness;

//! Kernels as processes: specs, environments, launch, identity, signals.
//!
//! Nothing here speaks to a kernel; whatever needs a client (readiness, restart) is in `ops`.

pub mod allowed;
mod bounded;
pub mod choose;
pub mod connection;
pub mod container;
pub mod detach;
pub mod environment;
pub mod keeper;
pub mod launch;
pub mod limits;
pub mod offer;
pub mod paths;
mod platform;
pub mod process;
pub mod python;
pub mod quirks;
pub mod sandbox;
pub mod spec;
pub mod tools;
pub mod trust;

//! Kernels as processes: specs, environments, launch, identity, signals.
//!
//! Nothing here speaks to a kernel; whatever needs a client (readiness, restart) is in `ops`.

pub mod detach;
mod platform;
pub mod process;

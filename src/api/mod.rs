//! The use cases, one function a command: what every adapter calls.

pub mod log;

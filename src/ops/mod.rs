//! The use cases, each once. Every adapter calls these.

pub mod demo;
pub mod fold;
pub mod run;

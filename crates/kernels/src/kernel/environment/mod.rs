//! Environments: folders with their own Python, of every manager. Finds them, reads or asks what they have,
//! activates them, and installs ipykernel into them.

pub mod activate;
pub mod conda;
pub mod folder;
pub mod install;
pub mod probe;
pub mod python;
pub mod search;
pub mod tools;
pub mod trust;

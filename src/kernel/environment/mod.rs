//! Environments: folders with a Python of their own, whoever made them. Finding them, asking them
//! what they have, activating them, and putting ipykernel into them.

pub mod activate;
pub mod conda;
pub mod folder;
pub mod install;
mod pixi;
mod poetry;
pub mod probe;
pub mod python;
pub mod search;
pub mod tools;
pub mod trust;

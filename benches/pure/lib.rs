//! The pure parts of nb, and messages on their way through these parts.

pub use nb_wire::{route, wire, zmtp};

pub mod traffic;

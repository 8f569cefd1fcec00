//! Python code as a structure: what it does, as far as its text shows.

pub mod effects;
mod parse;
pub mod risks;

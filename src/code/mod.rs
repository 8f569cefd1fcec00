//! Python code as a structure: what it does, as far as its text shows.

pub mod risks;

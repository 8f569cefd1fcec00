//! Properties of every notebook, edit and merge, and small notebooks for tests.

pub mod fixtures;
#[cfg(test)]
pub(in crate::notebook) mod laws;

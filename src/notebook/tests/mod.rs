//! Properties of every notebook, edit and merge, and small notebooks for tests.

pub(crate) mod fixtures;
pub(in crate::notebook) mod laws;

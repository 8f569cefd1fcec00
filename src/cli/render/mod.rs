//! Answers and problems as people read them.

pub(crate) mod columns;
pub(crate) mod conflict;
pub(crate) mod harmless;
pub(crate) mod hints;
pub(crate) mod print;
pub(crate) mod problem;
pub(crate) mod progress;
pub(crate) mod replay;
pub(crate) mod watcher;

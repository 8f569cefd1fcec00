//! Reading and editing a notebook's file, which people and other agents save too.
//!
//! | module | does |
//! |---|---|
//! | `notebook_file` | finds a notebook's file and reads it |
//! | `edit`, `format`, `rename` | change cells, style, the kernelspec that is named |
//! | `transaction` | writes a notebook: nothing else does |
//! | `history` | records what cells were, restores them, undoes operations |
//! | `seen`, `unsaved` | keep an edit from writing over what others wrote |
//! | `write_policy` | keeps an edit from writing while a front end is about to save |

mod content;
pub mod earlier_notebook;
pub mod edit;
pub mod export;
mod file_stamp;
pub mod format;
pub mod gather;
pub mod git;
pub mod history;
pub mod language;
pub mod notebook_file;
pub mod rename;
pub mod running;
pub mod seen;
pub mod transaction;
pub mod unsaved;
pub mod view;
pub mod write_policy;

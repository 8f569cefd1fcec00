//! Notebook files, which people and other programs save too: reading, editing, undoing, restoring.
//!
//! | module | does |
//! |---|---|
//! | `notebook_file` | finds a notebook's file and reads it |
//! | `edit`, `format`, `named_kernelspec`, `language` | change cells, style, the notebook's metadata |
//! | `transaction` | writes a notebook; no other code does |
//! | `history` | records what cells were, restores them, undoes operations |
//! | `seen`, `unseen`, `unsaved` | keep an edit from overwriting what others wrote |
//! | `conflict_summary` | what a refused edit shows of others' changes |
//! | `editor_back_off` | makes an edit wait while a front end is about to save |

pub mod conflict_summary;
pub mod content;
pub mod earlier_notebook;
pub mod edit;
pub mod editor_back_off;
pub mod export;
mod file_stamp;
pub mod format;
pub mod gather;
pub mod git;
pub mod history;
pub mod language;
pub mod named_kernelspec;
pub mod notebook_file;
pub mod running;
pub mod seen;
pub mod transaction;
pub mod unsaved;
pub mod unseen;
pub mod view;

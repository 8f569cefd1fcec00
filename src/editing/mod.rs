//! Reading and editing a notebook's file, which people and other agents save too.
//!
//! `page` finds and reads it, `edit` changes cells, `transaction` is the only way that anything is
//! written, `history` keeps what was, `seen` and `unsaved` keep one from writing over what others
//! wrote, `manners` over what a front end is about to save.

mod content;
pub mod earlier;
pub mod edit;
pub mod export;
pub mod format;
pub mod gather;
pub mod git;
pub mod history;
pub mod language;
pub mod manners;
pub mod page;
pub mod rename;
pub mod running;
pub mod seen;
mod stamp;
pub mod transaction;
pub mod unsaved;
pub mod view;

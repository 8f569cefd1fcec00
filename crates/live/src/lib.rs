//! A notebook that is open in an editor, kept in step with its file.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`live`] | the messages between an editor and `nb`, and what both know about one document; no I/O | notebook, project, activity, execution |
//! | [`editors`] | what `nb live` does: an editor's lines read and answered, its files followed, its unsaved texts recorded | notebook, project, kernel, activity, editing, lifecycle, execution, live |
//! | [`pages`] | whether a page is connected to a kernel of a Jupyter server | kernel, activity |
//!
//! An editor holds no merge. `nb` knows what an editor last had in common with the file, what it has now and what the file
//! has, merges these by cells and by lines, and sends requests that name the text that they replace. The editor does what a
//! request says if its cell still has that text, and refuses otherwise; then `nb` merges again. So a text that a person
//! types is never replaced unseen, and what others wrote reaches the editor without a reload.

pub mod editors;
pub mod live;
pub mod pages;

use nb_core::{activity, editing, execution, lifecycle};
use nb_kernels::kernel;
use nb_notebook::notebook;
use nb_project::project;

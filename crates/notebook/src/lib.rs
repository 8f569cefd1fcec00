//! Jupyter notebooks as data: a lossless document, edits, merges and undo.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`notebook`] | `.ipynb` files as data: a lossless document, edits, three-way merge, differences, folding of outputs. Pure | – |
//!
//! What an edit does not touch keeps its bytes. A merge loses nothing that either side wrote without a conflict that says
//! so. Nothing here reads or writes files, or knows of kernels.

pub mod notebook;

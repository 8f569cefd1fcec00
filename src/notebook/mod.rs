//! `.ipynb` files as data.
//!
//! What is here is what opening a notebook needs: the text of a new one, and which kernel an
//! existing one names.

mod metadata;
mod new;

pub use metadata::{Named, NotANotebook};
pub use new::new_notebook;

//! `.ipynb` files as data.
//!
//! What is here is what opening a notebook needs: the text of a new one, and which kernel an
//! existing one names or is to name.

mod kernelspec;
mod metadata;
mod new;

pub use kernelspec::{Kernelspec, with_kernelspec};
pub use metadata::{Named, NotANotebook};
pub use new::new_notebook;

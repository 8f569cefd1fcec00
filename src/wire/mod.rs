//! Jupyter messages as bytes.

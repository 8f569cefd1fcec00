//! The `nb` command line.

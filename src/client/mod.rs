//! A client of a running kernel, over the `zeromq` crate.

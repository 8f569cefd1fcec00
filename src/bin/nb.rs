//! `nb`: the command line.
fn main() {}

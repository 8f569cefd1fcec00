//! `nb-proxy`: what a front end launches as if it were a kernel.
fn main() {}

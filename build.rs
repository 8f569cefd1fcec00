//! How the executables are linked.
//!
//! `nb` starts anew for every command. In an executable that may lie anywhere in memory the loader
//! writes 14,000 addresses at each start, which copies a hundred pages: a fifth of what a short
//! command takes, before it begins. One with a place of its own has them in the file. The stack,
//! the heap and the libraries lie at random places as before.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|it| it == value);
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    // Elsewhere such executables are not allowed, or begin in another way.
    let can = is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && !features.split(',').any(|feature| feature == "crt-static");
    if can {
        println!("cargo::rustc-link-arg-bin=nb=-no-pie");
    }
}

//! How the executables are linked.
//!
//! `nb` starts anew for every command. In an executable that may lie anywhere in memory the loader
//! writes 14,000 addresses at each start, which copies a hundred pages: a fifth of what a short
//! command takes, before it begins. One with a place of its own has them in the file. The stack,
//! the heap and the libraries lie at random places as before.
//!
//! `nb-proxy` lives as long as an editor has a notebook open, once for each. What it runs, a tenth of
//! the program, the compiler strews all over it, and Linux brings in 64 KB round each place that is
//! come to: 5 MB of memory for each proxy at rest. `src/bin/serving.ld` has the linker lay it side
//! by side, in `nb` too, of which `nb serve` installs a copy as `nb-proxy`. The names in it are old
//! names where the program has changed since: then that function lies elsewhere, as without it.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ORDER}");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|it| it == value);
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    // Elsewhere such executables are not allowed, or begin in another way.
    let can = is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && !features.split(',').any(|feature| feature == "crt-static");
    if !can {
        return;
    }
    println!("cargo::rustc-link-arg-bin=nb=-no-pie");
    if is("PROFILE", "release")
        && let Some(arguments) = order()
    {
        for argument in arguments {
            println!("cargo::rustc-link-arg-bins={argument}");
        }
    }
}

const ORDER: &str = "src/bin/serving.ld";

/// Returns what tells the linker in which order functions lie, where it understands that: GNU's and
/// LLVM's do, mold and gold do not.
fn order() -> Option<[String; 2]> {
    let order = Path::new(&env::var_os("CARGO_MANIFEST_DIR")?).join(ORDER);
    let arguments = ["-T".to_owned(), order.to_str()?.to_owned()];
    let folder = env::var_os("OUT_DIR")?;
    let source = Path::new(&folder).join("linked.rs");
    std::fs::write(&source, "fn main() {}\n").ok()?;
    let mut rustc = Command::new(env::var_os("RUSTC")?);
    rustc.arg(&source).arg("--out-dir").arg(&folder);
    rustc.arg("--target").arg(env::var_os("TARGET")?);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={}", linker.to_str()?));
    }
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    for argument in &arguments {
        rustc.arg("-C").arg(format!("link-arg={argument}"));
    }
    let linked = rustc.output().ok()?;
    linked.status.success().then_some(arguments)
}

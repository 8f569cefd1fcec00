//! What some kernels need and their kernelspecs do not say, as tried with each of them.

use std::path::Path;
use std::time::Duration;

use crate::project::{RealSpec, Transport};

/// Returns the transport of a kernel that knows only one.
///
/// deno (2.9) takes the `ip` of its connection file for a host's name and ends.
pub fn transport(spec: &RealSpec) -> Option<Transport> {
    is_deno(&spec.argv).then_some(Transport::Tcp)
}

/// Returns how long a kernel that may tell of outputs after it is idle must have been silent to be
/// through with a cell.
///
/// deno (2.9) publishes values and prints from the thread that runs the code, and replies and is idle
/// from another: about every second value comes after idle, by a few milliseconds.
pub fn silence_after_idle(spec: &RealSpec) -> Option<Duration> {
    is_deno(&spec.argv).then_some(Duration::from_millis(100))
}

/// Says whether SIGINT, by which Jupyter interrupts a kernel whose spec does not say how, would
/// end the kernel: deno (2.9), which heeds the message, and xeus-python (0.19), which only answers
/// it: its cell runs on, and its variables are kept.
pub(super) fn dies_of_interrupts(argv: &[&str]) -> bool {
    is_deno(argv) || argv.contains(&"xpython_launcher")
}

fn is_deno(argv: &[impl AsRef<str>]) -> bool {
    let mut words = argv.iter().map(AsRef::as_ref);
    let program = words.next().map(Path::new).and_then(Path::file_stem);
    program.is_some_and(|stem| stem == "deno") && words.any(|word| word == "jupyter")
}

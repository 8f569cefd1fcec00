//! Behaviour of single kernels that their kernelspecs do not tell, as tried with each of them.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use crate::project::{RealSpec, Transport};

/// Returns the transport of a kernel that knows only one.
///
/// deno (2.9) takes the `ip` of its connection file for a host's name and ends; evcxr (0.22) ends as
/// its ZMQ library has no Unix sockets.
pub fn transport(spec: &RealSpec) -> Option<Transport> {
    let is_evcxr = program(&spec.argv) == Some("evcxr_jupyter".as_ref());
    (is_evcxr || is_deno(&spec.argv)).then_some(Transport::Tcp)
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
    let is_kernel = || argv.iter().any(|word| word.as_ref() == "jupyter");
    program(argv) == Some("deno".as_ref()) && is_kernel()
}

/// Returns a kernel's program without its folder and its ending.
fn program(argv: &[impl AsRef<str>]) -> Option<&OsStr> {
    Path::new(argv.first()?.as_ref()).file_stem()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_kernels_know_tcp_alone() {
        for (argv, only) in [
            (&["/opt/bin/deno", "jupyter", "--kernel"][..], true),
            (&["deno", "run"], false),
            (
                &["/home/a/.cargo/bin/evcxr_jupyter", "--control_file"],
                true,
            ),
            (&["python", "-m", "ipykernel_launcher"], false),
            (&[], false),
        ] {
            let spec = serde_json::json!({ "name": "k", "argv": argv });
            let spec: RealSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(transport(&spec).is_some(), only, "{argv:?}");
        }
    }
}

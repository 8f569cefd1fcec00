//! Behaviour of single kernels that is missing in their kernelspecs, found by trying each kernel.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use crate::project::RealSpec;
use crate::wire::Transport;

/// Returns the transport of a kernel that supports only one.
///
/// deno (2.9) takes the `ip` in its connection file for a host name and exits; evcxr (0.22) exits because its
/// ZMQ library does not support Unix sockets. tslab (1.0) and kernels on the JVM (almond, IJava, Kotlin's, BeakerX)
/// listen at other paths, or nowhere.
pub fn transport(spec: &RealSpec) -> Option<Transport> {
    let is = |name: &str| program(&spec.argv) == Some(name.as_ref());
    let is_kotlin = spec.argv.iter().any(|word| word == "run_kotlin_kernel");
    let only_tcp = ["evcxr_jupyter", "tslab", "java"].into_iter().any(is);
    (only_tcp || is_kotlin || is_deno(&spec.argv)).then_some(Transport::Tcp)
}

/// Returns whether a kernel is known to bind the Unix sockets that its connection file names, so that only a slow start
/// keeps it from them.
pub fn binds_unix_sockets(spec: &RealSpec) -> bool {
    spec.argv.iter().any(|word| word == "ipykernel_launcher")
}

/// Returns how long a kernel that may publish outputs after idle must be silent before a cell counts as
/// ended.
///
/// deno (2.9) publishes values and prints from the thread that runs the code, but sends replies and idle from
/// another: about every second value comes after idle, by a few milliseconds.
pub fn silence_after_idle(spec: &RealSpec) -> Option<Duration> {
    is_deno(&spec.argv).then_some(Duration::from_millis(100))
}

/// Returns whether SIGINT, by which Jupyter interrupts a kernel whose spec does not say how, would end the
/// kernel: deno (2.9), which obeys the message, and xeus-python (0.19), which answers the message without
/// effect: its cell runs on, but its variables are kept.
pub(super) fn dies_of_interrupts(argv: &[String]) -> bool {
    is_deno(argv) || argv.iter().any(|word| word == "xpython_launcher")
}

fn is_deno(argv: &[String]) -> bool {
    let is_kernel = || argv.iter().any(|word| word == "jupyter");
    program(argv) == Some("deno".as_ref()) && is_kernel()
}

/// Returns a kernel's program without its folder and its suffix.
fn program(argv: &[String]) -> Option<&OsStr> {
    Path::new(argv.first()?).file_stem()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_kernels_know_tcp_alone() {
        for (argv, only) in [
            (&["/opt/bin/deno", "jupyter", "--kernel"][..], true),
            (&["deno", "run"], false),
            (&["/usr/bin/tslab", "kernel", "--js"], true),
            (&["java", "-jar", "ijava.jar"], true),
            (&["python", "-m", "run_kotlin_kernel"], true),
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

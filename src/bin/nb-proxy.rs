//! `nb-proxy`: what a front end launches as if it were a kernel.

use std::process::ExitCode;

use nb::lifecycle::server_kernel::NoServers;

fn main() -> ExitCode {
    // Kernels on servers are left to `nb`, which is another program: this one stays small.
    let no_bridge = |_: &_, _: &_, _: &_| ExitCode::FAILURE;
    // Jobs that grow are recorded by `nb`.
    let no_next = |_: &_| Ok(None);
    nb::program::run(&NoServers, no_bridge, no_next, || {
        nb::proxy::main(std::env::args_os().skip(1))
    })
}

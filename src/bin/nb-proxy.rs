//! `nb-proxy`: what a front end launches as if it were a kernel.

use std::process::ExitCode;

fn main() -> ExitCode {
    nb::program::run(|| nb::proxy::main(std::env::args_os().skip(1)))
}

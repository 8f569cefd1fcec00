//! The I/O shell round `route`: what a front end launches as if it were a kernel.
//!
//! Bind first, connect second: the front end's five ports are bound before the kernel is looked
//! for, so that a front end which dials at once finds somebody. Then everything runs on one
//! thread: sockets hand verified messages to [`crate::route::Bridge`] and carry out what it says.
//!
//! Who decides what: `args` what was asked for, `target` which kernel is meant and what is known
//! of it, `front` the front end's sockets, `links` the sockets to the kernel, `shell` how these
//! meet, `stop` signals and orphans, `log` the lines in `proxy.log`.

mod args;
mod bound;
mod faults;
mod front;
mod journal;
mod life;
mod links;
mod log;
mod origin;
mod presence;
mod relaunch;
mod shell;
mod start;
mod stop;
mod target;
mod watch;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use args::Wanted;

/// Runs `nb-proxy` with its arguments, the program's name left out.
///
/// Ends when the front end says so (SIGTERM, `shutdown_request`), never because a kernel ends.
/// What keeps it from starting is told in one or two lines on stderr, since that is what VS Code
/// and JupyterLab show to the person who chose the kernel.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let launch = match Wanted::parse(args) {
        Ok(Wanted::Serve(launch)) => launch,
        Ok(Wanted::Print(text)) => {
            // A closed pipe is a quiet end.
            let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("nb-proxy: {error}");
            return ExitCode::from(2);
        }
    };
    let signals = match stop::Signals::register() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("nb-proxy: cannot handle signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("nb-proxy: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let local = tokio::task::LocalSet::new();
    match local.block_on(&runtime, shell::serve(launch, signals)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nb-proxy: {error:#}");
            ExitCode::FAILURE
        }
    }
}

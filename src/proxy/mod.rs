//! The I/O shell round `route`: the program that a front end launches as if it were a kernel.
//!
//! It binds the front end's five ports before it resolves the kernel, so that a front end which dials at once
//! gets an answer. Then everything runs on one thread: sockets hand verified messages to
//! [`crate::route::Bridge`], and the shell carries out its actions.
//!
//! Either the launch names the notebook (`args`, `front_end`), or only the front end's traffic does; in that
//! case requests wait until the notebook is resolved.
//!
//! | file | content |
//! |---|---|
//! | `args`, `front_end` | the launch; front-end detection |
//! | `target`, `snapshot` | which kernel the launch means; its state in `state.json`, which `state_reads` and `watch` read |
//! | `attachment`, `messages` | the session that this process is attached to; messages to users about its kernel |
//! | `vscode_restart` | whether a launch is VS Code's Restart |
//! | `front`, `links` | the front end's sockets, the sockets to the kernel; `faults` in peers' messages |
//! | `shell` | owns all parts and passes messages between them |
//! | `alarm`, `stop`, `exit`, `panics` | the loop's timer; signals and orphans; why the process ends; panics |
//! | `log`, `journal`, `presence` | files that other processes read; `failure_log` logs repeated failures to write them |
//! | `counters` | counts of messages and connections |
//! | `storage` | file work, on other threads |
//! | `stored_outputs` | outputs of cells, for a recorder that takes over when the front end disconnects |

mod alarm;
mod args;
mod attachment;
mod counters;
mod exit;
mod failure_log;
mod faults;
mod front;
mod front_end;
mod heartbeats;
mod journal;
mod links;
mod log;
mod messages;
mod panics;
mod presence;
mod shell;
mod snapshot;
mod state_reads;
mod stop;
mod storage;
mod stored_outputs;
mod target;
#[cfg(test)]
mod tests;
mod vscode_restart;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
pub use args::HELP;
use args::{Invocation, Launch};

use crate::kernel::process::limits::raise_descriptors;
use crate::project::Lock;

/// How long to wait for a lock that others hold only briefly; no message passes during the wait.
const LOCK_TIMEOUT: Duration = Duration::from_millis(300);

/// Runs `nb-proxy` with its arguments, without the program's name.
///
/// Ends when the front end asks for it (SIGTERM, `shutdown_request`). It ends with its kernel only under a
/// front end that runs cells without a person and watches this process. An error at the start is printed as
/// one or two lines on stderr, which VS Code and JupyterLab show to the person who chose the kernel.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let launch = match Invocation::parse(args) {
        Ok(Invocation::Serve(launch)) => launch,
        Ok(Invocation::Print(text)) => {
            // A closed pipe is a quiet end.
            let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("nb-proxy: {error}");
            return ExitCode::from(2);
        }
    };
    match serve(launch) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nb-proxy: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(launch: Launch) -> anyhow::Result<()> {
    // The loop has one thread: a lock that another process holds for long must not block it.
    Lock::set_timeout(LOCK_TIMEOUT);
    raise_descriptors();
    let signals = stop::Signals::register().context("cannot handle signals")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .context("cannot start")?;
    let result = runtime.block_on(shell::serve(launch, signals));
    // Does not wait for a disk that does not answer.
    runtime.shutdown_background();
    log::close();
    result
}

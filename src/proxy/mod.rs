//! The I/O shell round `route`: what a front end launches as if it were a kernel.
//!
//! Bind first, connect second: the front end's five ports are bound before the kernel is looked
//! for, so that a front end which dials at once finds somebody. Then everything runs on one
//! thread: sockets hand verified messages to [`crate::route::Bridge`] and carry out what it says.
//!
//! Which kernel that is, a launch says (`args`, `front_end`), or only the front end's traffic does:
//! then everything waits until the notebook is resolved.
//!
//! | file | idea |
//! |---|---|
//! | `args`, `front_end` | what was asked for; front-end detection |
//! | `target` | which kernel is meant and what `state.json` says of it |
//! | `attachment` | notebook resolution, and the session that this process is attached to |
//! | `follow` | following the kernel; `messages` what people read of it; `watch` when to look |
//! | `start`, `restart`, `vscode_restart` | kernels started and restarted; which launch is VS Code's Restart |
//! | `front`, `links` | the front end's sockets, those to the kernel; `faults` of peers |
//! | `shell` | how these meet: actions, the loop and its `alarm`; `stop` signals and orphans; `exit` why it ends; `panics` |
//! | `log`, `journal`, `presence` | what is left for others to read; `trouble` in doing so |
//! | `counters`, `report` | what passes, counted and reported |
//! | `storage` | file work, on other threads |
//! | `stored_outputs` | outputs of cells, for a recorder to go on with when the front end goes |

mod alarm;
mod args;
mod attachment;
mod counters;
mod exit;
mod faults;
mod follow;
mod front;
mod front_end;
mod journal;
mod links;
mod log;
mod messages;
mod panics;
mod presence;
mod report;
mod restart;
mod shell;
mod start;
mod stop;
mod storage;
mod stored_outputs;
mod target;
mod trouble;
mod vscode_restart;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use args::Wanted;

use crate::kernel::process::limits::raise_descriptors;
use crate::project::Lock;

/// How long a lock is waited for that others hold for moments only: meanwhile no message passes.
const LOCKS_WITHIN: Duration = Duration::from_millis(300);

/// Runs `nb-proxy` with its arguments, the program's name left out.
///
/// Ends when the front end says so (SIGTERM, `shutdown_request`), and with its kernel only under a
/// front end that runs cells without a person and watches this process.
/// What keeps it from starting is printed as one or two lines on stderr, since that is what VS Code
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
    // Everything runs on one thread: a lock that its holder keeps must not stop it.
    Lock::set_patience(LOCKS_WITHIN);
    raise_descriptors();
    let signals = match stop::Signals::register() {
        Ok(signals) => signals,
        Err(error) => {
            eprintln!("nb-proxy: cannot handle signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("nb-proxy: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let served = runtime.block_on(shell::serve(launch, signals));
    // Without waiting for a disk that does not answer.
    runtime.shutdown_background();
    log::close();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nb-proxy: {error:#}");
            ExitCode::FAILURE
        }
    }
}

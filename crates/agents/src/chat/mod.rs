//! A kernel whose cells are messages to coding agents.
//!
//! A front end starts it from the kernelspec that `nb serve --chat` installs. Requests are answered as they
//! arrive; cells wait for each other in a queue, also while an agent works.
//!
//! | file | content |
//! |---|---|
//! | `kernel` | the requests, the queue of cells |
//! | `channels` | the sockets, and what is sent over them |
//! | `front` | one cell's outputs and questions |
//! | `cell` | a cell as commands and a message. Pure |
//! | `conversation` | the agents of the chat, and what commands do |
//! | `complete` | completions. Pure |

mod cell;
mod channels;
mod complete;
mod conversation;
mod front;
mod kernel;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use zeroize::Zeroizing;

use crate::wire::ConnectionInfo;

pub use crate::setup::program::CHAT_WORD as WORD;

/// Serves a front end with the arguments after [`WORD`]: `-f CONNECTION_FILE`.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match serve(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nb {WORD}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(args: impl IntoIterator<Item = OsString>) -> anyhow::Result<()> {
    use anyhow::Context;
    let mut args = args.into_iter();
    let file = args.find(|arg| arg == "-f").and_then(|_| args.next());
    let file = PathBuf::from(file.context(
        "no connection file: front ends start this from the kernelspec that nb serve --chat installs",
    )?);
    let context = || format!("cannot use the connection file {}", file.display());
    let bytes = Zeroizing::new(std::fs::read(&file).with_context(context)?);
    let connection = ConnectionInfo::parse(&bytes).with_context(context)?;
    crate::kernel::process::limits::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .context("cannot start")?;
    let result = runtime.block_on(kernel::serve(&connection, &file));
    runtime.shutdown_background();
    result
}

//! Ending a kernel in order: it is asked, its cell is interrupted, then its process group is signalled.

use std::time::Duration;

use super::start::Held;
use crate::client::Client;
use crate::kernel::process::connection;
use crate::kernel::process::{Process, Signal};
use crate::project::{InterruptMode, Session};

/// How long a kernel may take to answer that it will end.
const REPLY: Duration = Duration::from_secs(1);

/// How long a kernel that runs nothing needs to end.
const PROMPT: Duration = Duration::from_millis(300);

/// How long a kernel that was asked may take to end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// How long a kernel that is ending may take to answer anything else.
const INTERRUPT: Duration = Duration::from_millis(500);

/// Ends the kernel of a session whose lock is held. `restart` is told to the kernel.
pub(super) async fn end_kernel(
    held: &Held<'_>,
    session: &Session,
    process: &Process,
    restart: bool,
) {
    let asked = ask(session, process, restart).await;
    if asked && !process.ended_within(PROMPT).await {
        interrupt_cell(session, process).await;
    }
    held.end(process, if asked { GRACE } else { Duration::ZERO })
        .await;
}

/// Asks a kernel to end; says whether it was reached.
async fn ask(session: &Session, process: &Process, restart: bool) -> bool {
    let Ok(info) = connection::read(&session.connection_file) else {
        return false;
    };
    let asked = async {
        let mut client = Client::connect(&info, "nb").await.ok()?;
        client.shutdown(restart, REPLY).await.ok()?;
        Some(())
    };
    tokio::select! {
        asked = tokio::time::timeout(REPLY * 2, asked) => matches!(asked, Ok(Some(()))),
        () = process.death() => true,
    }
}

/// Interrupts the cell that keeps a kernel from ending: what the cell wants done at its end is
/// done. JupyterLab's server interrupts before it ends a kernel for the same reason.
async fn interrupt_cell(session: &Session, process: &Process) {
    if session.interrupt_mode() == InterruptMode::Signal {
        let _ = process.signal_group(Signal::INT);
        return;
    }
    let Ok(info) = connection::read(&session.connection_file) else {
        return;
    };
    let asked = async {
        let mut client = Client::connect(&info, "nb").await.ok()?;
        client.interrupt(INTERRUPT).await.ok()
    };
    // One that does not listen any more is ended by signals next.
    let _ = tokio::time::timeout(INTERRUPT, asked).await;
}

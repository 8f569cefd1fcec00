//! Ends a kernel step by step: asks it to shut down, interrupts its cell, then signals its process
//! group.

use std::time::Duration;

use super::start::LockedSession;
use crate::client::Client;
use crate::kernel::process::connection;
use crate::kernel::process::{Process, Signal};
use crate::project::{InterruptMode, Session};

/// How long a kernel may take to reply to a shutdown request.
const REPLY: Duration = Duration::from_secs(1);

/// How long an idle kernel needs to end.
const PROMPT: Duration = Duration::from_millis(300);

/// How long a kernel that was asked may take to end.
const GRACE: Duration = Duration::from_secs(3);

/// How long a kernel that is ending may take to reply to an interrupt request.
const INTERRUPT: Duration = Duration::from_millis(500);

/// Ends the kernel of a session whose lock is held. `restart` is passed on to the kernel.
pub(super) async fn end_kernel(
    locked: &LockedSession<'_>,
    session: &Session,
    process: &Process,
    restart: bool,
) {
    let has_replied = request_shutdown(session, process, restart).await;
    if has_replied && !process.ended_within(PROMPT).await {
        interrupt_cell(session, process).await;
    }
    locked
        .end(process, if has_replied { GRACE } else { Duration::ZERO })
        .await;
}

/// Asks a kernel to shut down; returns whether it replied.
async fn request_shutdown(session: &Session, process: &Process, restart: bool) -> bool {
    let Ok(info) = connection::read(&session.connection_file) else {
        return false;
    };
    let request = async {
        let mut client = Client::connect(&info, "nb").await.ok()?;
        client.shutdown(restart, REPLY).await.ok()?;
        Some(())
    };
    tokio::select! {
        answer = tokio::time::timeout(REPLY * 2, request) => matches!(answer, Ok(Some(()))),
        () = process.death() => true,
    }
}

/// Interrupts the cell that keeps a kernel from ending, so that the cell can clean up. JupyterLab's
/// server interrupts before it ends a kernel for the same reason.
async fn interrupt_cell(session: &Session, process: &Process) {
    if session.interrupt_mode() == InterruptMode::Signal {
        let _ = process.signal_group(Signal::INT);
        return;
    }
    let Ok(info) = connection::read(&session.connection_file) else {
        return;
    };
    let request = async {
        let mut client = Client::connect(&info, "nb").await.ok()?;
        client.interrupt(INTERRUPT).await.ok()
    };
    // A kernel that does not reply is ended by signals next.
    let _ = tokio::time::timeout(INTERRUPT, request).await;
}

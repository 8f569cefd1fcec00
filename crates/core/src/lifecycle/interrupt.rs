//! Interrupts the code that a kernel runs.

use std::time::Duration;

use serde_json::Value;

use super::action_event::journal;
use super::liveness::{Liveness, liveness};
use super::open_error::OpenError;
use super::reconnect::reconnect;
use crate::client::{Client, ClientError};
use crate::kernel::process::connection;
use crate::kernel::process::{Signal, SignalError};
use crate::project::event::EventKind;
use crate::project::{InterruptMode, Project, Session};
use crate::wire::Verified;

/// How long a kernel may take to answer an `interrupt_request`.
const REPLY: Duration = Duration::from_secs(5);

/// Why a kernel was not interrupted.
#[derive(Debug, thiserror::Error)]
pub enum InterruptError {
    /// There is no kernel, or it cannot be reached.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The signal was not sent.
    #[error("cannot interrupt the kernel")]
    Signal(#[from] SignalError),
    /// The kernel, or the process that holds the connection to it, answered that it was not interrupted.
    #[error("the kernel was not interrupted: {0}")]
    Refused(String),
    /// The message was not answered.
    #[error("cannot interrupt the kernel")]
    Client(#[from] ClientError),
}

/// Interrupts the kernel as its kernelspec says: by SIGINT to its process group or by a message.
pub async fn interrupt(
    project: &Project,
    key: &str,
    session: &Session,
    by: &str,
) -> Result<InterruptMode, InterruptError> {
    let mut liveness = liveness(session).await;
    if liveness == Liveness::Disconnected {
        reconnect(project, key).await?;
        liveness = Liveness::Foreign;
    }
    if let Liveness::Own(process) = &liveness
        && let Some(error) = OpenError::process_stopped(session, process)
    {
        return Err(error.into());
    }
    let mode = session.interrupt_mode();
    match (&liveness, mode) {
        (Liveness::Own(process), InterruptMode::Signal) => process.signal_group(Signal::INT)?,
        (Liveness::Own(_) | Liveness::Foreign | Liveness::Disconnected, _) => {
            let info = connection::read(&session.connection_file).map_err(OpenError::from)?;
            let mut client = Client::connect(&info, by).await?;
            let reply = client.interrupt(REPLY).await?;
            if let Some(reason) = refusal(&reply) {
                return Err(InterruptError::Refused(reason));
            }
        }
        (Liveness::Dead, _) => {
            return Err(OpenError::NoKernel {
                notebook: session.notebook.clone(),
            }
            .into());
        }
        (Liveness::OutOfReach, _) => return Err(OpenError::out_of_reach(session).into()),
    }
    journal(project, key, session, EventKind::Interrupted, by);
    Ok(mode)
}

/// Returns the reason if a reply says that the kernel was not interrupted.
fn refusal(reply: &Verified) -> Option<String> {
    let content: Value = reply.read_content()?;
    let reason = || content["evalue"].as_str().unwrap_or_default().to_owned();
    (content["status"] == "error").then(reason)
}

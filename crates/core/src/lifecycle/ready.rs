//! Waits until a kernel that was started answers.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::client::{Client, ClientError};
use crate::kernel::process::Process;
use crate::kernel::process::connection::{self, KernelFiles};
use crate::wire::{Channel, ConnectionInfo};

/// Why a kernel is not ready.
#[derive(Debug)]
pub(super) enum NotReady {
    /// Its process ended.
    Died,
    /// It runs but has not answered in time.
    Slow,
    /// This process cannot connect to it.
    Unreachable(ClientError),
}

/// Returns the content of the kernel's `kernel_info_reply`, once it has answered on shell.
///
/// The request goes to shell, since IRkernel never answers on control. Fails at once if the process
/// ends.
pub(super) async fn ready(
    info: &ConnectionInfo,
    process: &Process,
    timeout: Duration,
) -> Result<Value, NotReady> {
    tokio::select! {
        answer = wait_for_reply(info, Channel::Shell, timeout) => answer,
        () = process.death() => Err(NotReady::Died),
    }
}

/// Like [`ready`], for a kernel that may run a cell of other clients: the request goes to control, too, where most
/// kernels answer meanwhile.
pub(super) async fn ready_anywhere(
    info: &ConnectionInfo,
    process: &Process,
    timeout: Duration,
) -> Result<Value, NotReady> {
    tokio::select! {
        answer = wait_for_reply(info, Channel::Shell, timeout) => answer,
        Ok(answer) = wait_for_reply(info, Channel::Control, timeout) => Ok(answer),
        () = process.death() => Err(NotReady::Died),
    }
}

/// Waits until a kernel that chooses its own ports has written them into its connection file.
/// Returns at once for other kernels.
pub(super) async fn wait_for_ports(
    files: &KernelFiles,
    process: &Process,
    timeout: Duration,
) -> Result<(), NotReady> {
    let written = async {
        while files.is_open() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        if connection::read(files.connection_file()).is_err() {
            // The kernel may be writing the file at this moment.
            tokio::time::sleep(POLL_INTERVAL * 4).await;
        }
    };
    tokio::select! {
        written = tokio::time::timeout(timeout, written) => {
            written.map_err(|_| NotReady::Slow)
        }
        () = process.death() => Err(NotReady::Died),
    }
}

/// The pause between two checks for the ports that a kernel writes.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

async fn wait_for_reply(
    info: &ConnectionInfo,
    channel: Channel,
    timeout: Duration,
) -> Result<Value, NotReady> {
    let deadline = Instant::now() + timeout;
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let answer = async {
            let mut client = Client::connect_when_up(info, "nb", remaining).await?;
            let remaining = deadline.saturating_duration_since(Instant::now());
            client.kernel_info(channel, remaining).await
        };
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(reply)) => {
                return Ok(serde_json::from_slice(reply.content()).unwrap_or_default());
            }
            Err(_) | Ok(Err(ClientError::NoAnswer { .. })) => return Err(NotReady::Slow),
            // A kernel that closes its sockets is ending or opening them again; the watched process
            // shows which.
            Ok(Err(ClientError::KernelGone(_))) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Ok(Err(error)) if error.may_come_up() => {
                if deadline <= Instant::now() {
                    return Err(NotReady::Slow);
                }
            }
            Ok(Err(error)) => return Err(NotReady::Unreachable(error)),
        }
    }
}

//! Waiting until a kernel that was started answers.

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
    /// It lives but has not answered in time.
    Slow,
    /// It cannot be reached from this process at all.
    Unreachable(ClientError),
}

/// Returns the content of the kernel's `kernel_info_reply`, once it has answered on shell.
///
/// Shell, because IRkernel never answers on control. The process is watched meanwhile.
pub(super) async fn ready(
    info: &ConnectionInfo,
    process: &Process,
    patience: Duration,
) -> Result<Value, NotReady> {
    tokio::select! {
        answer = ask(info, patience) => answer,
        () = process.death() => Err(NotReady::Died),
    }
}

/// Waits until a kernel that chooses its own ports has written them into its connection file; any
/// other has none to wait for.
pub(super) async fn chosen(
    files: &KernelFiles,
    process: &Process,
    patience: Duration,
) -> Result<(), NotReady> {
    let written = async {
        while files.is_open() {
            tokio::time::sleep(LOOK).await;
        }
        if connection::read(files.connection_file()).is_err() {
            // It may be just writing.
            tokio::time::sleep(LOOK * 4).await;
        }
    };
    tokio::select! {
        written = tokio::time::timeout(patience, written) => {
            written.map_err(|_| NotReady::Slow)
        }
        () = process.death() => Err(NotReady::Died),
    }
}

/// How often it is looked whether a kernel has written its ports.
const LOOK: Duration = Duration::from_millis(5);

async fn ask(info: &ConnectionInfo, patience: Duration) -> Result<Value, NotReady> {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = async {
            let mut client = Client::connect_when_up(info, "nb", left).await?;
            let left = deadline.saturating_duration_since(Instant::now());
            client.kernel_info(Channel::Shell, left).await
        };
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(reply)) => {
                return Ok(serde_json::from_slice(reply.content()).unwrap_or_default());
            }
            Err(_) | Ok(Err(ClientError::NoAnswer { .. })) => return Err(NotReady::Slow),
            // A kernel that closes its sockets is on its way out or makes them anew; the watched
            // process says which.
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

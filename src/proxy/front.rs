//! The five ports of the front end's connection file, which this process binds, and their limits.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::bail;
use tokio::time::Instant;

use crate::socket::{
    BindError, EndpointHandler, EndpointLimits, KernelEndpoint, SocketLimits, SpillTo,
};
use crate::wire::ConnectionInfo;

/// How long a port may be taken. A front end waits for its kernel a minute or longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a taken port is tried.
const PAUSE: Duration = Duration::from_millis(50);

/// Binds all five ports.
///
/// Front ends look for free ports without reserving them: `jupyter_client` binds each for a moment. So a port may be
/// taken for a moment by another front end that looks for its own, and is waited for.
///
/// # Errors
/// When one of them stays taken, such as by the kernel of another window. The front end then tries others.
pub(super) async fn bind(
    connection: &ConnectionInfo,
    handler: Rc<dyn EndpointHandler>,
) -> anyhow::Result<KernelEndpoint> {
    bind_within(PATIENCE, connection, handler).await
}

async fn bind_within(
    patience: Duration,
    connection: &ConnectionInfo,
    handler: Rc<dyn EndpointHandler>,
) -> anyhow::Result<KernelEndpoint> {
    let router = SocketLimits {
        outbox_bytes: 256 << 20,
        max_unauthenticated_message: UNAUTHENTICATED_BYTES,
        max_unauthenticated_bytes: 4 * UNAUTHENTICATED_BYTES,
        spares_descriptors: true,
        ..SocketLimits::default()
    };
    let limits = EndpointLimits {
        router,
        iopub: SocketLimits {
            outbox_bytes: SUBSCRIBER_BYTES,
            ..router
        },
        spill: spill(),
    };
    let end = Instant::now() + patience;
    loop {
        match KernelEndpoint::bind(connection, limits.clone(), handler.clone()) {
            Ok(endpoint) => return Ok(endpoint),
            Err(error) if is_taken(&error) && Instant::now() < end => {
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => bail!(
                "cannot bind {error} of the front end (try again: it picks other ports): {}",
                error.source
            ),
        }
    }
}

fn is_taken(error: &BindError) -> bool {
    error.source.kind() == io::ErrorKind::AddrInUse
}

/// How many bytes a subscriber may leave unread in memory, and how many on disk after that.
const SUBSCRIBER_BYTES: usize = 8 << 20;
const SPILL_BYTES: u64 = 1 << 30;

/// Returns where messages go that exceed a limit for memory: those that a subscriber has not read, and those that the
/// kernel sends faster than they are routed. A window that hangs for a while during a flood of output must miss nothing.
pub(super) fn spill() -> Option<SpillTo> {
    // Temporary files that survive a reboot are on a disk; /tmp may be in memory, which the spill is to save.
    let on_disk = [PathBuf::from("/var/tmp"), std::env::temp_dir()];
    let folder = on_disk.into_iter().find(|folder| folder.is_dir())?;
    Some(SpillTo {
        folder,
        bytes: SPILL_BYTES,
    })
}

/// The longest message of a client that has not yet sent a correctly signed message. The first request of
/// every front end is kernel_info; peers without the key must not fill the memory.
const UNAUTHENTICATED_BYTES: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use bytes::Bytes;

    use super::*;
    use crate::wire::{Channel, Verified};

    struct NoHandler;

    impl EndpointHandler for NoHandler {
        fn message(&self, _: Channel, _: &Bytes, _: Verified) {}
    }

    /// Returns a connection at an address of this machine that no other process uses, and its taken shell port.
    fn taken(address: &str) -> (ConnectionInfo, TcpListener) {
        let file = serde_json::json!({
            "transport": "tcp", "ip": address, "key": "a key", "signature_scheme": "hmac-sha256",
            "shell_port": 20001, "iopub_port": 20002, "stdin_port": 20003, "control_port": 20004, "hb_port": 20005,
        });
        let connection = ConnectionInfo::parse(file.to_string().as_bytes()).unwrap();
        (connection, TcpListener::bind((address, 20001)).unwrap())
    }

    #[tokio::test]
    async fn a_port_that_is_taken_for_a_moment_is_waited_for() {
        let (connection, holder) = taken("127.93.11.1");
        // It is polled once the port was found to be taken.
        let frees = async { drop(holder) };
        let local = tokio::task::LocalSet::new();
        let both = async { tokio::join!(biased; bind(&connection, Rc::new(NoHandler)), frees).0 };
        assert!(local.run_until(both).await.is_ok());
    }

    #[tokio::test]
    async fn a_port_that_stays_taken_is_named() {
        let (connection, _holder) = taken("127.93.11.2");
        let local = tokio::task::LocalSet::new();
        let bound = bind_within(Duration::ZERO, &connection, Rc::new(NoHandler));
        let Err(error) = local.run_until(bound).await else {
            panic!("it is bound");
        };
        let text = error.to_string();
        assert!(
            text.contains("the shell port tcp://127.93.11.2:20001"),
            "{text}"
        );
        assert!(text.contains("try again"), "{text}");
    }
}

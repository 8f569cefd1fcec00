//! The five ports of the front end's connection file, which this process binds, and their limits.

use std::path::PathBuf;
use std::rc::Rc;

use anyhow::anyhow;

use crate::socket::{EndpointHandler, EndpointLimits, KernelEndpoint, SocketLimits, SpillTo};
use crate::wire::ConnectionInfo;

/// Binds all five ports.
///
/// # Errors
/// When one of them is taken: VS Code picks free ports without reserving them, so that two
/// windows can collide. The front end then tries others.
pub(super) fn bind(
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
    KernelEndpoint::bind(connection, limits, handler).map_err(|error| {
        anyhow!(
            "cannot bind {error} of the front end (try again: it picks other ports): {}",
            error.source
        )
    })
}

/// How many bytes a subscriber may leave unread in memory, and how many on disk after that.
const SUBSCRIBER_BYTES: usize = 16 << 20;
const SPILL_BYTES: u64 = 1 << 30;

/// Returns where the messages that a subscriber has not read go when they exceed the limit for memory: into a
/// file. A window that hangs for a while during a flood of output must miss nothing.
fn spill() -> Option<SpillTo> {
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

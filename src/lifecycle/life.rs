//! Whether a recorded kernel lives.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::open_error::OpenError;
use crate::client::Client;
use crate::kernel::process::Process;
use crate::kernel::process::connection::{self, KernelFiles};
use crate::project::{Relation, Session, Status, Transport};
use crate::wire::Channel;

/// How long a kernel that another program started may take to accept a connection.
const ANSWER: Duration = Duration::from_secs(2);

/// What a session's kernel is now, whatever its record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// Our kernel, alive.
    Own(Process),
    /// A kernel that another program started answers; its process is never signalled.
    Foreign,
    /// No kernel of this session lives.
    Gone,
    /// It was recorded on another host or in another container, or this shell is a sandbox that
    /// cannot reach it: nothing can be said from here.
    Elsewhere,
}

/// Looks whether the kernel lives.
///
/// The record names the kernel that was ready last; one that was started since and whose starter
/// was killed is found by its pid file.
pub async fn life(session: &Session) -> Life {
    match session.place.relation() {
        Relation::Elsewhere => return Life::Elsewhere,
        Relation::EarlierBoot => return Life::Gone,
        Relation::Here => {}
    }
    // Its process may be seen, but whoever cannot speak to it must not judge or end it.
    if sandboxed(session.transport).is_some() {
        return Life::Elsewhere;
    }
    let recorded = Process::recorded(session);
    if session.owned {
        let started = KernelFiles::of(&session.connection_file).process();
        let alive = started.into_iter().chain(recorded).find(Process::is_alive);
        return alive.map_or(Life::Gone, Life::Own);
    }
    let pid_exists = match recorded {
        Some(process) => process.is_alive(),
        None => session.pid.is_none_or(|pid| Process::of(pid).is_some()),
    };
    if pid_exists && answers(session).await {
        Life::Foreign
    } else {
        Life::Gone
    }
}

/// Returns why this process may use no socket of a kind that a kernel on this transport needs.
///
/// Agents' shells may be sandboxes in which sockets of some kinds cannot be made. Pairs of Unix
/// sockets are what the runtime itself needs to wait for any socket.
pub fn sandboxed(transport: Transport) -> Option<io::Error> {
    use rustix::net::{AddressFamily, SocketType, socket};
    let family = match transport {
        Transport::Ipc => AddressFamily::UNIX,
        Transport::Tcp => AddressFamily::INET,
    };
    let made = socket(family, SocketType::STREAM, None).map_err(io::Error::from);
    let made = made.and_then(|_| UnixStream::pair());
    made.err()
        .filter(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Returns why nothing can be done from here with a kernel that is [`Life::Elsewhere`].
pub fn unseen(session: &Session) -> OpenError {
    let notebook = session.notebook.clone();
    match sandboxed(session.transport) {
        Some(cause) => OpenError::Unchecked {
            notebook,
            state: recorded_state(session).to_owned(),
            pid: session.pid,
            cause: refusal(&cause),
        },
        None => OpenError::Elsewhere {
            notebook,
            host: session.place.host.clone(),
            outside: session.place.is_on_this_machine(),
        },
    }
}

/// Returns the system's words without their number.
pub(super) fn refusal(error: &io::Error) -> String {
    let text = error.to_string();
    let words = text.split(" (os error").next().unwrap_or(&text);
    format!("socket: {words}")
}

fn recorded_state(session: &Session) -> &str {
    match &session.status {
        Status::Live => "alive",
        other => other.as_str(),
    }
}

/// Says whether the session has a kernel or is about to have one again.
///
/// Between two kernels too: a command that comes during a restart does not mean another notebook.
pub async fn is_in_use(session: &Session) -> bool {
    match session.status {
        Status::Stopped => false,
        Status::Starting | Status::Restarting => true,
        Status::Died => matches!(life(session).await, Life::Own(_) | Life::Foreign),
        // What cannot be seen from here is not called dead.
        Status::Live | Status::Other(_) => life(session).await != Life::Gone,
    }
}

/// Says whether something listens where the connection file says.
///
/// Only control is asked: shell may be busy with a cell for hours.
async fn answers(session: &Session) -> bool {
    let Ok(info) = connection::read(&session.connection_file) else {
        return false;
    };
    let asked = async {
        let mut client = Client::connect(&info, "nb").await.ok()?;
        // IRkernel listens on control and says nothing; that it listens is the answer then.
        let _ = client.kernel_info(Channel::Control, ANSWER / 4).await;
        Some(())
    };
    matches!(tokio::time::timeout(ANSWER, asked).await, Ok(Some(())))
}

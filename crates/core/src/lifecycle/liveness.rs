//! The rule that decides whether a recorded kernel is alive.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::client::Client;
use crate::kernel::process::Process;
use crate::kernel::process::connection::{self, KernelFiles};
use crate::project::{Backend, ConnectionReport, Relation, RemoteKernel, Session, Status};
use crate::wire::{Channel, Transport};

/// How long a kernel that another program started may take to accept a connection.
const ANSWER: Duration = Duration::from_secs(2);

/// The present state of a session's kernel, independent of its recorded status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// A kernel that `nb` started; its process runs.
    Own(Process),
    /// A kernel that another program started answers; its process is never signalled.
    Foreign,
    /// The kernel runs on a server, as far as is known, and the process that presents it here (its bridge) does not
    /// run: [`super::reconnect`] starts it.
    Disconnected,
    /// No kernel of this session is alive.
    Dead,
    /// Not known from here: the kernel was recorded on another host, in another container or by a
    /// later version, or this shell is a sandbox that cannot connect to it.
    OutOfReach,
}

impl Liveness {
    /// Says whether a kernel is alive that can be reached from here.
    pub fn is_up(&self) -> bool {
        matches!(self, Self::Own(_) | Self::Foreign | Self::Disconnected)
    }
}

/// Returns whether the kernel is alive; sends a request to a kernel of another program.
pub async fn liveness(session: &Session) -> Liveness {
    // The process may be visible, but a command that cannot connect to the kernel must not judge or
    // end it.
    if session.relation() == Relation::Here && sandboxed(session.transport).is_some() {
        return Liveness::OutOfReach;
    }
    match recorded_liveness(session) {
        Liveness::Foreign if !is_listening(session).await => Liveness::Dead,
        liveness => liveness,
    }
}

/// Like [`liveness`], without a request to the kernel: one of another program counts as alive
/// unless its record says otherwise.
///
/// The record names the kernel that was last ready. A later one whose starter was killed is found
/// by its pid file.
pub fn recorded_liveness(session: &Session) -> Liveness {
    if let Some(remote) = session.as_remote() {
        return liveness_of_bridge(session, remote);
    }
    match session.relation() {
        Relation::OtherHost => return Liveness::OutOfReach,
        Relation::EarlierBoot => return Liveness::Dead,
        Relation::Here => {}
    }
    match &session.backend {
        Backend::Local(_) | Backend::SharedWith(_) | Backend::Remote(_) => {
            let alive = |process: &Process| process.is_alive();
            let recorded = Process::recorded(session).filter(alive);
            let started = || {
                let files = KernelFiles::of(&session.connection_file);
                files.process().filter(alive)
            };
            let process = match session.status {
                // No kernel was started since it was recorded.
                Status::Live => recorded.or_else(started),
                _ => started().or(recorded),
            };
            process.map_or(Liveness::Dead, Liveness::Own)
        }
        Backend::Attached(kernel) => match kernel.pid {
            Some(pid) if Process::of(pid).is_none() => Liveness::Dead,
            _ => Liveness::Foreign,
        },
        Backend::Unknown(_) => Liveness::OutOfReach,
    }
}

/// Like [`recorded_liveness`], for a kernel on a server.
fn liveness_of_bridge(session: &Session, remote: &RemoteKernel) -> Liveness {
    if session.relation() == Relation::OtherHost {
        return Liveness::OutOfReach;
    }
    let files = KernelFiles::of(&session.connection_file);
    let started = files.process();
    let recorded = Process::recorded(session);
    let mut processes = started.into_iter().chain(recorded);
    if let Some(process) = processes.find(Process::is_alive) {
        return Liveness::Own(process);
    }
    let report = ConnectionReport::read(&session.connection_file);
    let has_ended = report.is_some_and(|report| report.kernel_ended.is_some());
    match session.status {
        Status::Live if !has_ended && remote.bridge.is_some() => Liveness::Disconnected,
        _ => Liveness::Dead,
    }
}

/// Says whether a session has a kernel, or is about to get one again.
///
/// A session counts during a restart too, so that a command which runs then does not select another
/// notebook.
pub fn is_in_use(status: &Status, liveness: &Liveness) -> bool {
    match status {
        Status::Stopped => false,
        Status::Starting | Status::Restarting => true,
        Status::Died => liveness.is_up(),
        // A kernel that is out of reach does not count as dead.
        Status::Live | Status::Other(_) => *liveness != Liveness::Dead,
    }
}

/// Returns the error with which this process fails to make a socket for a kernel on this transport.
///
/// Agents' shells may be sandboxes that forbid sockets of some kinds. The runtime itself needs
/// pairs of Unix sockets to wait for any socket.
pub fn sandboxed(transport: Transport) -> Option<io::Error> {
    use rustix::net::{AddressFamily, SocketType, socket};
    let family = match transport {
        Transport::Ipc => AddressFamily::UNIX,
        Transport::Tcp => AddressFamily::INET,
    };
    let result = socket(family, SocketType::STREAM, None).map_err(io::Error::from);
    let result = result.and_then(|_| UnixStream::pair());
    result
        .err()
        .filter(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Returns the system's message for a refused socket, without the error number.
pub(super) fn refusal(error: &io::Error) -> String {
    let text = error.to_string();
    let message = text.split(" (os error").next().unwrap_or(&text);
    format!("socket: {message}")
}

/// Says whether a kernel listens at the addresses in the connection file.
///
/// The request is sent on control: on shell a cell may delay the reply for hours.
async fn is_listening(session: &Session) -> bool {
    let Ok(info) = connection::read(&session.connection_file) else {
        return false;
    };
    let request = async {
        let mut client = Client::connect(&info, "nb").await.ok()?;
        // IRkernel listens on control but never replies there; the connection is proof enough.
        let _ = client.kernel_info(Channel::Control, ANSWER / 4).await;
        Some(())
    };
    matches!(tokio::time::timeout(ANSWER, request).await, Ok(Some(())))
}

//! The one rule for whether a recorded kernel lives.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::client::Client;
use crate::kernel::process::Process;
use crate::kernel::process::connection::{self, KernelFiles};
use crate::project::{Backend, Relation, Session, Status, Transport};
use crate::wire::Channel;

/// How long a kernel that another program started may take to accept a connection.
const ANSWER: Duration = Duration::from_secs(2);

/// What a session's kernel is now, whatever its record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// A kernel that `nb` started; its process lives.
    Own(Process),
    /// A kernel that another program started answers; its process is never signalled.
    Foreign,
    /// No kernel of this session lives.
    Dead,
    /// Nothing can be said from here: the kernel was recorded on another host, in another container
    /// or by a later version, or this shell is a sandbox that cannot reach it.
    OutOfReach,
}

impl Liveness {
    /// Says whether a kernel lives that can be reached from here.
    pub fn is_up(&self) -> bool {
        matches!(self, Self::Own(_) | Self::Foreign)
    }
}

/// Looks whether the kernel lives; a kernel of another program is asked on its sockets.
pub async fn liveness(session: &Session) -> Liveness {
    // Its process may be seen, but whoever cannot speak to it must not judge or end it.
    if session.relation() == Relation::Here && sandboxed(session.transport).is_some() {
        return Liveness::OutOfReach;
    }
    match recorded_liveness(session) {
        Liveness::Foreign if !answers(session).await => Liveness::Dead,
        liveness => liveness,
    }
}

/// As [`liveness`], without a word to the kernel: one of another program counts as alive as long as
/// nothing in its record speaks against it.
///
/// The record names the kernel that was ready last; one that was started since and whose starter
/// was killed is found by its pid file.
pub fn recorded_liveness(session: &Session) -> Liveness {
    match session.relation() {
        Relation::OtherHost => return Liveness::OutOfReach,
        Relation::EarlierBoot => return Liveness::Dead,
        Relation::Here => {}
    }
    match &session.backend {
        Backend::Local(_) | Backend::SharedWith(_) => {
            let alive = |process: &Process| process.is_alive();
            let recorded = Process::recorded(session).filter(alive);
            let started = || {
                let files = KernelFiles::of(&session.connection_file);
                files.process().filter(alive)
            };
            let process = match session.status {
                // Nothing was started since it was recorded.
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

/// Says whether a session of this liveness has a kernel or is about to have one again.
///
/// Between two kernels too: a command that comes during a restart does not mean another notebook.
pub fn is_in_use(status: &Status, liveness: &Liveness) -> bool {
    match status {
        Status::Stopped => false,
        Status::Starting | Status::Restarting => true,
        Status::Died => liveness.is_up(),
        // What cannot be seen from here is not called dead.
        Status::Live | Status::Other(_) => *liveness != Liveness::Dead,
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

/// Returns the system's words for a socket that was refused, without their number.
pub(super) fn refusal(error: &io::Error) -> String {
    let text = error.to_string();
    let words = text.split(" (os error").next().unwrap_or(&text);
    format!("socket: {words}")
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
        // IRkernel listens on control and never answers there; that it listens is enough.
        let _ = client.kernel_info(Channel::Control, ANSWER / 4).await;
        Some(())
    };
    matches!(tokio::time::timeout(ANSWER, asked).await, Ok(Some(())))
}

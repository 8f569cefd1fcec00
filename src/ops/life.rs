//! Whether a recorded kernel lives.

use std::time::Duration;

use super::open::OpenError;
use crate::client::Client;
use crate::kernel::connection::{self, KernelFiles};
use crate::kernel::process::Process;
use crate::project::{Relation, Session, Status};
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
    /// It was recorded on another host or in another container: nothing can be said from here.
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

/// Returns why nothing can be done from here with a kernel that is [`Life::Elsewhere`].
pub(super) fn unseen(session: &Session) -> OpenError {
    OpenError::Elsewhere {
        notebook: session.notebook.clone(),
        host: session.place.host.clone(),
    }
}

/// Says whether the session has a kernel or is about to have one again.
///
/// Between two kernels too: a command that comes during a restart does not mean another notebook.
pub async fn is_in_use(session: &Session) -> bool {
    match session.status {
        Status::Stopped => false,
        Status::Starting | Status::Restarting => true,
        _ => matches!(life(session).await, Life::Own(_) | Life::Foreign),
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

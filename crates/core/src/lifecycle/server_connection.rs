//! What is written down about the connection to the server of a session's kernel.

use std::fmt;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::activity::zone;
use crate::kernel::process::{Process, Signal};
use crate::project::Session;
use crate::project::{ConnectionReport, ConnectionState};

/// Returns what the bridge of a session's kernel last reported; `None` for other kernels.
pub fn report(session: &Session) -> Option<ConnectionReport> {
    session.as_remote()?;
    ConnectionReport::read(&session.connection_file)
}

/// A connection to a server that is not there now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostConnection {
    server: String,
    since: Timestamp,
    problem: Option<String>,
}

impl LostConnection {
    /// Returns what a request waits for, for people.
    pub fn awaited(&self) -> String {
        let problem = self.problem.as_ref().map(|why| format!(" ({why})"));
        let (server, since) = (&self.server, zone::clock(self.since, &zone::here()));
        let problem = problem.unwrap_or_default();
        format!("the connection to {server}, lost {since}{problem}")
    }
}

impl fmt::Display for LostConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, since) = (&self.server, zone::clock(self.since, &zone::here()));
        write!(f, "the connection to {server} is lost since {since}")?;
        match &self.problem {
            Some(problem) => write!(f, ": {problem}"),
            None => Ok(()),
        }
    }
}

/// Returns the connection to the server of a session's kernel if it is not there, and the kernel is not known to have
/// ended.
pub fn lost(session: &Session) -> Option<LostConnection> {
    let report = report(session)?;
    let is_lost = report.state != ConnectionState::Connected && report.kernel_ended.is_none();
    is_lost.then_some(LostConnection {
        server: session.as_remote()?.server.clone(),
        since: report.since,
        problem: report.problem,
    })
}

/// How long `nb open` waits for a connection that is made again.
const RETRY: Duration = Duration::from_secs(3);

/// The pause between two looks at the connection's report.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Makes the bridge of a session try again at once if its connection is lost; returns the loss if that does not help.
pub(super) async fn connect_again(session: &Session, bridge: &Process) -> Option<LostConnection> {
    lost(session)?;
    let _ = bridge.signal(Signal::USR1);
    let deadline = Instant::now() + RETRY;
    loop {
        let lost = lost(session)?;
        if Instant::now() >= deadline {
            return Some(lost);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Returns why a kernel on a server has ended, if its bridge has seen that.
pub(super) fn why_ended(session: &Session) -> Option<String> {
    report(session)?.kernel_ended
}

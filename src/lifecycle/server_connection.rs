//! What is written down about the connection to the server of a session's kernel.

use jiff::Timestamp;

use crate::project::Session;
use crate::server::connection_state::{ConnectionReport, ConnectionState};

/// Returns what the bridge of a session's kernel last reported; `None` for other kernels.
pub fn report(session: &Session) -> Option<ConnectionReport> {
    session.as_remote()?;
    ConnectionReport::read(&session.connection_file)
}

/// Returns since when there is no connection to the server of a session's kernel.
pub fn lost_since(session: &Session) -> Option<Timestamp> {
    let report = report(session)?;
    (report.state != ConnectionState::Connected).then_some(report.since)
}

/// Returns why a kernel on a server has ended, if its bridge has seen that.
pub(super) fn why_ended(session: &Session) -> Option<String> {
    report(session)?.kernel_ended
}

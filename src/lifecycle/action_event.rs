//! What was done to a kernel, for the journal.

use crate::project::event::{Event, EventKind};
use crate::project::{Project, Session};

/// Writes into the journal what was done to a kernel. A failure stops nothing.
pub(super) fn journal(project: &Project, key: &str, session: &Session, kind: EventKind, by: &str) {
    project.record(&[Event {
        generation: Some(session.generation),
        by: Some(by.to_owned()),
        ..Event::now(key, kind)
    }]);
}

//! Records actions on a kernel in the journal.

use crate::project::event::{Event, EventKind};
use crate::project::{Project, Session};

/// Records an action on a kernel in the journal. A failure is only logged.
pub(super) fn journal(project: &Project, key: &str, session: &Session, kind: EventKind, by: &str) {
    project.record(&[Event {
        generation: Some(session.generation),
        by: Some(by.to_owned()),
        ..Event::now(key, kind)
    }]);
}

//! What was done to a kernel, for the journal.

use crate::project::journal::Entry;
use crate::project::{Project, Session};

/// Notes in the journal what was done to a kernel. That it cannot be noted stops nothing.
pub(super) fn journal(project: &Project, key: &str, session: &Session, event: &str, by: &str) {
    let entry = Entry {
        generation: Some(session.generation),
        by: Some(by.to_owned()),
        ..Entry::now(event, key)
    };
    project.write_down(&[entry]);
}

//! What others run on a kernel past us, written into the journal by whoever is joined to it.
//!
//! A console on the connection file writes no journal, and its reply goes to it alone. Those who hear
//! the kernel besides write `seen` and, at the end, `done` with the status `seen`; of what a command of
//! `nb` or a proxy has asked for, readers keep what that one wrote.

use std::time::Instant;

use crate::client::{Foreign, Step};
use crate::project::Project;
use crate::project::journal::Entry;

/// Returns an observer that writes what it is told into the journal of a project, for the kernel of
/// this generation of a session.
pub(super) fn journal(
    project: &Project,
    key: &str,
    generation: u64,
) -> impl FnMut(Foreign) + Send + 'static + use<> {
    let (project, key) = (project.clone(), key.to_owned());
    let mut began: Option<Instant> = None;
    move |foreign| {
        let entry = entry(foreign, &key, generation, &mut began);
        let written = project.journal().and_then(|mut it| it.append(&entry));
        if let Err(error) = written {
            tracing::warn!(%error, "the journal could not be written");
        }
    }
}

fn entry(foreign: Foreign, key: &str, generation: u64, began: &mut Option<Instant>) -> Entry {
    let event = match foreign.step {
        Step::Begun { .. } => "seen",
        Step::Ended { .. } => "done",
    };
    let mut entry = Entry::now(event, key);
    entry.generation = Some(generation);
    entry.msg_id = Some(foreign.msg_id);
    entry.by = Some(foreign.username);
    match foreign.step {
        Step::Begun { code } => {
            *began = Some(Instant::now());
            entry.code = Some(code);
        }
        Step::Ended { raised } => {
            entry.status = Some("seen".to_owned());
            entry.raised = raised;
            let took = began.take().map(|began| began.elapsed().as_millis());
            entry.took_ms = took.and_then(|took| u64::try_from(took).ok());
        }
    }
    entry
}

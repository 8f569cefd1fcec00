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
        let entries = entries(foreign, &key, generation, &mut began);
        project.write_down(&entries);
    }
}

fn entries(
    foreign: Foreign,
    key: &str,
    generation: u64,
    began: &mut Option<Instant>,
) -> Vec<Entry> {
    let entry = |event| {
        let mut entry = Entry::now(event, key);
        entry.generation = Some(generation);
        entry.msg_id = Some(foreign.msg_id.clone());
        entry.by = Some(foreign.username.clone());
        entry
    };
    match foreign.step {
        Step::Begun { code } => {
            *began = Some(Instant::now());
            let mut seen = entry("seen");
            seen.code = Some(code);
            vec![seen]
        }
        Step::Ended { raised, early } => {
            let mut done = entry("done");
            done.status = Some("seen".to_owned());
            done.raised = raised;
            let took = began.take().map(|began| began.elapsed().as_millis());
            done.took_ms = took.and_then(|took| u64::try_from(took).ok());
            // What it ran nobody has heard who is still here.
            let seen = early.then(|| entry("seen"));
            seen.into_iter().chain([done]).collect()
        }
    }
}

//! Records executions of clients that are connected to the kernel directly, as an observer of iopub sees
//! them, in the journal, and what the kernel says that each execution changed.
//!
//! A console on the connection file writes no journal, and only it gets the reply.

use std::time::Instant;

use crate::client::{ExecutionStep, OtherClientStep};
use crate::project::Project;
use crate::project::event::{CellEnd, Event, EventKind, ExecutionEnd, ExecutionStart};

/// Returns an observer that writes into the journal of a project, for the kernel of this generation
/// of a session.
pub(super) fn journal(
    project: &Project,
    key: &str,
    generation: u64,
) -> impl FnMut(OtherClientStep) + Send + 'static + use<> {
    let (project, key) = (project.clone(), key.to_owned());
    let mut began: Option<Instant> = None;
    move |observed| match observed.step {
        ExecutionStep::Facts { content } => {
            project.record_facts(&key, generation, &observed.msg_id, &content);
        }
        _ => project.record(&events(observed, &key, generation, &mut began)),
    }
}

fn events(
    observed: OtherClientStep,
    key: &str,
    generation: u64,
    began: &mut Option<Instant>,
) -> Vec<Event> {
    let msg_id = &observed.msg_id;
    let event = |kind| Event {
        generation: Some(generation),
        by: Some(observed.username.clone()),
        ..Event::now(key, kind)
    };
    let start = ExecutionStart::new(msg_id);
    match observed.step {
        ExecutionStep::Facts { .. } => Vec::new(),
        ExecutionStep::Begun { code } => {
            *began = Some(Instant::now());
            let code = Some(code);
            vec![event(EventKind::BegunOutside(ExecutionStart {
                code,
                ..start
            }))]
        }
        ExecutionStep::Ended { raised, early } => {
            let status = if raised {
                CellEnd::ObservedError
            } else {
                CellEnd::ObservedOk
            };
            let took = began.take().map(|began| began.elapsed());
            let end = ExecutionEnd::new(msg_id, status, took);
            // No connected client saw this cell start.
            let seen = early.then(|| event(EventKind::BegunOutside(start)));
            seen.into_iter()
                .chain([event(EventKind::Done(end))])
                .collect()
        }
    }
}

//! What happens in a project, as it happens.

use std::path::PathBuf;

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::problem::Problem;
pub use crate::project::event::{EventFollower, Position};

/// Which events are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventsRequest {
    /// From which place on, as [`EventFollower::position`] returned it; none is from now on.
    pub from: Option<Position>,
}

/// The beginning of a list of events: those that follow it are all that happen from then on.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventsStart {
    /// The project's folder. The keys of sessions are paths below it.
    pub project: PathBuf,
    /// The position of the first event.
    pub from: Position,
}

impl EventsStart {
    /// Returns the beginning of these events of the caller's project.
    ///
    /// # Errors
    /// There is no project.
    pub fn of(caller: &Caller, events: &EventFollower) -> Result<Self, Problem> {
        Ok(Self {
            project: caller.project()?.root().to_owned(),
            from: events.position(),
        })
    }
}

/// Returns what happens in the project of the named notebook, else in the caller's, of all its notebooks and kernels,
/// oldest first.
///
/// # Errors
/// There is no project, or the notebook does not exist.
pub async fn events(caller: &Caller, request: EventsRequest) -> Result<EventFollower, Problem> {
    let project = match caller.named() {
        Some(_) => caller.notebook_file().await?.project,
        None => caller.project()?,
    };
    let from = match request.from {
        Some(from) => from,
        None => {
            let project = project.clone();
            blocking(caller, move |_| Ok(project.events_of(&[]).end())).await?
        }
    };
    Ok(project.follow_events(from))
}

//! What happens in a project, as it happens.

use super::caller::{Caller, blocking};
use super::problem::Problem;
pub use crate::project::event::{EventFollower, Position};

/// Which events are wanted.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventsRequest {
    /// From which place on, as [`EventFollower::position`] returned it; none is from now on.
    pub from: Option<Position>,
}

/// Returns what happens in the project of the named notebook, else in the caller's, of all its notebooks and kernels,
/// oldest first.
///
/// # Errors
/// There is no project, or the notebook does not exist.
pub async fn events(caller: &Caller, request: EventsRequest) -> Result<EventFollower, Problem> {
    let project = match caller.named() {
        Some(_) => caller.page().await?.project,
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

//! `gc`: ends unused kernels and removes files that nothing uses.

use serde::Serialize;

use super::caller::{Caller, on_own_thread};
use super::envelope::Answer;
use super::problem::Problem;
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::gc::{self, CleanupResult};
pub use crate::lifecycle::gc::{Cleanup, CleanupAction};
use crate::project::Project;
use crate::setup::serve::{self, Health, Level};
use crate::task::causes::with_causes;

/// Where to clean up.
#[derive(Clone, Copy, Debug, Default)]
pub struct GcRequest {
    /// Whether to clean up all the user's projects, not only the one of the working directory.
    pub all: bool,
    /// Whether to list only what would be ended and removed.
    pub dry_run: bool,
}

/// What was cleared up.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GcAnswer {
    /// Whether it is only what would be done.
    pub dry_run: bool,
    /// What was found.
    pub found: Vec<Cleanup>,
    /// How much memory that frees.
    pub memory_bytes: u64,
    /// How much room on the disk.
    pub disk_bytes: u64,
    /// What was left alone, and why.
    pub notes: Vec<String>,
}

impl Answer for GcAnswer {}

/// Ends and removes what is not used: what crashes, kills and deleted projects left behind.
///
/// # Errors
/// None: the notes list what could not be done.
pub async fn gc(caller: &Caller, request: GcRequest) -> Result<GcAnswer, Problem> {
    on_own_thread(caller, move |caller| clear(caller, request)).await
}

async fn clear(caller: Caller, request: GcRequest) -> Result<GcAnswer, Problem> {
    let projects = match request.all {
        true => gc::all_projects(),
        false => Project::find(&caller.working_dir).into_iter().collect(),
    };
    let mut cleared = gc::clear(&projects, request.dry_run).await;
    update_kernelspec(&mut cleared, request.dry_run);
    Ok(GcAnswer {
        dry_run: request.dry_run,
        memory_bytes: cleared.cleanups.iter().map(|it| it.memory_bytes).sum(),
        disk_bytes: cleared.cleanups.iter().map(|it| it.disk_bytes).sum(),
        found: cleared.cleanups,
        notes: cleared.notes,
    })
}

/// Brings the user's kernelspec "nb shared kernel" up to date if it is not.
fn update_kernelspec(cleared: &mut CleanupResult, is_dry_run: bool) {
    let Ok(Health::Stale { why }) = serve::health(&Level::User, &ProcessVariables) else {
        return;
    };
    if !is_dry_run && let Err(error) = serve::serve(&Level::User, "python", &ProcessVariables) {
        cleared.notes.push(with_causes(&error));
        return;
    }
    let description = format!("the kernelspec \"nb shared kernel\": {why}");
    cleared.add(CleanupAction::Mend, description, 0);
}

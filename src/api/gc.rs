//! `gc`: ending and removing what nobody uses.

use serde::Serialize;

use super::caller::Caller;
use super::envelope::Answer;
use super::problem::Problem;
use crate::lifecycle::gc::{self, CleanupAction, CleanupOptions};
use crate::project::Project;

/// Where to clear up.
#[derive(Clone, Copy, Debug, Default)]
pub struct GcRequest {
    /// In all the user's projects, not only in the one of the working directory.
    pub all: bool,
    /// Only tell what would be ended and removed.
    pub dry_run: bool,
}

/// What was cleared up.
#[derive(Clone, Debug, Serialize)]
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

/// One thing that was cleared up.
#[derive(Clone, Debug, Serialize)]
pub struct Cleanup {
    /// What was done: `end`, `remove` or `mend`.
    pub deed: &'static str,
    /// To what, in words.
    pub what: String,
    /// How much memory that frees.
    pub memory_bytes: u64,
    /// How much room on the disk.
    pub disk_bytes: u64,
}

/// Ends and removes what nobody uses: what crashes, kills and deleted projects left behind.
///
/// # Errors
/// None: what could not be done is among the notes.
pub async fn gc(caller: &Caller, request: GcRequest) -> Result<GcAnswer, Problem> {
    let projects = match request.all {
        true => gc::all_projects(),
        false => Project::find(&caller.here).into_iter().collect(),
    };
    let dry_run = request.dry_run;
    let cleared = gc::clear(&CleanupOptions { projects, dry_run }).await;
    let found = cleared.found.into_iter().map(|it| Cleanup {
        deed: match it.action {
            CleanupAction::End => "end",
            CleanupAction::Remove => "remove",
            CleanupAction::Mend => "mend",
        },
        what: it.what,
        memory_bytes: it.memory_bytes,
        disk_bytes: it.disk_bytes,
    });
    let found: Vec<_> = found.collect();
    Ok(GcAnswer {
        dry_run,
        memory_bytes: found.iter().map(|it| it.memory_bytes).sum(),
        disk_bytes: found.iter().map(|it| it.disk_bytes).sum(),
        found,
        notes: cleared.notes,
    })
}

//! `agent install`: configures the programs of agents to use `nb`.

use std::path::PathBuf;

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind, causes};
use crate::notebook::{DiffLine, changed_lines};
use crate::setup::agent_setup::remove_empty_folders;
pub use crate::setup::agent_setup::{AgentPart, AgentProgram, OtherServer};
use crate::setup::planned_file::{PlannedFile, PlannedFileError};

/// Which programs are configured, and whether files are written.
#[derive(Clone, Debug)]
pub struct AgentSetupRequest {
    /// The programs.
    pub programs: Vec<AgentProgram>,
    /// Whether `nb` is taken out again.
    pub removes: bool,
    /// The part that is added or taken out; else all of it is.
    pub only: Option<AgentPart>,
    /// Whether the files are written; else the answer only has what would differ.
    pub writes: bool,
}

/// The files in which the programs look.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentSetupAnswer {
    /// The files that differ, or would.
    pub files: Vec<AgentFile>,
    /// Whether they were written.
    pub written: bool,
    /// The servers of the name `nb` in the files of the programs that are not `nb mcp`. They are left.
    pub other_servers: Vec<OtherServer>,
}

impl Answer for AgentSetupAnswer {}

/// A file in which a program looks.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AgentFile {
    /// The file.
    pub path: PathBuf,
    /// `created`, `changed` or `removed`.
    pub change: &'static str,
    /// The lines that differ.
    pub lines: Vec<DiffLine>,
}

impl AgentFile {
    pub(super) fn of(planned: &PlannedFile) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self {
            path: planned.path.clone(),
            change: match (&planned.before, &planned.after) {
                (None, _) => "created",
                (_, None) => "removed",
                _ => "changed",
            },
            lines: changed_lines(&text(&planned.before), &text(&planned.after)),
        }
    }
}

/// Adds `nb` to the files in which programs of agents look, below the working directory, or takes it out again.
/// The files of all programs are read before one is written.
///
/// # Errors
/// A file is not what its program reads, is a link, or cannot be written.
pub async fn set_up_agents(
    caller: &Caller,
    request: AgentSetupRequest,
) -> Result<AgentSetupAnswer, Problem> {
    blocking(caller, move |caller| {
        let folder = caller.working_dir.canonicalize();
        let folder = folder.map_err(|error| Problem::failed("find the folder", &error))?;
        let mut planned = Vec::new();
        let mut other_servers = Vec::new();
        for program in request.programs {
            planned.extend(program.planned(&folder, request.removes, request.only)?);
            other_servers.extend(program.other_servers(&folder)?);
        }
        planned.retain(|file| !file.is_same());
        if request.writes {
            for file in &planned {
                file.write()?;
                if file.after.is_none() {
                    remove_empty_folders(&folder, &file.path);
                }
            }
        }
        Ok(AgentSetupAnswer {
            files: planned.iter().map(AgentFile::of).collect(),
            written: request.writes,
            other_servers,
        })
    })
    .await
}

impl From<PlannedFileError> for Problem {
    fn from(error: PlannedFileError) -> Self {
        let kind = match error {
            PlannedFileError::Io { .. } | PlannedFileError::Unreadable { .. } => {
                ProblemKind::Failed
            }
            PlannedFileError::Link(_) | PlannedFileError::Foreign(_) => ProblemKind::Refused,
        };
        Self::new(kind, causes(&error))
    }
}

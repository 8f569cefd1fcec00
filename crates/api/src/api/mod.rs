//! The use cases, one async function for each command: the functions that every adapter calls.
//!
//! A function takes the [`Caller`](caller::Caller) and a request, and returns an answer or a
//! [`Problem`](problem::Problem). It prints nothing. Work that may block on a disk or a lock runs on
//! tokio's pool for blocking work, or on the request's own thread
//! ([`CallerSettings::has_own_thread`](caller::CallerSettings)). A function's future may be dropped before it ends: file work
//! that has begun is finished. An answer in its [`Envelope`](envelope::Envelope) is the JSON that `--json`
//! prints. After an adapter has delivered an answer it calls
//! [`Caller::delivered`](caller::Caller::delivered): from then on the content counts as seen.

mod agent_setup;
mod attachments;
pub mod caller;
mod cell;
mod cells;
pub mod columns;
mod complete;
mod consent;
mod copy;
mod diff;
mod doctor;
mod edit;
pub mod envelope;
mod events;
mod exec;
mod export;
mod format;
mod gc;
mod graph;
mod interrupt;
pub mod job;
mod jobs;
mod kernels;
mod log;
mod log_file;
mod move_notebook;
mod notebook_text;
mod notebooks;
mod open;
mod output_fields;
mod output_files;
pub mod outputs;
mod packages;
mod plan;
mod planned;
pub mod preview;
pub mod problem;
pub mod readable;
mod replace;
mod restart;
mod restore;
pub mod root;
mod run;
mod sandbox;
mod save;
mod scale;
mod search;
mod selection;
mod serve;
mod servers;
mod shutdown;
mod stale;
mod status;
#[cfg(test)]
mod tests;
pub mod time;
mod undo;
mod vars;
mod verify;
mod versions;
mod vscode_settings;
mod waiting;
mod watch;
mod widgets;

pub use self::agent_setup::{
    AgentFile, AgentPart, AgentProgram, AgentSetupAnswer, AgentSetupRequest, OtherServer,
    set_up_agents,
};
pub use self::attachments::{AttachmentsAnswer, attachments};
pub use self::cell::{
    Attachment, CellAnswer, CellRequest, OutputAnswer, OutputForm, OutputRequest, ShownCell,
    ShownOutputs, cell, output,
};
pub use self::cells::{
    CellCondition, CellRow, CellsAnswer, CellsRequest, MoreCells, NotebookSummary, RemovedCell,
    cells,
};
pub use self::complete::{
    CodeAtCursor, CompleteAnswer, DocumentationAnswer, complete, documentation,
};
pub use self::consent::{LossesAnswer, losses};
pub use self::copy::{CopiedItem, CopyAnswer, CopyRequest, copy};
pub use self::diff::{DiffAnswer, DiffBase, DiffBefore, DiffRequest, diff_notebooks};
pub use self::doctor::{DoctorAnswer, doctor};
pub use self::edit::{
    EditAnswer, EditPolicy, EditRequest, Rewrite, cell_ids, edit, preview_edit, rewrite,
};
pub use self::events::{EventFollower, EventsRequest, EventsStart, Position, events};
pub use self::exec::{EditedCells, ExecAnswer, ExecRequest, exec, exec_edited};
pub use self::export::{ExportAnswer, ExportRequest, export};
pub use self::format::{FormatAnswer, FormatRequest, FormattedNotebook, format};
pub use self::gc::{Cleanup, CleanupAction, GcAnswer, GcRequest, gc};
pub use self::graph::{GraphAnswer, GraphRequest, GraphRow, NameRead, UnknownEffect, graph};
pub use self::interrupt::{InterruptAnswer, InterruptRequest, interrupt};
pub use self::jobs::{
    InterruptJobAnswer, InterruptJobRequest, JobQuestion, JobRecord, JobsAnswer, JobsRequest,
    ListedJob, QuestionRequest, ReplyAnswer, ReplyRequest, WaitRequest, WriteJobAnswer,
    WriteJobRequest, WrittenCell, interrupt_job, job, jobs, question, reply, wait, write_job,
};
pub use self::kernels::{
    KernelsAnswer, ListedKernel, NotChosen, StartedKernel, UnreadableFolder, kernels,
};
pub use self::log::{LogAnswer, LogEntry, LogEvent, LogRequest, LogSince, LoggedExecution, log};
pub use self::log_file::{
    GrowingLog, LogFile, LogFileAnswer, LogFileRequest, follow_log_file, log_file,
};
pub use self::move_notebook::{MoveAnswer, MoveRequest, move_to};
pub use self::notebook_text::{notebook_text, set_notebook_text};
pub use self::notebooks::{NotebooksAnswer, NotebooksRequest, notebooks};
pub use self::open::{
    CreatedNotebook, Idle, OpenAnswer, OpenOutcome, OpenRequest, OpenedNotebook,
    RequestedConfinement, SpecChange, WantedServer, open,
};
pub use self::output_fields::{OutputFields, Timing};
pub use self::packages::{Package, PackageChange, PackagesAnswer, PackagesRequest, packages};
pub use self::plan::{PlanAnswer, PlannedRow, plan};
pub use self::planned::{PlannedChange, planned_edit, planned_restore, planned_run, planned_undo};
pub use self::replace::{ReplaceAnswer, ReplaceRequest, replace};
pub use self::restart::{RestartAnswer, RestartRequest, restart};
pub use self::restore::{RestoreAnswer, RestoreRequest, restore};
pub use self::run::{PeekAnswer, PeekRequest, PeekStatus, RunRequest, peek, run};
pub use self::sandbox::SandboxSummary;
pub use self::save::{FlushedJob, SaveAnswer, UnwrittenCell, save};
pub use self::scale::image_within;
pub use self::search::{NotebookMatch, SearchAnswer, SearchRequest, SearchScope, search};
pub use self::selection::{CellsToRun, DoubtfulCell, DoubtfulName, Doubts};
pub use self::serve::{
    EditorAnswer, EnvLine, JupyterlabAnswer, ServeAnswer, ServePlace, ServeRequest, UnserveAnswer,
    VscodeAnswer, serve, serve_chat, unserve,
};
pub use self::servers::{
    AddServerAnswer, AddServerRequest, ListedServer, RemoteKernelspec, RemoveServerAnswer,
    RequestedToken, ServerAnswer, ServerKernel, ServerKernelsAnswer, ServerState, ServersAnswer,
    StopServerAnswer, add_server, check_server, remove_server, server_kernels, servers,
    stop_server,
};
pub use self::shutdown::{
    ShutdownAnswer, ShutdownIdleAnswer, ShutdownIdleRequest, ShutdownRequest, shutdown,
    shutdown_idle,
};
pub use self::stale::{StaleCell, StaleReason, UndefinedName};
pub use self::status::{
    AllKernelsAnswer, KernelStatus, LeftKernel, ProjectKernel, RunningCell, ServerKernelStatus,
    StatusAnswer, UnreadableProject, status, status_everywhere,
};
pub use self::undo::in_words;
pub use self::undo::{MergedCell, UndoAnswer, UndoRequest, undo};
pub use self::vars::{VarsAnswer, VarsRequest, vars};
pub use self::verify::{
    CellVerdict, DifferenceReason, NotebookVerdict, ShownDifference, VerifiedCell,
    VerifiedNotebook, VerifyAnswer, VerifyObserver, VerifyOutcome, VerifyProgress, VerifyRequest,
    WhyDiffers, verify,
};
pub use self::versions::{
    DeletedCell, DeletedCellsAnswer, DeletedCellsRequest, DiffedSource, ListedVersion,
    SourceDiffAnswer, SourceDiffRequest, VersionsAnswer, VersionsRequest, cell_versions,
    deleted_cells, source_diff,
};
pub use self::versions::{deleted_line, version_lines};
pub use self::vscode_settings::{SettingsChange, vscode_settings};
pub use self::waiting::WaitingRequest;
pub use self::watch::{StaleSnapshot, StaleWatch, WatchRequest, WatchedCell};
pub use self::widgets::{WidgetsAnswer, widgets};

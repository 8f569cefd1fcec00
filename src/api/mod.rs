//! The use cases, one async function a command: what every adapter calls.
//!
//! A function takes the [`Caller`](caller::Caller) and a request, and returns an answer or a
//! [`Problem`](problem::Problem). It prints nothing. What may wait for a disk or a lock runs on tokio's
//! threads for such work, or within [`on_this_thread`](caller::on_this_thread) on the caller's own. A function may be dropped before it ends: work on files that has begun is done
//! to its end, as of one who has left. An answer in its [`Envelope`](envelope::Envelope) is the JSON that
//! `--json` prints.

mod adopt;
pub mod caller;
mod cell;
mod cells;
pub(crate) mod columns;
mod consent;
mod diff;
mod doctor;
mod edit;
pub mod envelope;
mod exec;
mod format;
mod gc;
mod interrupt;
pub mod job;
mod jobs;
mod kernels;
pub mod log;
pub mod outputs;
pub mod preview;
pub mod problem;
mod restart;
mod restore;
mod run;
mod sandbox;
mod save;
mod search;
mod serve;
mod shutdown;
mod status;
pub mod time;
mod undo;
mod vars;
pub mod versions;

pub use self::adopt::{AdoptAnswer, AdoptRequest, HeldEntry, adopt};
pub use self::cell::{
    Attachment, CellAnswer, CellRequest, OutputAnswer, OutputForm, OutputRequest, ShownCell,
    ShownOutputs, cell, output,
};
pub use self::cells::{CellRow, CellsAnswer, CellsRequest, NotebookSummary, RemovedCell, cells};
pub use self::diff::{DiffAnswer, DiffBase, DiffBefore, DiffRequest, diff_notebooks};
pub use self::doctor::{DoctorAnswer, DoctorRequest, doctor};
pub use self::edit::{EditAnswer, EditPolicy, EditRequest, edit, preview_edit};
pub use self::exec::{CellsToRun, EditedCells, ExecAnswer, ExecRequest, exec, exec_edited};
pub use self::format::{FormatAnswer, FormatRequest, FormattedNotebook, format};
pub use self::gc::{Cleanup, GcAnswer, GcRequest, gc};
pub use self::interrupt::{InterruptAnswer, InterruptRequest, interrupt};
pub use self::jobs::{
    InterruptJobAnswer, InterruptJobRequest, JobQuestion, JobRecord, JobsAnswer, JobsRequest,
    ListedJob, QuestionRequest, ReplyAnswer, ReplyRequest, WaitRequest, WriteJobAnswer,
    WriteJobRequest, WrittenCell, interrupt_job, job, jobs, question, reply, wait, write_job,
};
pub use self::kernels::{
    KernelsAnswer, KernelsRequest, ListedKernel, NotChosen, StartedKernel, UnreadableFolder,
    kernels,
};
pub use self::restart::{RestartAnswer, RestartRequest, restart};
pub use self::restore::{RestoreAnswer, RestoreRequest, restore};
pub use self::run::{PeekAnswer, PeekRequest, PeekStatus, RunRequest, peek, run};
pub use self::sandbox::SandboxSummary;
pub use self::save::{FlushedJob, SaveAnswer, SaveRequest, UnwrittenCell, save};
pub use self::search::{NotebookMatch, SearchAnswer, SearchRequest, SearchScope, search};
pub use self::serve::{
    EnvLine, ServeAnswer, ServePlace, ServeRequest, UnserveAnswer, serve, unserve,
};
pub use self::shutdown::{
    IdleKernel, ShutdownAnswer, ShutdownIdleAnswer, ShutdownIdleRequest, ShutdownRequest, shutdown,
    shutdown_idle,
};
pub use self::status::{
    AllKernelsAnswer, KernelStatus, LeftKernel, ProjectKernel, RunningCell, SpecStatus,
    StatusAnswer, StatusRequest, UnreadableProject, status, status_everywhere,
};
pub(crate) use self::undo::in_words;
pub use self::undo::{MergedCell, UndoAnswer, UndoRequest, undo};
pub use self::vars::{VarsAnswer, VarsRequest, vars};

//! The recorder: a process that runs a job's cells and stores all messages of the kernel about them.
//!
//! It is no child of the command that asked for the job, so killing that command loses nothing. The
//! kernel's messages are written into the job's folder at once. They are written into the notebook
//! seldom, since an editor that shows the notebook then reads it again: once at the start of the run and
//! every second during its first seconds, then at gaps that grow if a front end is joined or writing
//! takes long, and at the end. The first recorder on a kernel stays after its job, and records late outputs (`late`).

mod cells;
mod elsewhere;
mod gaps;
pub(super) mod held;
mod late;
mod late_listener;
mod observer;
pub(super) mod outputs;
mod plan;
mod questions;
mod resume;
pub mod salvage;
mod state;
mod writing;

use std::cell::Cell;
use std::io;

use tokio::sync::oneshot;

pub use self::cells::NextCell;
use self::late::LateOutputs;
use self::late_listener::LateListener;
use self::state::Recorder;
use crate::project::Project;
use crate::project::jobs::{JobFolder, JobState};

/// Runs a job to its end. Does nothing if another recorder has the job. `next` says which cell follows in a job that grows.
///
/// # Errors
/// The job's folder cannot be read or written.
pub async fn perform(project: &Project, folder: &JobFolder, next: NextCell) -> io::Result<()> {
    perform_with(project, folder, async |recorder| {
        let runner = recorder.run_all(next).await;
        let left = async {
            if let Some(runner) = runner {
                runner.leave().await;
            }
        };
        tokio::join!(left, recorder.finish());
    })
    .await
}

/// Continues a job. Does nothing if another recorder has the job, or if it is over.
///
/// # Errors
/// The job's folder cannot be read or written.
pub async fn resume(project: &Project, folder: &JobFolder) -> io::Result<()> {
    perform_with(project, folder, async |recorder| {
        recorder.take_up().await;
        recorder.finish().await;
    })
    .await
}

/// Calls `does` as the only recorder of a job, and handles requests to the recorder at the same time. If no
/// other process listens for the late outputs of the kernel's cells, this one does, also after the job.
async fn perform_with(
    project: &Project,
    folder: &JobFolder,
    does: impl AsyncFnOnce(&Recorder<'_>),
) -> io::Result<()> {
    let (sender, receiver) = oneshot::channel();
    let is_over = Cell::new(false);
    let job = async {
        let done = perform_job(project, folder, sender, does).await;
        is_over.set(true);
        held::write_when_free(project, folder).await;
        done
    };
    let late = async {
        if let Ok(listener) = receiver.await {
            let late = LateOutputs::new(project, listener);
            late.record(&is_over).await;
        }
    };
    tokio::join!(job, late).0
}

async fn perform_job(
    project: &Project,
    folder: &JobFolder,
    late_sender: oneshot::Sender<LateListener>,
    does: impl AsyncFnOnce(&Recorder<'_>),
) -> io::Result<()> {
    let Some(_lock) = folder.lock()? else {
        return Ok(());
    };
    let job = folder.read().map_err(io::Error::other)?;
    if job.state == JobState::Done {
        return Ok(());
    }
    let recorder = Recorder::new(project, folder, job)?;
    recorder.late_sender.replace(Some(late_sender));
    tokio::select! {
        () = does(&recorder) => {}
        never = recorder.handle_requests() => match never {},
        never = recorder.write_job_soon() => match never {},
        never = recorder.write_now_and_then() => match never {},
        never = recorder.write_on_sigterm() => match never {},
    }
    Ok(())
}

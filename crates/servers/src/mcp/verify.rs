//! A notebook verified for a client: in few lines, and within the time that the call gives.

use std::time::Duration;

use tokio::time::Instant;

use super::result::ToolAnswer;
use super::run::RunWatcher;
use crate::api::caller::{Caller, DEFAULT_TIMEOUT};
use crate::api::problem::Problem;
use crate::api::{
    self, NotebookVerdict, VerifyAnswer, VerifyObserver, VerifyOutcome, VerifyProgress,
    VerifyRequest,
};
use crate::text::Part;
use crate::text::verify::{VerifyRoom, parts};

/// What of the answer a model gets: the commands have all of it.
const ROOM: VerifyRoom = VerifyRoom {
    cells: 3,
    lines: 4,
    width: 60,
    reasons: 1,
};

/// Runs all cells in a fresh kernel, and says which give something else. The run ends with the call.
pub(super) async fn verify(
    caller: &Caller,
    watcher: &RunWatcher<'_>,
    timeout_s: Option<f64>,
) -> Result<ToolAnswer, Problem> {
    let timeout = timeout_s.and_then(|it| Duration::try_from_secs_f64(it).ok());
    let timeout = timeout.unwrap_or(DEFAULT_TIMEOUT);
    let observer = CallObserver {
        watcher,
        until: Instant::now() + timeout,
    };
    let request = VerifyRequest::default();
    let answer = watcher
        .watch(api::verify(caller, request, &observer))
        .await?;
    let mut parts = parts(&answer, ROOM);
    if answer.stopped {
        let seconds = timeout.as_secs_f64();
        parts.push(Part::Own(format!(
            "stopped after {seconds} s: a larger timeout_s runs all"
        )));
    }
    let mut tool_answer = ToolAnswer::of(caller, &answer, parts).await;
    tool_answer.field("status", status(&answer));
    Ok(tool_answer)
}

/// Returns the verdict as one word.
fn status(answer: &VerifyAnswer) -> &'static str {
    match answer.notebooks.first() {
        Some(VerifyOutcome::Done(notebook)) => match notebook.verdict {
            NotebookVerdict::Same => "ok",
            NotebookVerdict::Differs => "differs",
            NotebookVerdict::Failed => "error",
            NotebookVerdict::Stopped => "timeout",
        },
        Some(VerifyOutcome::Failed { .. }) | None => "failed",
    }
}

/// Ends a run with its call.
struct CallObserver<'a> {
    watcher: &'a RunWatcher<'a>,
    until: Instant,
}

impl VerifyObserver for CallObserver<'_> {
    fn begins(&self, progress: &VerifyProgress<'_>) {
        let (at, of) = progress.cell;
        self.watcher.say(format!("{at} of {of}: {}", progress.line));
    }

    async fn stopped(&self) {
        tokio::select! {
            () = self.watcher.cancelled() => {}
            () = tokio::time::sleep_until(self.until) => {}
        }
    }
}

//! Runs of cells and code: followed, reported, cancelled.

use std::cell::RefCell;
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    CancelledNotificationParam, ClientResult, ElicitRequest, ElicitRequestParams,
    ProgressNotificationParam, RequestId, ServerRequest,
};
use rmcp::service::{OriginatingRequestId, Peer, PeerRequestOptions, RequestContext, ServiceError};
use tokio::sync::Notify;

use super::commands::as_tools;
use super::questions::{can_ask, form, is_stateless, text_of};
use super::result::ToolAnswer;
use super::turns::Turn;
use crate::api::caller::Caller;
use crate::api::envelope::Answer;
use crate::api::job::{
    FollowOptions, JobAnswer, JobObserver, JobVerdict, OutputsAs, PromptAnswer, RunAnswer, describe,
};
use crate::api::outputs::{OutputText, plain};
use crate::notebook::visible_line;
use crate::project::jobs::{Job, JobPrompt};
use crate::text::Part;
use crate::text::report::{Piece, report};

/// The time between two progress notifications of a run.
const PROGRESS: Duration = Duration::from_secs(5);

/// How long a person may take to answer a question; after that the agent gets the question.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// The shortest time to wait, in seconds: 0 would be for ever.
const SHORTEST: f64 = 0.001;

/// Returns how a run is followed.
pub(super) fn follow_options(timeout_s: Option<f64>, limit: Option<usize>) -> FollowOptions {
    FollowOptions {
        timeout: timeout_s.map(|seconds| seconds.max(SHORTEST)),
        limit: limit.or(FollowOptions::default().limit),
        outputs: OutputsAs::Text,
        images: true,
        in_short: true,
        until: None,
    }
}

/// Watches a run for a client: a cancelled call interrupts the run.
pub(super) struct RunWatcher<'a> {
    context: &'a RequestContext<RoleServer>,
    cancelled: &'a Notify,
    turn: &'a Turn,
    last_line: RefCell<String>,
}

impl<'a> RunWatcher<'a> {
    pub(super) fn new(
        context: &'a RequestContext<RoleServer>,
        cancelled: &'a Notify,
        turn: &'a Turn,
    ) -> Self {
        Self {
            context,
            cancelled,
            turn,
            last_line: RefCell::default(),
        }
    }

    /// Sets what the next notification of progress says.
    pub(super) fn say(&self, line: String) {
        *self.last_line.borrow_mut() = line;
    }

    /// Waits until the client has cancelled the call.
    pub(super) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }

    /// Waits for a run; a client that has asked for progress gets a notification every five seconds.
    pub(super) async fn watch<T>(&self, run: impl Future<Output = T>) -> T {
        tokio::select! {
            result = run => result,
            () = self.send_progress() => std::future::pending().await,
        }
    }

    /// Asks the client's person, on the stream of the call: over HTTP a client may have no other one.
    async fn elicit(&self, parameters: ElicitRequestParams) -> Result<ClientResult, ServiceError> {
        let mut request = ElicitRequest::new(parameters);
        let call = OriginatingRequestId(self.context.id.clone());
        request.extensions.insert(call);
        let request = ServerRequest::ElicitRequest(request);
        let options = PeerRequestOptions::with_timeout(ANSWER_TIMEOUT);
        let peer = &self.context.peer;
        let sent = peer.send_request_with_option(request, options).await?;
        let mut open = OpenElicitation {
            peer,
            id: Some(sent.id.clone()),
        };
        let response = sent.await_response().await;
        open.id = None;
        response
    }

    async fn send_progress(&self) {
        let Some(token) = self.context.meta.get_progress_token() else {
            return std::future::pending().await;
        };
        let mut elapsed = Duration::ZERO;
        loop {
            tokio::time::sleep(PROGRESS).await;
            elapsed += PROGRESS;
            let last_line = self.last_line.borrow().clone();
            let mut notification =
                ProgressNotificationParam::new(token.clone(), elapsed.as_secs_f64());
            notification.message =
                (!last_line.is_empty()).then(|| visible_line(&plain(&last_line)).into_owned());
            // A client that has gone has closed stdin as well, which ends the server.
            let _ = self.context.peer.notify_progress(notification).await;
        }
    }
}

/// A question that the client shows. If its answer is no longer awaited, the client is told so.
struct OpenElicitation<'a> {
    peer: &'a Peer<RoleServer>,
    id: Option<RequestId>,
}

impl Drop for OpenElicitation<'_> {
    fn drop(&mut self) {
        if self.id.is_none() {
            return;
        }
        let (peer, request_id) = (self.peer.clone(), self.id.take());
        tokio::spawn(async move {
            let reason = Some("the question is no longer open".to_owned());
            let cancelled = CancelledNotificationParam::new(request_id, reason);
            // A client that has gone shows nothing.
            let _ = peer.notify_cancelled(cancelled).await;
        });
    }
}

impl JobObserver for RunWatcher<'_> {
    /// A client that can shows a question to its person, but no question for a password: the protocol forbids
    /// to ask for secrets in this way.
    fn can_answer(&self, prompt: &JobPrompt) -> bool {
        !prompt.password && !is_stateless(self.context) && can_ask(self.context)
    }

    async fn answer(&self, prompt: &JobPrompt, _: &[OutputText]) -> PromptAnswer {
        let Some(form) = form(prompt) else {
            return PromptAnswer::None;
        };
        match self.elicit(form).await {
            Ok(ClientResult::ElicitResult(response)) => {
                text_of(response).map_or(PromptAnswer::None, PromptAnswer::Text)
            }
            Ok(_) | Err(_) => PromptAnswer::None,
        }
    }

    fn on_record(&self, _: &Job, last_line: &str) {
        // The job is in the queue: the next call may follow.
        self.turn.end();
        last_line.clone_into(&mut self.last_line.borrow_mut());
    }

    async fn interrupted(&self) {
        self.cancelled.notified().await;
    }
}

/// Returns the answer to a request that began a run.
pub(super) async fn run_answer(
    caller: &Caller,
    answer: &impl Answer,
    run: &RunAnswer,
    before: impl IntoIterator<Item = String>,
) -> ToolAnswer {
    let mut parts: Vec<_> = before.into_iter().map(Part::Own).collect();
    let (status, id) = match run {
        RunAnswer::Begun(job) => {
            let text = format!("run {} · {}", job.job, describe(&job.record));
            parts.push(Part::Own(text));
            ("running", &job.job)
        }
        RunAnswer::Followed(job) => {
            parts.extend(report_parts(job));
            (status(job.verdict()), &job.job)
        }
    };
    let mut tool_answer = ToolAnswer::of(caller, answer, parts).await;
    if let RunAnswer::Followed(job) = run {
        let runs = job.runs().into_iter();
        tool_answer.images = runs.flat_map(|run| run.images.clone()).collect();
    }
    let record = match run {
        RunAnswer::Begun(job) => &job.record,
        RunAnswer::Followed(job) => &job.record,
    };
    tool_answer.code = record.cells.iter().map(|cell| cell.code.clone()).collect();
    tool_answer.field("status", status);
    tool_answer.field("run_id", id.as_str());
    tool_answer
}

/// Returns the status of a run as one word.
fn status(verdict: JobVerdict) -> &'static str {
    match verdict {
        JobVerdict::Succeeded => "ok",
        JobVerdict::Raised => "error",
        JobVerdict::Interrupted => "interrupted",
        JobVerdict::NoKernel => "no_kernel",
        JobVerdict::Aborted => "aborted",
        JobVerdict::Edited => "conflict",
        JobVerdict::StillRunning => "timeout",
        JobVerdict::Asks => "waiting_input",
        JobVerdict::Failed => "failed",
    }
}

fn report_parts(job: &JobAnswer) -> Vec<Part> {
    let mut parts = Vec::new();
    for piece in report(job) {
        match piece {
            Piece::Head(line) => parts.push(Part::Own(line)),
            Piece::Outputs(outputs) => match &outputs.in_order {
                Some(text) => parts.push(Part::Others(plain(text))),
                None => {
                    parts.push(Part::Others(plain(&outputs.out)));
                    parts.push(Part::Others(plain(&outputs.err)));
                }
            },
            Piece::Note(note) => parts.push(Part::Own(as_tools(&note))),
        }
    }
    parts
}

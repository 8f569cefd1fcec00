//! The record of each call about a notebook, for `nb log --audit`, and the limit of calls.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rmcp::RoleServer;
use rmcp::model::JsonObject;
use rmcp::service::RequestContext;
use sha2::{Digest, Sha256};

use super::result::ToolAnswer;
use crate::api::caller::Caller;
use crate::api::problem::{Problem, ProblemKind};
use crate::code::risks::{Risk, risks};
use crate::project::Session as KernelSession;
use crate::project::event::{Event, EventKind, ToolCall};

/// How many of the journal's last bytes are searched for an edit.
const RECENT_BYTES: u64 = 64 << 10;

/// How many warnings a call has at most.
const MOST_WARNINGS: usize = 20;

/// The longest name or version of a client that is recorded, in characters.
const LONGEST_WORD: usize = 64;

/// A call that is under way.
pub(super) struct CallRecord {
    started: Instant,
    client: Option<(String, String)>,
    session: String,
    tool: &'static str,
    arguments: String,
}

impl CallRecord {
    /// Begins the record of a call.
    pub(super) fn begin(
        session: &str,
        tool: &'static str,
        arguments: &JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Self {
        let arguments = serde_json::to_vec(arguments).unwrap_or_default();
        let client = context.client_info();
        Self {
            started: Instant::now(),
            client: client.map(|client| (printable(&client.name), printable(&client.version))),
            session: session.to_owned(),
            tool,
            arguments: hex::encode(Sha256::digest(&arguments)),
        }
    }

    /// Writes the record into the calls of the notebook's project, if it has one.
    pub(super) async fn end(self, caller: &Caller, outcome: &Result<ToolAnswer, Problem>) {
        let Some(target) = caller.target_notebook() else {
            return;
        };
        let (op, code, result) = match outcome {
            Ok(answer) => (answer.op.clone(), answer.code.clone(), answer.status()),
            Err(problem) => (None, Vec::new(), problem.kind.word()),
        };
        let (client, client_version) = self.client.unzip();
        let mut call = ToolCall {
            client,
            client_version,
            client_session: self.session,
            tool: self.tool.to_owned(),
            arguments: self.arguments,
            before: None,
            after: None,
            result,
            took_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            warnings: Vec::new(),
        };
        let (project, key) = (target.project.clone(), target.key.clone());
        let by = caller.by().to_owned();
        let written = tokio::task::spawn_blocking(move || {
            if let Some(op) = op {
                let recent = project.events(&key).within(RECENT_BYTES);
                let mut changes = recent.filter_map(Event::into_change);
                let change = changes.find(|change| change.op.as_ref() == Some(&op));
                call.before = change.as_ref().map(|change| change.before);
                call.after = change.as_ref().map(|change| change.after);
            }
            let state = project.state().ok();
            let kernel = state.and_then(|state| state.session(&state.owner_key(&key)));
            call.warnings = warnings(&code, kernel.as_ref());
            project.record_call(&Event {
                by: Some(by),
                ..Event::now(&key, EventKind::Called(call))
            });
        });
        let _ = written
            .await
            .inspect_err(|error| tracing::warn!(%error, "a call is not recorded"));
    }
}

/// Returns a client's word as it may be printed.
fn printable(text: &str) -> String {
    let printed = text.chars().filter(|c| !c.is_control());
    printed.take(LONGEST_WORD).collect()
}

/// Returns warnings about code that was run, for a reviewer. Use of the network is reported only for a kernel that must
/// not use it.
fn warnings(code: &[String], kernel: Option<&KernelSession>) -> Vec<String> {
    let is_python = |kernel: &KernelSession| {
        let kernelspec = kernel.kernelspec.as_ref();
        kernelspec
            .is_none_or(|it| it.language.is_empty() || it.language.eq_ignore_ascii_case("python"))
    };
    if !kernel.is_none_or(is_python) {
        return Vec::new();
    }
    let is_offline = kernel.is_some_and(|kernel| {
        let sandbox = kernel.sandbox();
        sandbox.is_some_and(|sandbox| !sandbox.allow_net)
    });
    let findings = code.iter().flat_map(|code| risks(code));
    let findings = findings.filter(|it| it.risk != Risk::Network || is_offline);
    findings
        .map(|it| it.to_string())
        .take(MOST_WARNINGS)
        .collect()
}

/// A limit of calls within a minute.
#[derive(Debug)]
pub(super) struct RateLimit {
    limit: usize,
    calls: VecDeque<Instant>,
}

impl RateLimit {
    /// The time in which calls are counted.
    const SPAN: Duration = Duration::from_secs(60);

    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            calls: VecDeque::new(),
        }
    }

    /// Counts a call.
    ///
    /// # Errors
    /// There were too many; the call is not counted.
    pub(super) fn count(&mut self, now: Instant) -> Result<(), TooManyCalls> {
        let is_old = |at: &Instant| now.duration_since(*at) >= Self::SPAN;
        while self.calls.front().is_some_and(is_old) {
            self.calls.pop_front();
        }
        match self.calls.front() {
            Some(first) if self.calls.len() >= self.limit => {
                let left = Self::SPAN.saturating_sub(now.duration_since(*first));
                Err(TooManyCalls {
                    limit: self.limit,
                    retry_in_s: left.as_secs() + u64::from(left.subsec_nanos() > 0),
                })
            }
            _ => {
                self.calls.push_back(now);
                Ok(())
            }
        }
    }
}

/// A call beyond the limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooManyCalls {
    limit: usize,
    /// After how many seconds there may be another call.
    pub(super) retry_in_s: u64,
}

impl TooManyCalls {
    /// Returns it as a problem.
    pub(super) fn problem(self) -> Problem {
        let text = format!("this server takes {} calls a minute", self.limit);
        let hint = format!("retry in {} s", self.retry_in_s);
        Problem::new(ProblemKind::Refused, text).hint(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_says_when_the_next_call_may_come() {
        let mut limit = RateLimit::new(2);
        let started = Instant::now();
        let after = |seconds| started + Duration::from_secs(seconds);
        limit.count(started).unwrap();
        limit.count(after(10)).unwrap();
        let refused = limit.count(after(15)).unwrap_err();
        assert_eq!(refused.problem().hints, ["retry in 45 s".into()]);
        limit.count(after(60)).unwrap();
        assert!(limit.count(after(69)).is_err());
        limit.count(after(70)).unwrap();
    }

    #[test]
    fn only_code_that_was_run_is_warned_of() {
        let code = [
            "import requests; requests.get(u)".to_owned(),
            "!ls".to_owned(),
        ];
        assert_eq!(warnings(&code, None), ["line 1 runs a shell command: !ls"]);
    }
}

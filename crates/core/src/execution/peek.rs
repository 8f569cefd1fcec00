//! Runs code beside the running cell, without a trace in the kernel's history.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::category;
use super::fold::read_all;
use super::inspect::{self, InspectError, Inspector};
use crate::client::{Execute, KernelException, OutputMessage};
use crate::kernel::witness::literal;
use crate::notebook::OutputAccumulator;
use crate::project::event::{Event, EventKind};
use crate::project::{ErrorCategory, Project, Session};

/// The result of the code.
#[derive(Debug, Default)]
pub struct Peeked {
    /// The outputs: what it printed and displayed, and its value or error.
    pub outputs: Vec<OutputMessage>,
    /// The kind of the error that it raised.
    pub category: Option<ErrorCategory>,
    /// Whether a cell ran at the same time.
    pub beside: bool,
}

/// Why the code was not run, or its result is not known.
#[derive(Debug, thiserror::Error)]
pub enum PeekError {
    /// The kernel cannot be inspected.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// The kernel gave an unexpected answer.
    #[error("the kernel does not run it beside: {0}")]
    Refused(String),
}

impl Peeked {
    /// Returns whether the code raised.
    pub fn raised(&self) -> bool {
        self.category.is_some()
    }
}

/// The result that `look.py` returns for code: the value of its last expression, or its error.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PeekResult {
    data: Option<Box<serde_json::value::RawValue>>,
    metadata: Option<Box<serde_json::value::RawValue>>,
    error: Option<KernelException>,
}

/// Runs code on a session's kernel, whose key in the project is `key`, as the actor `by`. It runs on
/// a subshell while a cell runs, else as a normal request; it has no execution count and is not in
/// the history. When `stop` is ready the code is interrupted; if it obeys, nothing of it stays in the
/// kernel.
///
/// # Errors
/// [`PeekError`]; a busy kernel without subshells is reported within seconds.
pub async fn peek(
    project: &Project,
    key: &str,
    session: &Session,
    by: &str,
    code: &str,
    wait: Option<Duration>,
    stop: impl Future<Output = ()>,
) -> Result<Peeked, PeekError> {
    let mut inspector = Inspector::join(project, key, session, by).await?;
    let beside = inspector.is_beside();
    let is_python = inspector
        .session()
        .language()
        .eq_ignore_ascii_case("python");
    let request = if is_python {
        let arguments = json!({ "code": code, "running": beside }).to_string();
        inspect::request(&format!("peek({})", literal(&arguments)), beside)
    } else {
        Execute {
            store_history: false,
            ..Execute::new(code)
        }
    };
    let answer = inspector.ask(&request, wait, stop).await;
    record(project, key, inspector.session(), by, code);
    // A subshell whose code still runs cannot be deleted.
    if matches!(answer, Ok(_) | Err(InspectError::Stopped { over: true })) {
        inspector.leave().await;
    }
    let answer = answer?;
    if let Some(why) = answer.failed {
        return Err(PeekError::Refused(why));
    }
    let mut outputs = OutputAccumulator::default();
    for message in &answer.messages {
        outputs.take(&message.msg_type, &message.content);
    }
    if is_python {
        let value = inspect::value(&answer.reply).map_err(PeekError::Refused)?;
        let result: PeekResult = serde_json::from_str(&value)
            .map_err(|error| PeekError::Refused(format!("its answer is unreadable: {error}")))?;
        if let Some(data) = result.data {
            let content = json!({ "data": data, "metadata": result.metadata.unwrap_or_default() });
            outputs.take("display_data", content.to_string().as_bytes());
        }
        if let Some(raised) = result.error {
            outputs.take("error", json!(raised).to_string().as_bytes());
        }
    }
    let outputs = read_all(&outputs);
    let raised = outputs.iter().rev().find_map(|it| match it {
        OutputMessage::Error(raised) => Some(raised),
        _ => None,
    });
    Ok(Peeked {
        category: raised.map(category::of_exception),
        outputs,
        beside,
    })
}

/// Records who ran what, as an event of its own kind, since it is not part of the kernel's queue.
fn record(project: &Project, key: &str, session: &Session, by: &str, code: &str) {
    let code = Some(code.to_owned());
    project.record(&[Event {
        generation: Some(session.generation),
        by: Some(by.to_owned()),
        ..Event::now(key, EventKind::Peeked { code })
    }]);
}

//! Code that is run beside whatever the kernel runs, and leaves no trace in its history.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::fold::Outputs;
use super::look::{self, Look, LookError, language};
use crate::client::{Execute, KernelException, Output};
use crate::project::event::{Event, EventKind};
use crate::project::{Project, Session};

/// What came of it.
#[derive(Debug, Default)]
pub struct Peeked {
    /// What it printed, displayed and gave, or raised.
    pub outputs: Vec<Output>,
    /// Whether a cell ran meanwhile.
    pub beside: bool,
}

/// Why it was not run, or what came of it is not known.
#[derive(Debug, thiserror::Error)]
pub enum PeekError {
    /// The kernel cannot be looked into.
    #[error(transparent)]
    Look(#[from] LookError),
    /// The kernel answered with something else.
    #[error("the kernel does not run it beside: {0}")]
    Refused(String),
}

impl Peeked {
    /// Returns whether the code raised.
    pub fn raised(&self) -> bool {
        self.outputs.iter().any(|it| matches!(it, Output::Error(_)))
    }
}

/// What the look tells of code that it has run: its last expression's value, or what it raised.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Found {
    data: Option<Box<serde_json::value::RawValue>>,
    metadata: Option<Box<serde_json::value::RawValue>>,
    error: Option<KernelException>,
}

/// Runs code on a session's kernel, whose key in the project is `key`, as `by`: on a subshell while a
/// cell runs, as any code else; it is not counted, and not in the history. When `stop` comes it is
/// interrupted, and nothing of it stays in the kernel where it heeds that.
///
/// # Errors
/// [`PeekError`]; a busy kernel without subshells says so within seconds.
pub async fn peek(
    project: &Project,
    key: &str,
    session: &Session,
    by: &str,
    code: &str,
    wait: Option<Duration>,
    stop: impl Future<Output = ()>,
) -> Result<Peeked, PeekError> {
    let mut look = Look::join(project, key, session, by).await?;
    let beside = look.is_beside();
    let is_python = language(look.session()).eq_ignore_ascii_case("python");
    let request = if is_python {
        let asked = json!({ "code": code, "running": beside }).to_string();
        look::request(&format!("peek({})", look::literal(&asked)), beside)
    } else {
        Execute {
            store_history: false,
            ..Execute::new(code)
        }
    };
    let answer = look.ask(&request, wait, stop).await;
    note(project, key, look.session(), by, code);
    // What is not over would not let its subshell go.
    if matches!(answer, Ok(_) | Err(LookError::Stopped { over: true })) {
        look.leave().await;
    }
    let answer = answer?;
    if let Some(why) = answer.failed {
        return Err(PeekError::Refused(why));
    }
    let mut outputs = Outputs::default();
    for told in &answer.told {
        outputs.take(&told.msg_type, &told.content);
    }
    if is_python {
        let value = look::value(&answer.reply).map_err(PeekError::Refused)?;
        let found: Found = serde_json::from_str(&value)
            .map_err(|error| PeekError::Refused(format!("its answer is unreadable: {error}")))?;
        if let Some(data) = found.data {
            let content = json!({ "data": data, "metadata": found.metadata.unwrap_or_default() });
            outputs.take("display_data", content.to_string().as_bytes());
        }
        if let Some(raised) = found.error {
            outputs.take("error", json!(raised).to_string().as_bytes());
        }
    }
    let outputs = outputs.read();
    Ok(Peeked { outputs, beside })
}

/// Notes who ran what: an event of its own, since it neither ends nor queues behind anything.
fn note(project: &Project, key: &str, session: &Session, by: &str, code: &str) {
    let code = Some(code.to_owned());
    project.record(&[Event {
        generation: Some(session.generation),
        by: Some(by.to_owned()),
        ..Event::now(key, EventKind::Peeked { code })
    }]);
}

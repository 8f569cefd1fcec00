//! Inspects a kernel beside the cell that it runs.
//!
//! An idle kernel gets an ordinary request. A kernel that runs a cell gets it on a new subshell, if it
//! has subshells (ipykernel 7); other kernels are busy, which is reported within seconds.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::run::{RunError, Runner};
use crate::client::{Client, ClientError, Execute, ExecutionEvent, IopubMessage, RequestEnd};
use crate::kernel::witness::literal;
use crate::lifecycle::server_connection::{self, LostConnection};
use crate::project::event::RunningExecution;
use crate::project::{Project, Session};
use crate::wire::Channel;

/// How long an idle kernel may take to answer.
const IDLE_TIMEOUT: Duration = Duration::from_millis(300);

/// How long a kernel may take to make or end a subshell.
const SUBSHELL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long code on a subshell may take to end once it is stopped. The code that stops it gives up
/// after a second.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// How long to wait for the message that the code has begun, after the caller has stopped it.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The state of code that the caller has stopped.
enum CodeState {
    Runs,
    IsOver,
}

/// How long to wait for a start or restart that another process began.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The Python code that inspects the kernel from inside.
const INSPECT_CODE: &str = include_str!("look.py");

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The kernel cannot be reached.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The kernel runs a cell and has no subshells.
    #[error("the kernel is busy")]
    Busy {
        /// The running cell, if known.
        behind: Option<RunningExecution>,
    },
    /// The connection to the kernel's server is not there.
    #[error("{0}")]
    Lost(LostConnection),
    /// The code has not ended in time; it continues to run.
    #[error("no answer after {} s", after.as_secs())]
    Late {
        /// The time limit.
        after: Duration,
        /// Whether it runs on a subshell, where an interrupt does not reach it.
        beside: bool,
    },
    /// The caller has stopped it.
    #[error("it was interrupted")]
    Stopped {
        /// Whether the code has ended: nothing of it is left in the kernel.
        over: bool,
    },
}

impl From<ClientError> for InspectError {
    fn from(error: ClientError) -> Self {
        Self::Run(error.into())
    }
}

/// A connection to a kernel that is inspected.
pub(super) struct Inspector {
    runner: Runner,
    /// The subshell that is used while the kernel runs a cell.
    subshell: Option<String>,
}

/// The answer of the kernel.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The iopub messages before the reply.
    pub(super) messages: Vec<IopubMessage>,
    /// The reply's content.
    pub(super) reply: Vec<u8>,
    /// The error, if the reply contains none.
    pub(super) failed: Option<String>,
}

impl Inspector {
    /// Connects to the kernel of a session, whose key in the project is `key`, as the actor `by`.
    ///
    /// # Errors
    /// The kernel cannot be reached, or is busy.
    pub(super) async fn join(
        project: &Project,
        key: &str,
        session: &Session,
        by: &str,
    ) -> Result<Self, InspectError> {
        let mut runner = Runner::join(project, key, session, by, Some(START_TIMEOUT)).await?;
        let (client, session) = runner.parts();
        // If the journal has a running cell, the main shell need not be asked.
        let is_busy = project.present(key, session.generation).running.is_some();
        if is_busy
            && has_subshells(session)
            && let Some(subshell) = create_subshell(client).await?
        {
            return Ok(Self {
                runner,
                subshell: Some(subshell),
            });
        }
        let subshell = match client.kernel_info(Channel::Shell, IDLE_TIMEOUT).await {
            Ok(_) => None,
            Err(ClientError::NoAnswer { .. }) => {
                if let Some(lost) = server_connection::lost(session) {
                    return Err(InspectError::Lost(lost));
                }
                let subshell = match has_subshells(session) {
                    true => create_subshell(client).await?,
                    false => None,
                };
                if subshell.is_none() {
                    let behind = project.present(key, session.generation).running;
                    return Err(InspectError::Busy { behind });
                }
                subshell
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { runner, subshell })
    }

    /// Returns whether the kernel runs a cell, so that a subshell is used.
    pub(super) fn is_beside(&self) -> bool {
        self.subshell.is_some()
    }

    /// Returns the session of the kernel.
    pub(super) fn session(&mut self) -> &Session {
        self.runner.parts().1
    }

    /// Sends a request that runs no code of the user, and returns the content of its reply.
    ///
    /// # Errors
    /// There was no answer in time, or the kernel has ended.
    pub(super) async fn request(
        &mut self,
        msg_type: &str,
        content: &Value,
        wait: Duration,
    ) -> Result<Value, InspectError> {
        let subshell = self.subshell.clone();
        let (client, _) = self.runner.parts();
        let (subshell, channel) = (subshell.as_deref(), Channel::Shell);
        let reply = client.request_in(subshell, channel, msg_type, content, wait);
        Ok(serde_json::from_slice(reply.await?.content()).unwrap_or_default())
    }

    /// Sends a request, and waits for its end, for the time limit or for `stop`.
    ///
    /// # Errors
    /// There was no answer in time, or the kernel has ended.
    pub(super) async fn ask(
        &mut self,
        request: &Execute,
        wait: Option<Duration>,
        stop: impl Future<Output = ()>,
    ) -> Result<Answer, InspectError> {
        let beside = self.is_beside();
        let (client, _) = self.runner.parts();
        let mut execution = client.start_in(self.subshell.as_deref(), request).await?;
        let mut answer = Answer::default();
        let begun = Notify::new();
        let (unanswered, begun) = {
            let answered = async {
                while let Some(event) = execution.next().await {
                    match event {
                        ExecutionEvent::Iopub(message) => answer.messages.push(message),
                        // No person could answer.
                        ExecutionEvent::Prompt(prompt) => execution.answer_eof(&prompt),
                        ExecutionEvent::Begun => begun.notify_one(),
                        ExecutionEvent::Counted(_) | ExecutionEvent::Stopped => {}
                    }
                }
            };
            tokio::pin!(answered);
            let late = async {
                match wait {
                    Some(after) => {
                        tokio::time::sleep(after).await;
                        after
                    }
                    None => std::future::pending().await,
                }
            };
            let unanswered = tokio::select! {
                biased;
                () = &mut answered => None,
                after = late => Some(InspectError::Late { after, beside }),
                () = stop => Some(InspectError::Stopped { over: false }),
            };
            let is_stopped = matches!(unanswered, Some(InspectError::Stopped { .. }));
            // The message that the code has begun may still be on its way.
            let begins = async {
                tokio::select! {
                    () = begun.notified() => CodeState::Runs,
                    () = &mut answered => CodeState::IsOver,
                }
            };
            let begun = match is_stopped {
                true => tokio::time::timeout(BEGIN_TIMEOUT, begins).await.ok(),
                false => None,
            };
            (unanswered, begun)
        };
        match unanswered {
            Some(InspectError::Stopped { .. }) => {
                let over = match begun {
                    Some(CodeState::Runs) => self.stop().await,
                    Some(CodeState::IsOver) => true,
                    // The kernel still runs another actor's cell, which must not be interrupted.
                    None => false,
                };
                return Err(InspectError::Stopped { over });
            }
            Some(late) => return Err(late),
            None => {}
        }
        if let Some(outcome) = execution.outcome() {
            answer.reply = outcome.reply.as_deref().unwrap_or_default().to_vec();
            answer.failed = match &outcome.end {
                RequestEnd::Ok | RequestEnd::Raised(_) => None,
                RequestEnd::Aborted => Some("another client's cell emptied its queue".to_owned()),
                RequestEnd::NoReply => Some("it went idle without a reply".to_owned()),
                RequestEnd::KernelGone(why) => {
                    return Err(ClientError::KernelGone(why.clone()).into());
                }
            };
        }
        Ok(answer)
    }

    /// Stops the code of the request; returns whether it has ended.
    async fn stop(&mut self) -> bool {
        let Some(subshell) = self.subshell.clone() else {
            return self.runner.interrupt().await;
        };
        let (client, _) = self.runner.parts();
        // Code in a subshell can be stopped only from another subshell.
        let Ok(Some(other)) = create_subshell(client).await else {
            return false;
        };
        let request_to_stop = request(&format!("stop({})", literal(&subshell)), true);
        let stopped = async {
            let mut execution = client.start_in(Some(&other), &request_to_stop).await.ok()?;
            while execution.next().await.is_some() {}
            value(execution.outcome()?.reply.as_deref()?).ok()
        };
        let stopped = tokio::time::timeout(STOP_TIMEOUT, stopped).await;
        if stopped.is_ok() {
            delete_subshell(client, &other).await;
        }
        stopped.is_ok_and(|value| value.as_deref() == Some("true"))
    }

    /// Deletes the subshell and closes the connection.
    pub(super) async fn leave(mut self) {
        if let Some(id) = self.subshell.take() {
            delete_subshell(self.runner.parts().0, &id).await;
        }
        self.runner.leave().await;
    }
}

/// Deletes a subshell that runs no code.
async fn delete_subshell(client: &mut Client, id: &str) {
    let content = json!({ "subshell_id": id });
    let ended = client
        .request(
            Channel::Control,
            "delete_subshell_request",
            &content,
            SUBSHELL_TIMEOUT,
        )
        .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "no answer to delete_subshell_request");
    }
}

/// Creates a subshell; `None` if the kernel creates none.
async fn create_subshell(client: &mut Client) -> Result<Option<String>, ClientError> {
    let create = "create_subshell_request";
    let reply = client
        .request(Channel::Control, create, &json!({}), SUBSHELL_TIMEOUT)
        .await;
    let reply = match reply {
        Ok(reply) => reply,
        Err(ClientError::NoAnswer { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let reply: Value = serde_json::from_slice(reply.content()).unwrap_or_default();
    Ok(reply["subshell_id"].as_str().map(str::to_owned))
}

fn has_subshells(session: &Session) -> bool {
    let info = session.kernel_info.as_ref();
    let features = info.and_then(|info| info["supported_features"].as_array());
    features.is_some_and(|features| features.iter().any(|it| it == "kernel subshells"))
}

/// Makes a request to a Python kernel whose answer is the value of a call of one of `look.py`'s
/// functions: no output, no execution count, no history. With `beside`, while a cell runs, IPython's
/// own actions around the request are suppressed.
pub(super) fn request(call: &str, beside: bool) -> Execute {
    let code = if beside {
        call_expression("guard()")
    } else {
        String::new()
    };
    let mut request = Execute::new(code);
    request.silent = true;
    request.store_history = false;
    // This flag belongs to the whole kernel until its next request: the running cell may ask for
    // input.
    request.allow_stdin = beside;
    request
        .user_expressions
        .insert("nb".to_owned(), call_expression(call).into());
    request
}

/// Returns an expression that calls a function of `look.py`, in a namespace that is dropped
/// afterwards.
fn call_expression(call: &str) -> String {
    let (code, call) = (literal(INSPECT_CODE), literal(call));
    // The user may have variables with the names of builtins.
    format!(
        "(lambda b, g: (b.exec({code}, g), b.eval({call}, g))[1])\
         (__import__(\"builtins\"), {{\"__name__\": \"nb\"}})"
    )
}

/// Parses the value of the call from the reply's content.
pub(super) fn value(content: &[u8]) -> Result<String, String> {
    let reply: Value = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    let value = &reply["user_expressions"]["nb"];
    let error = [value, &reply]
        .into_iter()
        .find_map(|it| Some((it["ename"].as_str()?, it["evalue"].as_str().unwrap_or(""))));
    if let Some((ename, evalue)) = error {
        return Err(format!("{ename}: {evalue}"));
    }
    let text = value["data"]["text/plain"].as_str();
    let text = text.ok_or_else(|| "it evaluates no expressions".to_owned())?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_a_literal_of_python() {
        assert_eq!(
            literal("a \"b\"\\\n…"),
            r#""a \"b\"\\\U0000000a\U00002026""#
        );
    }

    #[test]
    fn requests_are_silent() {
        for beside in [false, true] {
            let sent = serde_json::to_value(request("look()", beside)).expect("it is JSON");
            assert_eq!(sent["silent"], true);
            assert_eq!(sent["store_history"], false);
            assert_eq!(sent["stop_on_error"], false);
            assert_eq!(sent["allow_stdin"], beside);
            assert_eq!(sent["code"] == "", !beside);
        }
    }
}

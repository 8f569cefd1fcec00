//! Looking into a kernel beside whatever it runs.
//!
//! An idle kernel is asked as always. One that runs a cell is asked on a subshell of its own, where it
//! has them (ipykernel 7); elsewhere it is busy, and that is said within seconds.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::run::{RunError, Runner};
use crate::client::{Client, ClientError, Event, Execute, IopubMessage, RequestEnd};
use crate::project::event::RunningCell;
use crate::project::{Project, Session};
use crate::wire::Channel;

/// How long an idle kernel may take to say so.
const IDLE_ANSWER: Duration = Duration::from_millis(300);

/// How long a kernel may take to make or end a subshell.
const SUBSHELL: Duration = Duration::from_secs(2);

/// How long code on a subshell may take to end once it is to; asked for itself it says so after a
/// second.
const STOPS: Duration = Duration::from_secs(3);

/// How long the word that code has begun may be under way, when it is not wanted any more.
const BEGINS: Duration = Duration::from_secs(1);

/// How far code is that is not wanted any more.
enum Begun {
    Runs,
    IsOver,
}

/// How long a start or restart that others began is awaited.
const SETTLES: Duration = Duration::from_secs(20);

/// What looks, inside a Python kernel.
const LOOK: &str = include_str!("look.py");

/// Why nothing was seen.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The kernel cannot be asked.
    #[error(transparent)]
    Run(#[from] RunError),
    /// It runs a cell and cannot look meanwhile.
    #[error("the kernel is busy")]
    Busy {
        /// Whose, where that is known.
        behind: Option<RunningCell>,
    },
    /// What was asked is not over; it goes on.
    #[error("no answer after {} s", after.as_secs())]
    Late {
        /// After this.
        after: Duration,
        /// On a subshell, where nothing interrupts it.
        beside: bool,
    },
    /// Whoever asked wanted it no more.
    #[error("it was interrupted")]
    Stopped {
        /// It is over: nothing of it is left in the kernel.
        over: bool,
    },
}

impl From<ClientError> for LookError {
    fn from(error: ClientError) -> Self {
        Self::Run(error.into())
    }
}

/// A kernel that is looked into.
pub(super) struct Look {
    runner: Runner,
    /// Where it is asked while it runs a cell.
    subshell: Option<String>,
}

/// What the kernel answered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// What it said meanwhile.
    pub(super) told: Vec<IopubMessage>,
    /// The reply's content.
    pub(super) reply: Vec<u8>,
    /// What went wrong, where the reply does not say it.
    pub(super) failed: Option<String>,
}

impl Look {
    /// Joins the kernel of a session, whose key in the project is `key`, as `by`.
    ///
    /// # Errors
    /// It cannot be reached, or is busy.
    pub(super) async fn join(
        project: &Project,
        key: &str,
        session: &Session,
        by: &str,
    ) -> Result<Self, LookError> {
        let mut runner = Runner::join(project, key, session, by, Some(SETTLES)).await?;
        let (client, session) = runner.parts();
        let subshell = match client.kernel_info(Channel::Shell, IDLE_ANSWER).await {
            Ok(_) => None,
            Err(ClientError::NoAnswer { .. }) => {
                let made = match has_subshells(session) {
                    true => make(client).await?,
                    false => None,
                };
                if made.is_none() {
                    let behind = project.present(key, session.generation).running;
                    return Err(LookError::Busy { behind });
                }
                made
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { runner, subshell })
    }

    /// Returns whether a cell runs meanwhile.
    pub(super) fn is_beside(&self) -> bool {
        self.subshell.is_some()
    }

    /// Returns what is known of the kernel.
    pub(super) fn session(&mut self) -> &Session {
        self.runner.parts().1
    }

    /// Asks, and waits for the answer to its end, or until that is wanted no more.
    ///
    /// # Errors
    /// None came in time, or the kernel is gone.
    pub(super) async fn ask(
        &mut self,
        request: &Execute,
        wait: Option<Duration>,
        stop: impl Future<Output = ()>,
    ) -> Result<Answer, LookError> {
        let beside = self.is_beside();
        let (client, _) = self.runner.parts();
        let mut execution = client.start_in(self.subshell.as_deref(), request).await?;
        let mut answer = Answer::default();
        let begun = Notify::new();
        let (unanswered, begun) = {
            let heard = async {
                while let Some(event) = execution.next().await {
                    match event {
                        Event::Iopub(told) => answer.told.push(told),
                        // Nobody is asked.
                        Event::Prompt(prompt) => execution.answer_eof(&prompt),
                        Event::Begun => begun.notify_one(),
                        Event::Counted(_) => {}
                    }
                }
            };
            tokio::pin!(heard);
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
                () = &mut heard => None,
                after = late => Some(LookError::Late { after, beside }),
                () = stop => Some(LookError::Stopped { over: false }),
            };
            let is_stopped = matches!(unanswered, Some(LookError::Stopped { .. }));
            // That it has begun may be under way yet.
            let begins = async {
                tokio::select! {
                    () = begun.notified() => Begun::Runs,
                    () = &mut heard => Begun::IsOver,
                }
            };
            let begun = match is_stopped {
                true => tokio::time::timeout(BEGINS, begins).await.ok(),
                false => None,
            };
            (unanswered, begun)
        };
        match unanswered {
            Some(LookError::Stopped { .. }) => {
                let over = match begun {
                    Some(Begun::Runs) => self.stop().await,
                    Some(Begun::IsOver) => true,
                    // The kernel runs another's cell, which is not ours to end.
                    None => false,
                };
                return Err(LookError::Stopped { over });
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

    /// Ends the code that was asked for; says whether it is over.
    async fn stop(&mut self) -> bool {
        let Some(subshell) = self.subshell.clone() else {
            return self.runner.interrupt().await;
        };
        let (client, _) = self.runner.parts();
        // Only another subshell can still do something in there.
        let Ok(Some(other)) = make(client).await else {
            return false;
        };
        let asked = request(&format!("stop({})", literal(&subshell)), true);
        let stopped = async {
            let mut execution = client.start_in(Some(&other), &asked).await.ok()?;
            while execution.next().await.is_some() {}
            value(execution.outcome()?.reply.as_deref()?).ok()
        };
        let stopped = tokio::time::timeout(STOPS, stopped).await;
        if stopped.is_ok() {
            end(client, &other).await;
        }
        stopped.is_ok_and(|said| said.as_deref() == Some("true"))
    }

    /// Leaves nothing behind.
    pub(super) async fn leave(mut self) {
        if let Some(id) = self.subshell.take() {
            end(self.runner.parts().0, &id).await;
        }
        self.runner.leave().await;
    }
}

/// Ends a subshell that runs nothing.
async fn end(client: &mut Client, id: &str) {
    let end = json!({ "subshell_id": id });
    let ended = client
        .request(Channel::Control, "delete_subshell_request", &end, SUBSHELL)
        .await;
    if let Err(error) = ended {
        tracing::debug!(%error, "a subshell was not seen to end");
    }
}

/// Makes a subshell; none where the kernel makes none after all.
async fn make(client: &mut Client) -> Result<Option<String>, ClientError> {
    let create = "create_subshell_request";
    let made = client
        .request(Channel::Control, create, &json!({}), SUBSHELL)
        .await;
    let made = match made {
        Ok(made) => made,
        Err(ClientError::NoAnswer { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let made: Value = serde_json::from_slice(made.content()).unwrap_or_default();
    Ok(made["subshell_id"].as_str().map(str::to_owned))
}

fn has_subshells(session: &Session) -> bool {
    let info = session.kernel_info.as_ref();
    let features = info.and_then(|info| info["supported_features"].as_array());
    features.is_some_and(|them| them.iter().any(|it| it == "kernel subshells"))
}

/// Returns the language that a session's kernel runs.
pub(super) fn language(session: &Session) -> String {
    let info = session.kernel_info.as_ref();
    let said = info.and_then(|info| info["language_info"]["name"].as_str());
    let spec = session.kernelspec.as_ref();
    match (said, spec) {
        (Some(name), _) => name.to_owned(),
        (None, Some(spec)) if !spec.language.is_empty() => spec.language.clone(),
        // An attached kernel of which nothing is known: it will say.
        (None, _) => "python".to_owned(),
    }
}

/// Makes a request to a Python kernel whose answer is the value of a call of the look's functions: no
/// output, no count, no history. While a cell runs, `beside`, IPython's own doings round it are held
/// off.
pub(super) fn request(call: &str, beside: bool) -> Execute {
    let code = if beside {
        calling("guard()")
    } else {
        String::new()
    };
    let mut request = Execute::new(code);
    request.silent = true;
    request.store_history = false;
    // It is the whole kernel's flag until the next request: the running cell may ask.
    request.allow_stdin = beside;
    request
        .user_expressions
        .insert("nb".to_owned(), calling(call).into());
    request
}

/// Returns an expression that calls a function of the look, in a namespace that goes with it.
fn calling(call: &str) -> String {
    let (look, call) = (literal(LOOK), literal(call));
    // The user may have a variable of the name of any builtin.
    format!(
        "(lambda b, g: (b.exec({look}, g), b.eval({call}, g))[1])\
         (__import__(\"builtins\"), {{\"__name__\": \"nb\"}})"
    )
}

/// Writes a text as Python's literal: JSON's strings in ASCII mean the same there.
pub(super) fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 16);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            c => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}

/// Reads the value of the call from the reply's content.
pub(super) fn value(content: &[u8]) -> Result<String, String> {
    let reply: Value = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    let value = &reply["user_expressions"]["nb"];
    let said = [value, &reply]
        .into_iter()
        .find_map(|it| Some((it["ename"].as_str()?, it["evalue"].as_str().unwrap_or(""))));
    if let Some((ename, evalue)) = said {
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
    fn what_is_sent_is_silent() {
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

//! What comes from the kernel, and what it means for the requests that are outstanding.

use serde::Deserialize;

use super::bridge::Bridge;
use super::request::{Answer, Key, Request};
use super::timer::{Now, Timer};
use super::{Action, ClientId, Execution, Note, Phase};
use crate::wire::{Channel, Header, Verified};

impl Bridge {
    pub(super) fn deliver(&mut self, id: &ClientId, channel: Channel, message: Verified) {
        let budget = self.settings.undelivered_bytes;
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let Some(state) = client.on(channel) else {
            return;
        };
        if state.joined {
            return self.actions.push_back(Action::ToClient {
                client: id.clone(),
                channel,
                message,
            });
        }
        // It may not have connected this socket yet, or be between two connections.
        state.undelivered_bytes += message.size();
        state.undelivered.push_back(message);
        let mut dropped = 0;
        while state.undelivered_bytes > budget {
            let Some(oldest) = state.undelivered.pop_front() else {
                break;
            };
            state.undelivered_bytes -= oldest.size();
            dropped += 1;
        }
        if dropped > 0 {
            self.log(Note::Undeliverable {
                client: id.clone(),
                channel,
                count: dropped,
            });
        }
    }

    /// Returns the session to put in the place of this one, if clients know another.
    pub(super) fn other_session(&mut self, session: &str) -> Option<String> {
        if session.is_empty() {
            return None;
        }
        let known = self.voice.session(Some(session));
        (known != session).then(|| known.to_owned())
    }

    pub(super) fn replied(&mut self, now: Now, key: &Key, header: &Header<'_>, message: &Verified) {
        let Some(request) = self.requests.get_mut(key) else {
            return;
        };
        if request.reply_type().as_deref() != Some(&*header.msg_type) {
            return;
        }
        request.replied = true;
        if let Some(sent_at) = request.sent_at.take() {
            self.replies
                .take(now.instant.saturating_duration_since(sent_at));
        }
        if request.journalled {
            request.journalled = false;
            let status = reply_status(message.content());
            let execution = done(self.generation, key, request, status);
            self.actions.push_back(Action::Journal(execution));
        }
        // An answered cell asks nothing any more.
        if request.msg_type == "execute_request" {
            let id = request.client.clone();
            if let Some(client) = self.clients.get_mut(&id) {
                client
                    .prompt
                    .take_if(|prompt| prompt.cell.as_ref() == Some(key));
            }
        }
        let asks = request.lacks_lost_idle();
        let lacks_idle = request.lacks_idle();
        self.finish(now, key);
        if asks {
            self.ask_on_shell(now);
        } else if lacks_idle {
            self.await_idle(now);
        }
    }

    pub(super) fn status(&mut self, now: Now, key: &Key, parent: &Header<'_>, state: &str) {
        if let Some(request) = self.requests.get_mut(key) {
            request.busy |= state == "busy";
            request.idle |= state == "idle";
            request.unheard &= state != "busy";
        }
        // What a subshell runs takes nobody's turn.
        match state {
            _ if parent.subshell_id.is_some() => {}
            "busy" => self.begins(now, key, parent),
            "idle" => self.ends(now, key, parent),
            _ => {}
        }
        self.finish(now, key);
    }

    /// Forgets a request whose answer is complete.
    pub(super) fn finish(&mut self, now: Now, key: &Key) {
        if self
            .requests
            .get_mut(key)
            .is_some_and(|request| request.is_done())
            && let Some(request) = self.requests.remove(key)
        {
            self.timers.stop(&Timer::Stale(key.clone()));
            if request.answer == Answer::FromKernel {
                self.settled(now, &request.client);
            }
        }
    }

    pub(super) fn settled(&mut self, now: Now, id: &ClientId) {
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        client.outstanding = client.outstanding.saturating_sub(1);
        if client.outstanding == 0 && !client.is_joined() && id.is_anonymous() {
            self.timers.start(now.instant, Timer::Gone(id.clone()));
        }
    }

    /// Writes down what somebody else runs on the shared kernel.
    pub(super) fn see(&mut self, message: &Verified) {
        #[derive(Deserialize)]
        struct Input {
            code: String,
            #[serde(default)]
            execution_count: u64,
        }
        let Ok(parent) = message.parent() else { return };
        let Some(key) = Key::of(&parent) else { return };
        let Ok(input) = serde_json::from_slice::<Input>(message.content()) else {
            return;
        };
        self.execution_count = input.execution_count;
        if self.requests.contains(&key) {
            return;
        }
        self.seen = Some(Seen {
            key: key.clone(),
            raised: false,
        });
        self.actions.push_back(Action::Journal(Execution {
            phase: Phase::Seen,
            generation: self.generation,
            msg_id: key.msg_id().to_owned(),
            client: None,
            session: parent.session.into_owned(),
            username: parent.username.into_owned(),
            cell: None,
            code: Some(input.code),
            store_history: true,
        }));
    }
}

/// What somebody else runs.
#[derive(Debug)]
pub(super) struct Seen {
    key: Key,
    /// An error was among its outputs.
    raised: bool,
}

impl Bridge {
    /// Notes that what somebody else runs has raised.
    pub(super) fn saw_error(&mut self, message: &Verified) {
        if let Some(seen) = &mut self.seen
            && let Ok(parent) = message.parent()
            && Key::of(&parent).as_ref() == Some(&seen.key)
        {
            seen.raised = true;
        }
    }

    /// Writes down that what somebody else ran has ended; its reply goes to its asker alone.
    pub(super) fn saw_end(&mut self, key: &Key, parent: &Header<'_>) {
        let Some(seen) = self.seen.take_if(|seen| seen.key == *key) else {
            return;
        };
        self.actions.push_back(Action::Journal(Execution {
            phase: Phase::Over {
                raised: seen.raised,
            },
            generation: self.generation,
            msg_id: key.msg_id().to_owned(),
            client: None,
            session: parent.session.clone().into_owned(),
            username: parent.username.clone().into_owned(),
            cell: None,
            code: None,
            store_history: true,
        }));
    }

    /// Remembers whose request led to a comm of the kernel's.
    pub(super) fn see_comm(&mut self, message: &Verified) {
        let key = message.parent().ok().and_then(|parent| Key::of(&parent));
        let asker = key
            .and_then(|key| self.requests.get_mut(&key))
            .map(|request| request.client.clone());
        self.comms.opened(message.content(), asker);
    }
}

/// Returns the `status` of a reply.
fn reply_status(content: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Reply {
        status: String,
    }
    serde_json::from_slice::<Reply>(content).map_or_else(|_| "unknown".into(), |reply| reply.status)
}

/// Returns the journal's line for an execution that ended.
pub(super) fn done(generation: u64, key: &Key, request: &Request, status: String) -> Execution {
    Execution {
        phase: Phase::Done(status),
        generation,
        msg_id: key.msg_id().to_owned(),
        client: Some(request.client.clone()),
        session: request.session.clone(),
        username: request.username.clone(),
        cell: None,
        code: None,
        store_history: true,
    }
}

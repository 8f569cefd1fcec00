//! Turns: one cell runs at a time, and a person's cell waits here while somebody else's runs.
//!
//! A kernel queues what it is sent, and an interrupt hits whatever runs first. So a cell that
//! waits behind another's stays on this side, where its own user can take it back without
//! touching the one that runs. It also keeps a failing cell's `stop_on_error`, by which ipykernel
//! aborts the queued requests of **all** clients, to its own client's queue.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use super::bridge::Bridge;
use super::kernel::Ending;
use super::request::{Answer, Key, Request, Role};
use super::timer::{Now, Timer};
use super::{Action, ClientId, Note};
use crate::wire::{Channel, Header, Verified};

/// What runs on the kernel's shell, as iopub and the proxy's own questions tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Running {
    /// Nothing, as far as is known.
    #[default]
    Nothing,
    /// An execute request that began.
    Cell {
        key: Key,
        /// Whose it is; `None` for one that did not come through this proxy.
        client: Option<ClientId>,
    },
    /// Something that began before this proxy listened: the kernel does not answer on shell.
    Something,
}

impl Running {
    /// Returns whether it is nothing of this client's.
    fn is_anothers(&self, id: &ClientId) -> bool {
        match self {
            Self::Nothing => false,
            Self::Cell { client, .. } => client.as_ref() != Some(id),
            Self::Something => true,
        }
    }

    /// Returns whether it came from outside this front end.
    fn is_foreign(&self) -> bool {
        matches!(self, Self::Cell { client: None, .. } | Self::Something)
    }
}

/// How long the kernel may take to answer on shell before something is taken to be running.
pub(super) const BUSY: Duration = Duration::from_millis(200);

/// How long after the kernel was idle for certain a missing `idle` is given up.
pub(super) const IDLE_LOST: Duration = Duration::from_secs(1);

impl Bridge {
    /// Returns whether a client's cell must wait for another's.
    pub(super) fn must_wait(&self, id: &ClientId, key: Option<&Key>) -> bool {
        self.policies.turns
            && self.running.is_anothers(id)
            && key.is_some_and(|key| self.requests.role(key) == Some(Role::Cell))
    }

    /// A cell begins to wait for another's.
    pub(super) fn waits(&mut self, now: Now, id: &ClientId, key: &Key) {
        self.log(Note::CellHeld {
            client: id.clone(),
            msg_id: key.msg_id().to_owned(),
        });
        // An `idle` that was lost on the way must not hold it for ever: what is asked on shell
        // now is answered once the kernel is through with what it has.
        self.ask_on_shell(now);
    }

    /// The kernel has begun a request.
    pub(super) fn begins(&mut self, now: Now, key: &Key, parent: &Header<'_>) {
        if parent.msg_type != "execute_request" {
            return;
        }
        let client = self
            .requests
            .get_mut(key)
            .map(|request| request.client.clone());
        self.running = Running::Cell {
            key: key.clone(),
            client,
        };
        self.prove_idles_lost(now, key);
        if self.requests.answer(key) == Some(Answer::Withdrawn) {
            // Its user took it back while it was in the kernel's queue, from where nothing returns.
            self.interrupt_kernel(now);
        }
    }

    /// The kernel has ended a request.
    pub(super) fn ends(&mut self, now: Now, key: &Key, parent: &Header<'_>) {
        let over = match &self.running {
            Running::Nothing => false,
            Running::Cell { key: running, .. } => running == key,
            Running::Something => parent.msg_type == "execute_request",
        };
        if over && matches!(self.running, Running::Cell { client: None, .. }) {
            self.saw_end(key, parent);
        }
        if parent.session == self.settings.id {
            self.tell_lost_idles(now, key);
        }
        if over || self.probe.on_shell.as_ref() == Some(key) {
            // The own question was served: nothing else is, at this place in the order of iopub.
            self.is_idle(now);
        }
    }

    /// The kernel's shell has nothing to do: whoever waited may go.
    pub(super) fn is_idle(&mut self, now: Now) {
        self.running = Running::Nothing;
        self.release_all(now);
    }

    /// The kernel has answered the proxy's own question on shell.
    pub(super) fn shell_answers(&mut self, now: Now) {
        self.probe.on_shell = None;
        self.timers.stop(&Timer::Busy);
        let unproven = |request: &Request| request.lacks_lost_idle() && request.proof.is_none();
        if !self.requests.keys(unproven).is_empty() {
            self.ask_on_shell(now);
        }
        match self.running {
            Running::Nothing => {}
            Running::Something => self.is_idle(now),
            // Its idle is still on the way, or lost.
            Running::Cell { .. } => {
                self.probe.ran = self.running.clone();
                self.timers.start(now.instant + IDLE_LOST, Timer::IdleLost);
            }
        }
    }

    /// The proxy's own question was served: so was what had all its answer when it was asked, but
    /// for an `idle` that came while iopub was lost.
    fn tell_lost_idles(&mut self, now: Now, question: &Key) {
        let proven = |request: &Request| request.proof.as_ref() == Some(question);
        for key in self.requests.keys(proven) {
            let lacks_it = |request: &mut Request| request.lacks_lost_idle();
            if self.requests.get_mut(&key).is_some_and(lacks_it) {
                self.make_up_for_idle(now, &key);
            }
        }
    }

    /// What runs has ended, although the kernel's own word of it was lost.
    pub(super) fn ended(&mut self, now: Now, key: &Key) {
        if matches!(&self.running, Running::Cell { key: running, .. } if running == key) {
            self.is_idle(now);
        }
    }

    /// Clients that were let in by an `idle` of ours learn that something runs.
    pub(super) fn tell_busy(&mut self, now: Now) {
        if self.running != Running::Nothing {
            let busy = self.voice.status(now, self.running_header.clone(), "busy");
            self.actions.push_back(Action::Publish(busy));
        }
    }

    /// The kernel has not answered on shell for a while.
    pub(super) fn seems_busy(&mut self) {
        if self.probe.on_shell.is_some() && self.running == Running::Nothing {
            self.running = Running::Something;
            self.running_header = Bytes::from_static(b"{}");
        }
    }

    /// The kernel was idle, and what ran then still seems to run.
    pub(super) fn idle_lost(&mut self, now: Now) {
        if self.running == self.probe.ran {
            self.is_idle(now);
        }
    }

    /// Takes back the cells of this front end that have not begun, where something else runs.
    /// Returns how many.
    ///
    /// Of all its clients: a Jupyter server sends its interrupts as another client than the
    /// window whose cells they are for.
    pub(super) fn withdraw(&mut self, now: Now) -> usize {
        let ending = Ending {
            name: "KeyboardInterrupt",
            text: "stopped while it waited for another's cell: it did not run".into(),
        };
        let waiting = self.withdrawable();
        if waiting.is_empty() {
            return 0;
        }
        for key in &waiting {
            let sent = self
                .requests
                .get_mut(key)
                .is_some_and(|request| request.sent);
            self.clear_shown(now, key);
            if sent {
                self.fail_early(now, &ending, key);
                // The kernel has not begun with it.
                if let Some(request) = self.requests.get_mut(key) {
                    request.busy = false;
                }
            } else {
                self.take_held(key);
                self.fail_one(now, &ending, key);
            }
        }
        self.release_all(now);
        waiting.len()
    }

    /// Returns the cells of this front end that have not begun, where something else runs.
    pub(super) fn withdrawable(&self) -> Vec<Key> {
        if self.kernel.is_live() && !self.running.is_foreign() {
            return Vec::new();
        }
        self.requests.keys(|request| {
            request.role == Role::Cell
                && !(request.busy || request.replied)
                && request.answer == Answer::FromKernel
        })
    }

    /// Takes away what a cell showed before, which VS Code leaves above the error that follows.
    fn clear_shown(&mut self, now: Now, key: &Key) {
        let Some(request) = self.requests.get_mut(key) else {
            return;
        };
        request.busy = true;
        let parent = request.header.clone();
        let busy = self.voice.status(now, parent.clone(), "busy");
        let content = json!({ "wait": false });
        let clear = self.voice.publish(now, "clear_output", parent, &content);
        self.actions.extend([busy, clear].map(Action::Publish));
    }

    /// Takes a message out of its client's queue.
    pub(super) fn take_held(&mut self, key: &Key) -> Option<(ClientId, Channel, Verified)> {
        let (id, channel) = {
            let request = self.requests.get_mut(key)?;
            (request.client.clone(), request.channel)
        };
        let client = self.clients.get_mut(&id)?;
        let held = &mut client.on(channel)?.held;
        let at = held
            .iter()
            .position(|held| held.key.as_ref() == Some(key))?;
        let message = held.remove(at)?.message;
        client.held_bytes = client.held_bytes.saturating_sub(message.size());
        Some((id, channel, message))
    }

    /// Interrupts the kernel in its own way, on the proxy's own account.
    pub(super) fn interrupt_kernel(&mut self, now: Now) {
        match self.kernel {
            super::Kernel::Live {
                interrupt: super::Interrupt::Signal,
                ..
            } => self.actions.push_back(Action::SignalKernel),
            super::Kernel::Live { .. } => {
                self.ask(now, Channel::Control, "interrupt_request");
            }
            _ => {}
        }
    }
}

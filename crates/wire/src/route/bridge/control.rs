//! Messages of clients on control: interrupts, shutdowns and the rest.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Bridge;
use crate::route::execution_queue::{InterruptTarget, Running};
use crate::route::request::Request;
use crate::route::timer::{INTERRUPT_HELD, Timer};
use crate::route::{Action, ClientId, FrontEnd, Interrupt, Kernel, Note};
use crate::wire::{Channel, Header, Verified};

/// How many control messages may wait behind an interrupt that is held.
const BEHIND_INTERRUPT: usize = 1000;

impl Bridge {
    /// Takes a message on control.
    pub(super) fn control_message(
        &mut self,
        id: &ClientId,
        message: &Verified,
        header: &Header<'_>,
    ) {
        match &*header.msg_type {
            "shutdown_request" => self.answer_shutdown(Channel::Control, id, message),
            "interrupt_request" if self.is_for_an_earlier_proxy(message) => {
                self.out.log(Note::EarlierInterrupt(id.clone()));
                self.answer_interrupt(id, message);
            }
            _ if self.clients.holds_interrupt(id) => {
                let waiting = self.clients.hold_control(id, message.clone());
                if waiting > BEHIND_INTERRUPT {
                    self.release_interrupt(id);
                }
            }
            // jupyter_client, and with it jupyter_server, nbclient and papermill, sends an interrupt within a
            // millisecond of the shutdown by which it ends or restarts a kernel.
            "interrupt_request" if self.may_hit_another(id, &header.session) => {
                let target = self.interrupt_target();
                self.clients.hold_interrupt(id, message.clone(), target);
                self.timers
                    .start(INTERRUPT_HELD, Timer::Interrupt(id.clone()));
            }
            _ => self.control_in_order(id, message, header, None),
        }
    }

    /// Returns whether a server's interrupt was sent before this proxy started. A server that finds its kernel dead
    /// interrupts it before it starts another: the message then waits until the new one binds the same ports.
    ///
    /// Only a server that launched the proxy has the same clock for certain.
    fn is_for_an_earlier_proxy(&self, message: &Verified) -> bool {
        #[derive(Deserialize)]
        struct Sent {
            date: Timestamp,
        }
        let sent = serde_json::from_slice::<Sent>(message.header_bytes());
        self.front_end == FrontEnd::Jupyter && sent.is_ok_and(|sent| sent.date < self.started)
    }

    /// Returns whether a client's interrupt may hit another client's cell. Such an interrupt is held until it
    /// is known whether a shutdown follows it.
    ///
    /// Where nothing seems to run, another client's cell may be about to begin. VS Code is excepted: it sends
    /// no shutdown, and its Stop button must work at once. A Jupyter server sends interrupts as another
    /// client than the window whose cell runs, so there the sender proves nothing.
    fn may_hit_another(&self, id: &ClientId, session: &str) -> bool {
        let front_end = self.front_end;
        if front_end == FrontEnd::Jupyter {
            return true;
        }
        // This front end's waiting cells will be withdrawn, and the kernel is not interrupted.
        if !self.kernel().is_live() || !self.withdrawable().is_empty() {
            return false;
        }
        match self.queue.running() {
            Running::Nothing => front_end == FrontEnd::Other,
            // jupyter_client's KernelManager has the session of its client, and a connection of its own.
            Running::Cell { key, client } => {
                client.as_ref() != Some(id) && key.session() != session
            }
            Running::Something => true,
        }
    }

    /// Handles a message on control. `target` is what a held interrupt is meant for.
    fn control_in_order(
        &mut self,
        id: &ClientId,
        message: &Verified,
        header: &Header<'_>,
        target: Option<&InterruptTarget>,
    ) {
        match &*header.msg_type {
            "interrupt_request" if self.kernel().ending().is_none() => {
                self.stop(id, Some((message, header)), target);
            }
            "kernel_info_request" => self.kernel_info(Channel::Control, id, message, header),
            _ => {
                let key = self.track(Channel::Control, id, message, header);
                self.forward(Channel::Control, id, key, message.clone());
            }
        }
    }

    /// Carries out an interrupt that no shutdown has followed, and handles the messages that waited behind
    /// it.
    pub(super) fn release_interrupt(&mut self, id: &ClientId) {
        self.take_interrupt(id, false);
    }

    /// Takes the messages that are held behind an interrupt. Where a shutdown follows, interrupts are
    /// answered but not carried out.
    fn take_interrupt(&mut self, id: &ClientId, is_shutdown: bool) {
        self.timers.stop(&Timer::Interrupt(id.clone()));
        let (messages, target) = self.clients.take_interrupt(id);
        for message in messages {
            let Ok(header) = message.header() else {
                continue;
            };
            if is_shutdown && header.msg_type == "interrupt_request" {
                self.answer_interrupt(id, &message);
            } else {
                self.control_in_order(id, &message, &header, target.as_ref());
            }
        }
    }

    /// Carries out an interrupt by this front end's user: withdraws the front end's own waiting cells; where
    /// there are none, interrupts the kernel, even while another client's cell runs.
    ///
    /// An interrupt that was held has a `target`: a cell that came later is neither withdrawn nor interrupted.
    /// `request` is `None` for a SIGINT.
    pub(super) fn stop(
        &mut self,
        id: &ClientId,
        request: Option<(&Verified, &Header<'_>)>,
        target: Option<&InterruptTarget>,
    ) {
        let withdrawn = self.withdraw(target);
        if let Some((message, _)) = request
            && withdrawn.is_empty()
            && target.is_some_and(|target| self.has_ended(target))
        {
            self.out.log(Note::LateInterrupt(id.clone()));
            return self.answer_interrupt(id, message);
        }
        self.out.log(match withdrawn.len() {
            0 => Note::Interrupt(id.clone()),
            count => Note::Withdrawal {
                client: id.clone(),
                count,
            },
        });
        let is_interrupt = withdrawn.is_empty();
        if let (true, Running::Cell { key, .. }) = (is_interrupt, self.queue.running()) {
            self.interrupted = Some(key.clone());
        }
        if !is_interrupt || self.kernel().is_live() {
            self.out.push(Action::JournalInterrupt { withdrawn });
        }
        let by_message = matches!(
            self.kernel(),
            Kernel::Live {
                interrupt: Interrupt::Message,
                ..
            }
        );
        match request {
            Some((message, header)) if is_interrupt && by_message => {
                let key = self.track(Channel::Control, id, message, header);
                self.forward(Channel::Control, id, key, message.clone());
            }
            request => {
                if is_interrupt {
                    self.interrupt_kernel();
                }
                if let Some((message, _)) = request {
                    self.answer_interrupt(id, message);
                }
            }
        }
    }

    /// Returns what an interrupt that arrives now is meant for.
    fn interrupt_target(&self) -> InterruptTarget {
        let cells = self.requests.keys(Request::is_open_cell);
        InterruptTarget {
            running: self.queue.running().clone(),
            cells: cells.into_iter().collect(),
        }
    }

    /// Returns whether all that a held interrupt is meant for has ended.
    fn has_ended(&self, target: &InterruptTarget) -> bool {
        match self.queue.running() {
            // The kernel may be about to begin the next cell of a "Run All".
            Running::Nothing => {
                let is_open = |key| self.requests.get(key).is_some_and(Request::is_open_cell);
                target.running != Running::Nothing && !target.cells.iter().any(is_open)
            }
            Running::Something => matches!(target.running, Running::Cell { .. }),
            running @ Running::Cell { key, .. } => {
                *running != target.running && !target.cells.contains(key)
            }
        }
    }

    fn answer_interrupt(&mut self, id: &ClientId, message: &Verified) {
        let content = json!({ "status": "ok" });
        self.answer(Channel::Control, id, message, "interrupt_reply", &content);
    }

    /// Answers a shutdown_request in the kernel's stead: a front end ends its own kernel, not the shared one.
    pub(super) fn answer_shutdown(&mut self, channel: Channel, id: &ClientId, message: &Verified) {
        #[derive(Deserialize)]
        struct Shutdown {
            #[serde(default)]
            restart: bool,
        }
        self.take_interrupt(id, true);
        let wants_restart = message
            .read_content()
            .is_some_and(|content: Shutdown| content.restart);
        let restart = wants_restart && self.policies.restart;
        let request = if wants_restart {
            "a restart"
        } else {
            "a shutdown"
        };
        let outcome = if restart { "is restarted" } else { "goes on" };
        self.out.log(Note::Shutdown {
            client: id.clone(),
            request,
            outcome,
        });
        let content = json!({ "status": "ok", "restart": wants_restart });
        self.answer(channel, id, message, "shutdown_reply", &content);
        self.out.push(Action::Leave { restart });
    }

    /// Answers a request in the kernel's stead: busy, reply, idle.
    fn answer(
        &mut self,
        channel: Channel,
        id: &ClientId,
        request: &Verified,
        msg_type: &str,
        content: &Value,
    ) {
        let parent = request.header_bytes();
        self.out.publish_busy(parent.clone());
        let reply = self
            .out
            .synthetic
            .kernel_message(msg_type, parent.clone(), content);
        self.clients.deliver(&mut self.out, id, channel, reply);
        self.out.publish_idle(parent.clone());
    }
}

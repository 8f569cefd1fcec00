//! What clients ask on control: interrupts, shutdowns and the rest.

use serde::Deserialize;
use serde_json::{Value, json};

use super::Bridge;
use crate::route::execution_queue::Running;
use crate::route::timer::{INTERRUPT_HELD, Now, Timer};
use crate::route::{Action, ClientId, FrontEnd, Interrupt, Kernel, Note};
use crate::wire::{Channel, Header, Verified};

/// How many control messages may wait behind an interrupt that is held for a moment.
const BEHIND_INTERRUPT: usize = 1000;

impl Bridge {
    /// Takes a message on control.
    pub(super) fn control_message(
        &mut self,
        now: Now,
        id: &ClientId,
        message: &Verified,
        header: &Header<'_>,
    ) {
        match &*header.msg_type {
            "shutdown_request" => self.answer_shutdown(now, Channel::Control, id, message),
            _ if self.clients.holds_interrupt(id) => {
                let waiting = self.clients.hold_interrupt(id, message.clone());
                if waiting > BEHIND_INTERRUPT {
                    self.release_interrupt(now, id);
                }
            }
            // jupyter_client, and with it jupyter_server, nbclient and papermill, interrupts a
            // kernel in the millisecond in which it ends or restarts it.
            "interrupt_request" if self.may_hit_another(id, &header.session) => {
                self.clients.hold_interrupt(id, message.clone());
                self.timers
                    .start(now.instant + INTERRUPT_HELD, Timer::Interrupt(id.clone()));
            }
            _ => self.control_in_order(now, id, message, header),
        }
    }

    /// Returns whether a client's interrupt may hit another client's cell: then it is held until
    /// it is known whether a shutdown follows it.
    ///
    /// While nothing seems to run another's cell may be about to begin, but VS Code sends no
    /// shutdown, and its Stop button is to work at once. A Jupyter server's interrupts come from
    /// another client than the window whose cell runs, so that whose it is says nothing there.
    fn may_hit_another(&self, id: &ClientId, session: &str) -> bool {
        let front_end = self.front_end;
        if front_end == FrontEnd::Jupyter {
            return true;
        }
        // Its own cells that wait are withdrawn, and the kernel is not interrupted.
        if !self.kernel.is_live() || !self.withdrawable().is_empty() {
            return false;
        }
        match self.queue.running() {
            Running::Nothing => front_end == FrontEnd::Other,
            // A manager of jupyter_client's has its client's session, and a connection of its own.
            Running::Cell { key, client } => {
                client.as_ref() != Some(id) && key.session() != session
            }
            Running::Something => true,
        }
    }

    fn control_in_order(
        &mut self,
        now: Now,
        id: &ClientId,
        message: &Verified,
        header: &Header<'_>,
    ) {
        match &*header.msg_type {
            "interrupt_request" if self.kernel.ending().is_none() => {
                self.stop(now, id, Some((message, header)));
            }
            "kernel_info_request" => self.kernel_info(now, Channel::Control, id, message, header),
            _ => {
                let key = self.track(Channel::Control, id, message, header);
                self.forward(now, Channel::Control, id, key, message.clone());
            }
        }
    }

    /// No shutdown has followed an interrupt: it is carried out, and what came after it follows.
    pub(super) fn release_interrupt(&mut self, now: Now, id: &ClientId) {
        self.timers.stop(&Timer::Interrupt(id.clone()));
        for message in self.clients.take_interrupt(id) {
            if let Ok(header) = message.header() {
                self.control_in_order(now, id, &message, &header);
            }
        }
    }

    /// A shutdown follows: the interrupts before it are answered, and not carried out.
    fn drop_interrupts(&mut self, now: Now, id: &ClientId) {
        self.timers.stop(&Timer::Interrupt(id.clone()));
        for message in self.clients.take_interrupt(id) {
            let Ok(header) = message.header() else {
                continue;
            };
            if header.msg_type == "interrupt_request" {
                self.answer_interrupt(now, id, &message);
            } else {
                self.control_in_order(now, id, &message, &header);
            }
        }
    }

    /// Carries out an interrupt by this front end's user: its own cells that wait are withdrawn
    /// first; where there are none, the kernel is interrupted, whoever's cell runs.
    ///
    /// Without a request it was a SIGINT.
    pub(super) fn stop(
        &mut self,
        now: Now,
        id: &ClientId,
        request: Option<(&Verified, &Header<'_>)>,
    ) {
        let withdrawn = self.withdraw(now);
        self.out.log(Note::Interrupt {
            client: id.clone(),
            withdrawn,
        });
        if withdrawn > 0 || self.kernel.is_live() {
            self.out.push(Action::JournalInterrupt {
                client: id.clone(),
                withdrawn,
            });
        }
        let by_message = matches!(
            self.kernel(),
            Kernel::Live {
                interrupt: Interrupt::Message,
                ..
            }
        );
        match request {
            Some((message, header)) if withdrawn == 0 && by_message => {
                let key = self.track(Channel::Control, id, message, header);
                self.forward(now, Channel::Control, id, key, message.clone());
            }
            request => {
                if withdrawn == 0 {
                    self.interrupt_kernel(now);
                }
                if let Some((message, _)) = request {
                    self.answer_interrupt(now, id, message);
                }
            }
        }
    }

    fn answer_interrupt(&mut self, now: Now, id: &ClientId, message: &Verified) {
        let content = json!({ "status": "ok" });
        self.answer(
            now,
            Channel::Control,
            id,
            message,
            "interrupt_reply",
            &content,
        );
    }

    /// Answers a shutdown in the kernel's stead: a front end ends its own kernel, not the shared one.
    pub(super) fn answer_shutdown(
        &mut self,
        now: Now,
        channel: Channel,
        id: &ClientId,
        message: &Verified,
    ) {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Shutdown {
            restart: bool,
        }
        self.drop_interrupts(now, id);
        let asked_restart = serde_json::from_slice::<Shutdown>(message.content())
            .unwrap_or_default()
            .restart;
        let restart = asked_restart && self.policies.restart;
        self.out.log(Note::Shutdown {
            client: id.clone(),
            asked_restart,
            restart,
        });
        let content = json!({ "status": "ok", "restart": asked_restart });
        self.answer(now, channel, id, message, "shutdown_reply", &content);
        self.out.push(Action::Leave { restart });
    }

    /// Answers a request in the kernel's stead: busy, reply, idle.
    fn answer(
        &mut self,
        now: Now,
        channel: Channel,
        id: &ClientId,
        request: &Verified,
        msg_type: &str,
        content: &Value,
    ) {
        let parent = request.header_bytes();
        self.out.publish_busy(now, parent.clone());
        let reply = self.out.new_reply(now, msg_type, parent.clone(), content);
        self.clients.deliver(&mut self.out, id, channel, reply);
        self.out.publish_idle(now, parent.clone());
    }
}

//! What clients ask on control: interrupts, shutdowns and the rest.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::json;

use super::bridge::Bridge;
use super::kernel::{Interrupt, Kernel};
use super::settings::FrontEnd;
use super::timer::{INTERRUPT_HELD, Now, Timer};
use super::turns::Running;
use super::{Action, ClientId, Note};
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
        let Some(client) = self.clients.get_mut(id) else {
            return;
        };
        let waiting = client.behind_interrupt.len();
        match &*header.msg_type {
            "shutdown_request" => self.answer_shutdown(now, Channel::Control, id, message),
            _ if waiting > 0 => {
                client.behind_interrupt.push_back(message.clone());
                if waiting >= BEHIND_INTERRUPT {
                    self.carry_on(now, id);
                }
            }
            // jupyter_client, and with it jupyter_server, nbclient and papermill, interrupts a
            // kernel in the millisecond in which it ends or restarts it.
            "interrupt_request" if self.may_hit_another(id, &header.session) => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.behind_interrupt.push_back(message.clone());
                }
                self.timers
                    .start(now.instant + INTERRUPT_HELD, Timer::Interrupt(id.clone()));
            }
            _ => self.control_in_turn(now, id, message, header),
        }
    }

    /// Returns whether a client's interrupt may hit a cell of somebody else's: then it is held until
    /// it is known whether a shutdown follows it.
    ///
    /// While nothing seems to run another's cell may be about to begin, but VS Code sends no
    /// shutdown, and its Stop button is to work at once. A Jupyter server's interrupts come from
    /// another client than the window whose cell runs, so that whose it is says nothing there.
    fn may_hit_another(&self, id: &ClientId, session: &str) -> bool {
        let front_end = self.settings.front_end;
        if front_end == FrontEnd::Jupyter {
            return true;
        }
        // Its own cells that wait are taken back, and the kernel is not interrupted.
        if !self.kernel.is_live() || !self.withdrawable().is_empty() {
            return false;
        }
        match &self.running {
            Running::Nothing => front_end == FrontEnd::Other,
            // A manager of jupyter_client's has its client's session, and a connection of its own.
            Running::Cell { key, client } => {
                client.as_ref() != Some(id) && key.session() != session
            }
            Running::Something => true,
        }
    }

    fn control_in_turn(
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

    /// No shutdown followed: the interrupt is one, and what came after it follows.
    pub(super) fn carry_on(&mut self, now: Now, id: &ClientId) {
        for message in self.held_control(id) {
            if let Ok(header) = message.header() {
                self.control_in_turn(now, id, &message, &header);
            }
        }
    }

    /// Takes the interrupt that is held, and what came after it.
    fn held_control(&mut self, id: &ClientId) -> VecDeque<Verified> {
        self.timers.stop(&Timer::Interrupt(id.clone()));
        let client = self.clients.get_mut(id);
        client
            .map(|client| std::mem::take(&mut client.behind_interrupt))
            .unwrap_or_default()
    }

    /// A shutdown follows: the interrupts before it are answered and go no further.
    fn drop_interrupts(&mut self, now: Now, id: &ClientId) {
        for message in self.held_control(id) {
            let Ok(header) = message.header() else {
                continue;
            };
            if header.msg_type == "interrupt_request" {
                self.answer_interrupt(now, id, &message);
            } else {
                self.control_in_turn(now, id, &message, &header);
            }
        }
    }

    /// Carries out an interrupt by this front end's user: its own cells that wait are taken back
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
        self.log(Note::Interrupt {
            client: id.clone(),
            withdrawn,
        });
        if withdrawn > 0 || self.kernel.is_live() {
            self.actions.push_back(Action::JournalInterrupt {
                client: id.clone(),
                withdrawn,
            });
        }
        let by_message = matches!(
            self.kernel,
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
        let parent = message.header_bytes().clone();
        self.answer(
            now,
            Channel::Control,
            id,
            parent,
            "interrupt_reply",
            &json!({ "status": "ok" }),
        );
    }

    /// Answers a shutdown in the kernel's stead: front ends end their kernel, not everybody's.
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
        let asked = serde_json::from_slice::<Shutdown>(message.content())
            .unwrap_or_default()
            .restart;
        let restart = asked && self.policies.restart;
        self.log(Note::Shutdown {
            client: id.clone(),
            asked_restart: asked,
            restart,
        });
        let content = json!({ "status": "ok", "restart": asked });
        self.answer(
            now,
            channel,
            id,
            message.header_bytes().clone(),
            "shutdown_reply",
            &content,
        );
        self.actions.push_back(Action::Leave { restart });
    }
}

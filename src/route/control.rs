//! What clients ask on control: interrupts, shutdowns and the rest.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::json;

use super::bridge::Bridge;
use super::kernel::{Interrupt, Kernel};
use super::settings::FrontEnd;
use super::timer::{INTERRUPT_HELD, Now, Timer};
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
            "shutdown_request" => {
                self.drop_interrupts(now, id);
                self.answer_shutdown(now, Channel::Control, id, message);
            }
            // jupyter_server interrupts a kernel in the millisecond in which it ends or restarts
            // it: that must not hit a cell of somebody else's.
            "interrupt_request" if waiting == 0 && self.settings.front_end == FrontEnd::Jupyter => {
                client.behind_interrupt.push_back(message.clone());
                self.timers
                    .start(now.instant + INTERRUPT_HELD, Timer::Interrupt(id.clone()));
            }
            _ if waiting > 0 => {
                client.behind_interrupt.push_back(message.clone());
                if waiting >= BEHIND_INTERRUPT {
                    self.carry_on(now, id);
                }
            }
            _ => self.control_in_turn(now, id, message, header),
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

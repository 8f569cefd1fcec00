//! Handles the events of the sockets to the kernel.

use std::io;
use std::rc::Rc;

use super::Shell;
use crate::proxy::counters::Direction;
use crate::proxy::links::{LinkEvent, Links};
use crate::proxy::messages;
use crate::proxy::snapshot::KernelState;
use crate::proxy::target::LiveKernel;
use crate::route::{ClientId, Kernel};
use crate::wire::{Channel, Verified};

impl Shell {
    /// Starts to connect to a kernel, and drops the sockets to the last one.
    pub(super) fn dial(&self, kernel: LiveKernel) {
        let handle = self.handle.clone();
        let (id, counters) = (self.launch.id.clone(), Rc::clone(&self.counters));
        let links = Links::connect(kernel, id, counters, move |event| {
            if let Some(shell) = handle.shell() {
                shell.take_link_event(event);
            }
        });
        *self.links.borrow_mut() = Some(Rc::new(links));
    }

    /// Removes and returns the messages that the kernel has not received.
    pub(super) fn take_unsent(&self) -> Vec<(ClientId, Channel, Verified)> {
        let links = self.links();
        links.map(|links| links.take_unsent()).unwrap_or_default()
    }

    fn take_link_event(&self, event: LinkEvent<'_>) {
        match event {
            LinkEvent::Published(message) => self.take_published(message),
            LinkEvent::Message(client, channel, message) => {
                let prompt = (channel == Channel::Stdin).then(|| message.clone());
                self.route(|bridge, now| bridge.kernel_message(now, client, channel, message));
                if let Some(prompt) = prompt {
                    self.buffer_prompt(client, &prompt);
                }
            }
            LinkEvent::Up(client, channel) => {
                self.route(|bridge, now| bridge.link_up(now, client, channel));
            }
            LinkEvent::Full(client, channel, unsent) => {
                self.route(|bridge, _| bridge.link_down(client, channel, unsent));
            }
            LinkEvent::Down(client, channel, unsent) => {
                self.route(|bridge, _| bridge.link_down(client, channel, unsent));
                self.state_reads.request();
            }
            LinkEvent::StdinAbsent(client) => {
                self.route(|bridge, now| bridge.stdin_absent(now, client));
            }
            LinkEvent::IopubUp if self.is_live() => {
                self.route(|bridge, now| bridge.iopub_up(now));
            }
            LinkEvent::IopubUp => self.state_reads.request(),
            LinkEvent::IopubDown => {
                self.route(|bridge, _| bridge.iopub_down());
                self.state_reads.request();
            }
            LinkEvent::Oversized(channel, parent, bytes) => {
                self.route(|bridge, now| bridge.oversized(now, channel, &parent, bytes));
            }
            LinkEvent::Heartbeat(peer, frames) => {
                self.count_heartbeat(Direction::ToClients, &frames);
                self.endpoint.beat(peer, frames);
            }
            LinkEvent::Unreachable(error) => self.unreachable(error),
            LinkEvent::NoDescriptors => self.free_descriptors(),
        }
    }

    /// Publishes a message of iopub, unless the kernel is being restarted or was shut down: its requests got
    /// their ends when it was interrupted for that. The last messages of a kernel that exited unexpectedly
    /// are published.
    fn take_published(&self, message: Verified) {
        let is_published = matches!(
            self.bridge.borrow().kernel(),
            Kernel::Live { .. } | Kernel::Died(_)
        );
        if is_published {
            self.buffer_output(&message);
            self.route(|bridge, now| bridge.iopub_message(now, message));
        }
    }

    /// Handles a kernel that does not answer on its sockets.
    fn unreachable(&self, error: &io::Error) {
        if let Some(attachment) = self.attachment().filter(|_| self.is_live()) {
            let links = self.links();
            let process = links.as_ref().and_then(|it| it.kernel().process.as_ref());
            let pid = process.map(|process| process.pid);
            attachment.is_unreachable.set(true);
            let ending = messages::unreachable(&attachment.target(), error, pid);
            self.adopt(KernelState::None(ending));
        }
    }
}

//! Passes outputs and prompts of the kernel to the stored outputs.

use super::Shell;
use crate::proxy::attachment::Attachment;
use crate::proxy::stored_outputs::{Published, ReleaseReason};
use crate::route::ClientId;
use crate::wire::Verified;

impl Shell {
    /// Stores what the kernel publishes for a cell of this front end.
    pub(super) fn buffer_output(&self, message: &Verified) {
        if let Some(attachment) = &*self.attachment.borrow() {
            attachment.outputs.take_iopub(message, self.published());
            // Checked at once: during a flood of messages a timer fires late.
            let due = attachment.outputs.store_soon(|| attachment.target());
            self.alarm.wake_by(due);
            if attachment.outputs.is_full()
                && let Some(links) = &*self.links.borrow()
            {
                links.hold_iopub(true);
            }
        }
    }

    /// Stores a prompt of the kernel for a client of this front end: the client may disconnect without an
    /// answer.
    pub(super) fn buffer_prompt(&self, client: &ClientId, message: &Verified) {
        let Some(attachment) = self.attachment() else {
            return;
        };
        if let Some((folder, question)) = attachment.outputs.take_prompt(client, message) {
            let client = client.clone();
            self.spawn(async move |shell| {
                if attachment.outputs.pass_on(&client, folder, question).await {
                    shell.hand_over_prompts(&[client]);
                }
            });
        }
    }

    /// Records in the stored outputs whether a client is connected.
    pub(super) fn record_client(&self, client: &ClientId) {
        let is_joined = self.bridge.borrow().joined().any(|joined| joined == client);
        if let Some(attachment) = &*self.attachment.borrow() {
            attachment.outputs.set_client_joined(client, is_joined);
        }
    }

    /// Returns the count of published messages.
    pub(super) fn published(&self) -> Published {
        Published {
            messages: self.endpoint.published(),
            has_subscriber: self.endpoint.subscribers() > 0,
        }
    }

    /// Drops the outputs of ended cells that a subscriber has read; returns whether other outputs must be
    /// handed over.
    pub(super) fn release_outputs(&self, attachment: &Attachment, reason: ReleaseReason) -> bool {
        let bridge = self.bridge.borrow();
        let is_joined = |client: &ClientId| bridge.joined().any(|joined| joined == client);
        let progress = |number| self.endpoint.delivery_progress(number);
        attachment.outputs.release(progress, is_joined, reason)
    }

    /// Leaves the answers to these clients' prompts to the recorders of their cells.
    pub(super) fn hand_over_prompts(&self, clients: &[ClientId]) {
        self.route(|bridge, _| {
            for client in clients {
                bridge.prompt_handed_over(client);
            }
        });
    }
}

//! The proxy's own connection to the kernel: its generation, whether its iopub is proven, and the requests that the
//! proxy sends for itself.

use std::time::Duration;

use serde_json::json;

use super::execution_queue::Running;
use super::output::Output;
use super::request::Key;
use super::timer::{BUSY, IDLE_LOST, PROBE, PROBE_MAX, Timer, Timers};
use super::{Action, ClientId, Kernel};
use crate::wire::{Channel, Verified};

/// The kernel, and the requests that the proxy itself sends to it.
#[derive(Debug)]
pub(super) struct KernelConnection {
    kernel: Kernel,
    /// The last known generation; a kernel that has ended still has its number.
    generation: u64,
    iopub: Iopub,
    /// Whether iopub messages were read from the socket that the bridge has not been given yet.
    is_iopub_behind: bool,
    /// The identity of the proxy's own sockets.
    client_id: ClientId,
    shell: ShellProbe,
}

/// The iopub subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Iopub {
    Down,
    /// Connected; the proxy asks the kernel again and again until a message arrives on iopub.
    Probed {
        next_wait: Duration,
    },
    /// A message has arrived on iopub: whatever the kernel publishes from now on is received.
    Proven,
}

/// The proxy's own kernel_info_request in the kernel's shell queue. At most one is outstanding: behind a long
/// cell they would pile up.
#[derive(Debug, Default)]
struct ShellProbe {
    request: Option<Key>,
    /// The last request that has its reply. Its `idle` may come later.
    replied: Option<Key>,
    /// Whether a request was lost with the socket.
    is_lost: bool,
    /// The cell that ran when the kernel answered.
    running_at_reply: Running,
}

impl KernelConnection {
    /// Makes the connection to a kernel that has not started yet.
    pub(super) fn new(client_id: ClientId) -> Self {
        Self {
            kernel: Kernel::Awaited,
            generation: 0,
            iopub: Iopub::Down,
            is_iopub_behind: false,
            client_id,
            shell: ShellProbe::default(),
        }
    }

    pub(super) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    pub(super) fn client_id(&self) -> &ClientId {
        &self.client_id
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns whether requests may be sent: none is sent before iopub is proven.
    pub(super) fn is_usable(&self) -> bool {
        self.iopub == Iopub::Proven && self.kernel.is_live()
    }

    #[cfg(test)]
    pub(super) fn is_iopub_proven(&self) -> bool {
        self.iopub == Iopub::Proven
    }

    /// Sets the state of the kernel, within one generation.
    pub(super) fn set_kernel(&mut self, kernel: Kernel) {
        self.kernel = kernel;
    }

    /// Sets another kernel, or another generation; nothing known about the previous connection holds for it.
    pub(super) fn replace_kernel(&mut self, kernel: Kernel) {
        if let Kernel::Live { generation, .. } = &kernel {
            self.generation = *generation;
        }
        self.kernel = kernel;
        self.iopub = Iopub::Down;
        self.shell = ShellProbe::default();
    }

    /// Opens the proxy's own sockets.
    pub(super) fn open_links(&self, out: &mut Output) {
        for channel in [Channel::Control, Channel::Shell] {
            out.push(Action::OpenLink {
                client: self.client_id.clone(),
                channel,
            });
        }
    }

    /// Removes and returns the messages for the chosen sockets that have not left yet. The proxy's own
    /// requests among them are dropped, since the proxy asks again.
    pub(super) fn take_unsent(
        &self,
        out: &mut Output,
        chosen: impl Fn(&ClientId, Channel) -> bool,
    ) -> Vec<(ClientId, Channel, Verified)> {
        let mut unsent = out.take_unsent(chosen);
        unsent.retain(|(client, _, _)| *client != self.client_id);
        unsent
    }

    // ---- iopub

    pub(super) fn iopub_up(&mut self) {
        if self.iopub != Iopub::Proven {
            self.iopub = Iopub::Probed { next_wait: PROBE };
        }
        self.shell.request = None;
    }

    pub(super) fn iopub_down(&mut self) {
        self.iopub = Iopub::Down;
    }

    pub(super) fn set_iopub_behind(&mut self, is_behind: bool) {
        self.is_iopub_behind = is_behind;
    }

    pub(super) fn is_iopub_behind(&self) -> bool {
        self.is_iopub_behind
    }

    /// Records that a message arrived on iopub; returns whether it is the first.
    pub(super) fn prove_iopub(&mut self) -> bool {
        std::mem::replace(&mut self.iopub, Iopub::Proven) != Iopub::Proven
    }

    /// Asks the kernel on control for a message on iopub, unless one has arrived; returns whether it has asked.
    ///
    /// ipykernel sends no `iopub_welcome` to a second subscriber, so the proxy waits for the status of a
    /// request of its own. Control answers at once where it has its own thread; the caller also asks on
    /// shell, because IRkernel never answers kernel_info on control.
    pub(super) fn probe_iopub(&mut self, out: &mut Output, timers: &mut Timers) -> bool {
        let Iopub::Probed { next_wait } = self.iopub else {
            return false;
        };
        if !self.kernel.is_live() {
            return false;
        }
        self.send_request(out, Channel::Control, "kernel_info_request");
        timers.start(next_wait, Timer::Probe);
        self.iopub = Iopub::Probed {
            next_wait: (next_wait * 2).min(PROBE_MAX),
        };
        true
    }

    // ---- requests of the proxy's own

    /// Sends a request of the proxy's own. Returns its key.
    pub(super) fn send_request(
        &self,
        out: &mut Output,
        channel: Channel,
        msg_type: &str,
    ) -> Option<Key> {
        let message = out.synthetic.request(msg_type, &json!({}));
        let key = message.header().ok().and_then(|header| Key::of(&header));
        out.send(&self.client_id, channel, message);
        key
    }

    /// Sends a request on shell, which the kernel answers only between two cells, unless one is outstanding.
    /// Returns the key of the request that was sent.
    pub(super) fn probe_shell(&mut self, out: &mut Output, timers: &mut Timers) -> Option<&Key> {
        if self.shell.request.is_some() || !self.kernel.is_live() {
            return None;
        }
        self.shell.request = self.send_request(out, Channel::Shell, "kernel_info_request");
        timers.start(BUSY, Timer::AssumeBusy);
        self.shell.request.as_ref()
    }

    /// Returns the proxy's own request on shell that the kernel has not answered.
    pub(super) fn shell_request(&self) -> Option<&Key> {
        self.shell.request.as_ref()
    }

    /// Records that the proxy's own request on shell has its reply.
    pub(super) fn shell_replied(&mut self) {
        self.shell.replied.clone_from(&self.shell.request);
    }

    /// Returns whether this is the last of the proxy's own requests on shell that has its reply.
    pub(super) fn has_replied_to(&self, key: &Key) -> bool {
        self.shell.replied.as_ref() == Some(key)
    }

    /// Records that the kernel has answered the proxy's request on shell.
    pub(super) fn clear_shell_request(&mut self, timers: &mut Timers) {
        self.shell.request = None;
        timers.stop(&Timer::AssumeBusy);
    }

    /// Records that the proxy's own shell socket was lost, perhaps with a request.
    pub(super) fn shell_lost(&mut self, timers: &mut Timers) {
        if self.shell.request.is_some() {
            self.clear_shell_request(timers);
            self.shell.is_lost = true;
        }
    }

    /// Records that the proxy's own shell socket is back; returns whether a request was lost with it.
    pub(super) fn take_shell_lost(&mut self) -> bool {
        std::mem::take(&mut self.shell.is_lost)
    }

    /// Records that a cell still seems to run although the kernel has answered on shell: its `idle` is late,
    /// or lost.
    pub(super) fn doubt_running(&mut self, running: &Running, timers: &mut Timers) {
        self.shell.running_at_reply = running.clone();
        timers.start(IDLE_LOST, Timer::IdleLost);
    }

    /// Returns whether `running` is still the cell that ran when the kernel answered.
    pub(super) fn is_doubted(&self, running: &Running) -> bool {
        self.shell.running_at_reply == *running
    }
}

//! The proxy's own connection to the kernel: its generation, whether its iopub is proven, and the requests that the
//! proxy sends for itself.

use std::time::{Duration, Instant};

use serde_json::json;

use super::execution_queue::Running;
use super::output::Output;
use super::request::Key;
use super::timer::{BUSY, Now, PROBE, PROBE_MAX, Timer, Timers};
use super::{Action, ClientId, Ending, Kernel};
use crate::wire::{Channel, Verified};

/// The kernel, and what the proxy itself asks of it.
#[derive(Debug)]
pub(super) struct KernelConnection {
    kernel: Kernel,
    /// The last generation that was seen; an ended kernel keeps its number.
    generation: u64,
    iopub: Iopub,
    /// Whether messages of iopub were read that are still to be taken.
    is_iopub_behind: bool,
    /// The identity of the proxy's own sockets.
    own: ClientId,
    shell: ShellProbe,
}

/// The iopub subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Iopub {
    Down,
    /// Connected; the kernel is asked again and again until something arrives.
    Probed {
        next_wait: Duration,
    },
    /// Something arrived: what the kernel sends is received.
    Proven,
}

/// The proxy's own kernel_info_request in the kernel's shell queue. One at a time: behind a long cell they would pile
/// up.
#[derive(Debug, Default)]
struct ShellProbe {
    asked: Option<Key>,
    /// Whether one was lost with the socket.
    is_lost: bool,
    /// What ran when the kernel answered.
    ran: Running,
}

impl KernelConnection {
    /// Makes the connection to a kernel that is awaited.
    pub(super) fn new(own: ClientId) -> Self {
        Self {
            kernel: Kernel::Awaited,
            generation: 0,
            iopub: Iopub::Down,
            is_iopub_behind: false,
            own,
            shell: ShellProbe::default(),
        }
    }

    pub(super) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    pub(super) fn own(&self) -> &ClientId {
        &self.own
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn is_live(&self) -> bool {
        self.kernel.is_live()
    }

    /// Returns whether it is not known yet which kernel the front end means.
    pub(super) fn is_unresolved(&self) -> bool {
        matches!(self.kernel, Kernel::Unresolved { .. })
    }

    /// Returns what is answered in the kernel's stead, where there is none and none is on its way.
    pub(super) fn ending(&self) -> Option<&Ending> {
        self.kernel.ending()
    }

    /// Returns whether requests may be sent: nothing is, before its answers on iopub are known to arrive.
    pub(super) fn is_usable(&self) -> bool {
        self.iopub == Iopub::Proven && self.is_live()
    }

    #[cfg(test)]
    pub(super) fn is_iopub_proven(&self) -> bool {
        self.iopub == Iopub::Proven
    }

    /// Takes what is known of the kernel, without a change of its generation.
    pub(super) fn set_kernel(&mut self, kernel: Kernel) {
        self.kernel = kernel;
    }

    /// Takes another kernel, or another generation; nothing of the connection to the last one holds for it.
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
                client: self.own.clone(),
                channel,
            });
        }
    }

    /// Takes out what was to be sent on some of the sockets and has not left; what the proxy asks for itself is
    /// asked anew.
    pub(super) fn take_unsent(
        &self,
        out: &mut Output,
        chosen: impl Fn(&ClientId, Channel) -> bool,
    ) -> Vec<(ClientId, Channel, Verified)> {
        let mut unsent = out.take_unsent(chosen);
        unsent.retain(|(client, _, _)| *client != self.own);
        unsent
    }

    // ---- iopub

    pub(super) fn iopub_up(&mut self) {
        if self.iopub != Iopub::Proven {
            self.iopub = Iopub::Probed { next_wait: PROBE };
        }
        self.shell.asked = None;
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

    /// Takes that something arrived on iopub; returns whether that is the first sign.
    pub(super) fn prove_iopub(&mut self) -> bool {
        std::mem::replace(&mut self.iopub, Iopub::Proven) != Iopub::Proven
    }

    /// Asks the kernel for a sign on iopub, unless there is one; returns whether it was asked.
    ///
    /// A second subscriber gets no `iopub_welcome` from ipykernel, so the status of a request of
    /// our own is awaited. Control answers at once where it is a thread of its own; shell is asked
    /// too, as IRkernel never answers kernel_info on control.
    pub(super) fn probe_iopub(&mut self, now: Now, out: &mut Output, timers: &mut Timers) -> bool {
        let Iopub::Probed { next_wait } = self.iopub else {
            return false;
        };
        if !self.is_live() {
            return false;
        }
        self.ask(now, out, Channel::Control, "kernel_info_request");
        timers.start(now.instant + next_wait, Timer::Probe);
        self.iopub = Iopub::Probed {
            next_wait: (next_wait * 2).min(PROBE_MAX),
        };
        true
    }

    // ---- requests of the proxy's own

    /// Sends a request whose reply nobody awaits. Returns its key.
    pub(super) fn ask(
        &self,
        now: Now,
        out: &mut Output,
        channel: Channel,
        msg_type: &str,
    ) -> Option<Key> {
        let message = out.new_request(now, msg_type, &json!({}));
        let key = message.header().ok().and_then(|header| Key::of(&header));
        out.send(&self.own, channel, message);
        key
    }

    /// Asks on shell, where the kernel answers between two cells only, unless it is asked already. Returns the
    /// request that was sent.
    pub(super) fn ask_on_shell(
        &mut self,
        now: Now,
        out: &mut Output,
        timers: &mut Timers,
    ) -> Option<&Key> {
        if self.shell.asked.is_some() || !self.is_live() {
            return None;
        }
        self.shell.asked = self.ask(now, out, Channel::Shell, "kernel_info_request");
        timers.start(now.instant + BUSY, Timer::Busy);
        self.shell.asked.as_ref()
    }

    /// Returns the request that the kernel's shell has not answered.
    pub(super) fn asked_on_shell(&self) -> Option<&Key> {
        self.shell.asked.as_ref()
    }

    /// Takes that the kernel has answered it.
    pub(super) fn shell_answered(&mut self, timers: &mut Timers) {
        self.shell.asked = None;
        timers.stop(&Timer::Busy);
    }

    /// Takes that the proxy's own shell socket was lost, perhaps with a request.
    pub(super) fn shell_lost(&mut self, timers: &mut Timers) {
        if self.shell.asked.is_some() {
            self.shell_answered(timers);
            self.shell.is_lost = true;
        }
    }

    /// Takes that this socket is back; returns whether a request was lost.
    pub(super) fn shell_is_back(&mut self) -> bool {
        std::mem::take(&mut self.shell.is_lost)
    }

    /// Takes that a cell still seems to run although the kernel has answered: its `idle` is late, or lost.
    pub(super) fn doubt_running(&mut self, running: &Running, at: Instant, timers: &mut Timers) {
        self.shell.ran = running.clone();
        timers.start(at, Timer::IdleLost);
    }

    /// Returns whether this is what ran when the kernel answered.
    pub(super) fn doubted(&self, running: &Running) -> bool {
        self.shell.ran == *running
    }
}

//! When cells begin and end on the kernel's shell, and requests whose `idle` the kernel's iopub queue has
//! dropped.
//!
//! iopub keeps its order. So the `idle` of a request that has its reply is certainly lost once iopub carries
//! a message about something that the kernel's shell did later: another request's `busy`, or the `idle` of
//! the proxy's own request.

use serde_json::json;

use super::Bridge;
use super::failures::WITHDRAWN;
use crate::route::dropped;
use crate::route::execution::ExecutionProgress;
use crate::route::execution_queue::{InterruptTarget, Running};
use crate::route::request::{Answer, Key, LATE_IDLE, Request};
use crate::route::timer::{STILL_BUSY, Timer};
use crate::route::{Action, Ending, Interrupt, Kernel, Phase};
use crate::wire::{Channel, Header};

impl Bridge {
    /// Records that the kernel has begun a request.
    pub(super) fn request_began(&mut self, key: &Key, parent: &Header<'_>) {
        if parent.msg_type != "execute_request" {
            return;
        }
        let request = self.requests.get(key);
        let was_withdrawn = request.is_some_and(|request| request.answer == Answer::Withdrawn);
        let client = request.map(|request| request.client.clone());
        self.queue.begin(key, client);
        self.dropped.cell_begins();
        self.end_before(key);
        if self.requests.is_late(key) {
            // No reply shows its end: see `forget_request`.
            self.probe_shell();
        }
        if was_withdrawn {
            // Its user withdrew it while it was in the kernel's own queue, from which a request cannot be
            // removed.
            self.interrupt_kernel();
        }
    }

    /// Records that the kernel has ended a request.
    pub(super) fn request_ended(&mut self, key: &Key, parent: &Header<'_>) {
        let ends_cell = self.queue.is_ended_by(key, parent);
        if ends_cell && let Some(raised) = self.queue.end_outside(key) {
            let phase = Phase::EndedOutside { raised };
            let generation = self.kernel.generation();
            let step = ExecutionProgress::of_outside(phase, generation, parent, None);
            self.out.push(Action::Journal(step));
        }
        for lost in self.requests.proven_by(key) {
            self.replace_idle(&lost);
        }
        let answers_probe = self.kernel.shell_request() == Some(key);
        if answers_probe {
            // The reply, if it arrives later, shows nothing about a cell that begins after this `idle`.
            self.end_shell_request();
        }
        // The `idle` of the proxy's own request shows that no cell runs at this point of iopub's order.
        if ends_cell || answers_probe || self.kernel.has_replied_to(key) {
            self.end_running_cell();
        }
    }

    /// Records that no cell runs on the kernel's shell, and sends cells that wait.
    pub(super) fn end_running_cell(&mut self) {
        self.queue.clear();
        self.release_all();
    }

    // ---- the proxy's own requests

    pub(super) fn probe_iopub(&mut self) {
        if self.kernel.probe_iopub(&mut self.out, &mut self.timers) {
            self.probe_shell();
        }
    }

    /// Sends a request of the proxy's own on shell, unless one is outstanding.
    pub(super) fn probe_shell(&mut self) {
        let request = self.kernel.probe_shell(&mut self.out, &mut self.timers);
        if let Some(request) = request {
            self.requests.await_proof(request);
        }
    }

    /// Ends the proxy's own request on shell, and asks again where it proves too little.
    fn end_shell_request(&mut self) {
        self.kernel.clear_shell_request(&mut self.timers);
        if !self.requests.keys(Request::lacks_proof).is_empty() {
            self.probe_shell();
        }
        if self.requests.any_doubtful_without_reply() {
            // The `idle` of the proxy's own request may be lost, too, and no reply starts the timer.
            self.await_idle();
        }
    }

    /// Records that the kernel has answered the proxy's own request on shell.
    pub(super) fn handle_shell_reply(&mut self) {
        self.kernel.shell_replied();
        self.end_shell_request();
        match self.queue.running() {
            Running::Nothing => {}
            Running::Something => self.end_running_cell(),
            // The cell's `idle` is still under way, or lost.
            running @ Running::Cell { .. } => {
                self.kernel.doubt_running(running, &mut self.timers);
            }
        }
    }

    /// Records that something runs, because the kernel has not answered on shell for a while.
    pub(super) fn assume_busy(&mut self) {
        if self.kernel.shell_request().is_some() {
            self.queue.assume_busy();
        }
    }

    /// Ends the cell that still seems to run although the kernel was idle a while ago.
    pub(super) fn end_doubted(&mut self) {
        if self.kernel.is_doubted(self.queue.running()) {
            self.end_running_cell();
        }
    }

    /// Starts the timer of [`Self::publish_still_busy`]: an `idle` was published although a cell may run.
    pub(super) fn expect_still_busy(&mut self) {
        if self.queue.record_other_idle() || !self.timers.runs(&Timer::StillBusy) {
            self.timers.start(STILL_BUSY, Timer::StillBusy);
        }
    }

    /// Publishes `busy` for the running cell: clients show the last status, which may be the `idle` of another
    /// request.
    pub(super) fn publish_still_busy(&mut self) {
        if let Some(running) = self.queue.take_hidden_header() {
            self.out.publish_busy(running);
        }
    }

    // ---- an `idle` that is missing

    /// Starts the timer for an `idle` that comes later than its reply, as usual; when it fires, the bridge
    /// checks whether the `idle` is lost.
    pub(super) fn await_idle(&mut self) {
        if !self.timers.runs(&Timer::LateIdle) {
            self.timers.start(LATE_IDLE, Timer::LateIdle);
        }
    }

    /// Asks the kernel's shell whether the `idle`s that are overdue are lost.
    pub(super) fn doubt_idles(&mut self) {
        if !self.kernel().is_live() {
            return;
        }
        let now = self.timers.now();
        let own_request = self.kernel.shell_request();
        match self.requests.doubt_idles(now, own_request) {
            (true, _) => {
                self.probe_shell();
                self.timers.start(LATE_IDLE, Timer::LateIdle);
            }
            (false, Some(left)) => self.timers.start(left, Timer::LateIdle),
            (false, None) => {}
        }
    }

    /// Ends all requests on the main shell that the kernel had begun and replied to before it began this one.
    ///
    /// A reply alone does not show the order, since iopub may lag behind the shell's socket.
    fn end_before(&mut self, began_now: &Key) {
        let began_earlier = |request: &Request| {
            let on_main_shell = || {
                let header = Header::parse(&request.header);
                header.is_ok_and(|header| header.subshell_id.is_none())
            };
            request.busy
                && request.lacks_idle()
                && request.channel == Channel::Shell
                && on_main_shell()
        };
        for key in self.requests.keys(began_earlier) {
            if key != *began_now {
                self.replace_idle(&key);
            }
        }
    }

    /// Publishes the `idle` of a request whose own was lost, and how many messages were lost with it.
    fn replace_idle(&mut self, key: &Key) {
        let Some((request, dropped)) = self.requests.lose_idle(key, self.dropped.count()) else {
            return;
        };
        if request.answer == Answer::FromKernel {
            let parent = request.header.clone();
            // One of the dropped messages is the `idle` itself.
            if request.msg_type == "execute_request" && dropped > 1 {
                let notice = dropped::notice(dropped);
                self.out.publish_notice(parent.clone(), &notice);
            }
            self.out.push(Action::IdleLost {
                msg_id: key.msg_id().to_owned(),
            });
            self.out.publish_idle(parent);
        }
        if self.queue.runs(key) {
            self.end_running_cell();
        }
        self.finish(key);
    }

    // ---- interrupts

    /// Withdraws the cells of this front end that have not begun, where something else runs. Returns the ids of their
    /// requests.
    ///
    /// These are the cells of all its clients: a Jupyter server sends interrupts as another client than the
    /// window whose cells they are meant for. Where there is a `target`, only its cells are withdrawn.
    pub(super) fn withdraw(&mut self, target: Option<&InterruptTarget>) -> Vec<String> {
        let ending = Ending::new(
            WITHDRAWN,
            "stopped while it waited for another's cell: it did not run",
        );
        let mut waiting = self.withdrawable();
        waiting.retain(|key| target.is_none_or(|target| target.cells.contains(key)));
        if waiting.is_empty() {
            return Vec::new();
        }
        for key in &waiting {
            let Some(request) = self.requests.get(key) else {
                continue;
            };
            // VS Code would leave the cell's earlier outputs above the error that follows.
            let (sent, parent) = (request.sent, request.header.clone());
            self.out.publish_busy(parent.clone());
            let clear = json!({ "wait": false });
            self.out.publish_new("clear_output", parent, &clear);
            self.requests.set_busy(key, true);
            if sent {
                self.fail_early(&ending, key);
                // The kernel has not begun the cell.
                self.requests.set_busy(key, false);
            } else {
                self.take_held(key);
                self.fail_one(&ending, key);
            }
        }
        self.release_all();
        let ids = waiting.iter().map(|key| key.msg_id().to_owned());
        ids.collect()
    }

    /// Returns the cells of this front end that have not begun, where something else runs.
    pub(super) fn withdrawable(&self) -> Vec<Key> {
        if self.kernel().is_live() && !self.queue.runs_from_outside() {
            return Vec::new();
        }
        self.requests
            .keys(|request| request.is_open_cell() && !request.busy)
    }

    /// Interrupts the kernel by the method of its kernelspec, without a client's request.
    pub(super) fn interrupt_kernel(&mut self) {
        match self.kernel() {
            Kernel::Live {
                interrupt: Interrupt::Signal,
                ..
            } => self.out.push(Action::SignalKernel),
            Kernel::Live { .. } => {
                let channel = Channel::Control;
                self.kernel
                    .send_request(&mut self.out, channel, "interrupt_request");
            }
            _ => {}
        }
    }
}

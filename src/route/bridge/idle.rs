//! What begins and ends on the kernel's shell, and requests whose `idle` the kernel's iopub queue has dropped.
//!
//! iopub keeps its order, so the `idle` of a request that has its reply is lost for certain once something arrives on
//! iopub that the kernel's shell has done later: another request's `busy`, or the `idle` of the proxy's own
//! request.

use serde_json::json;

use super::Bridge;
use crate::route::dropped;
use crate::route::execution::Execution;
use crate::route::execution_queue::Running;
use crate::route::request::{Answer, Key, Request, Role};
use crate::route::timer::{IDLE_LOST, LATE_IDLE, Now, Timer};
use crate::route::{Action, Ending, Interrupt, Kernel, Phase};
use crate::wire::{Channel, Header};

impl Bridge {
    /// The kernel has begun a request.
    pub(super) fn begins(&mut self, now: Now, key: &Key, parent: &Header<'_>) {
        if parent.msg_type != "execute_request" {
            return;
        }
        let request = self.requests.get(key);
        let was_withdrawn = request.is_some_and(|it| it.answer == Answer::Withdrawn);
        let client = request.map(|request| request.client.clone());
        self.queue.begin(key, client);
        self.end_before(now, key);
        if was_withdrawn {
            // Its user withdrew it while it was in the kernel's queue, from where nothing can be taken out.
            self.interrupt_kernel(now);
        }
    }

    /// The kernel has ended a request.
    pub(super) fn ends(&mut self, now: Now, key: &Key, parent: &Header<'_>) {
        let is_over = self.queue.is_ended_by(key, parent);
        if is_over && let Some(raised) = self.queue.end_outside(key) {
            let phase = Phase::Over { raised };
            let generation = self.kernel.generation();
            let over = Execution::of_outside(phase, generation, parent, None);
            self.out.push(Action::Journal(over));
        }
        for lost in self.requests.proven_by(key) {
            self.replace_idle(now, &lost);
        }
        // Where it is the proxy's own request, nothing else runs at this place in the order of iopub.
        if is_over || self.kernel.asked_on_shell() == Some(key) {
            self.is_idle(now);
        }
    }

    /// The kernel's shell has nothing to do: cells that wait may go.
    pub(super) fn is_idle(&mut self, now: Now) {
        self.queue.clear();
        self.release_all(now);
    }

    // ---- the proxy's own requests

    pub(super) fn probe_iopub(&mut self, now: Now) {
        if self
            .kernel
            .probe_iopub(now, &mut self.out, &mut self.timers)
        {
            self.ask_on_shell(now);
        }
    }

    /// Asks the kernel on shell, unless it is asked already.
    pub(super) fn ask_on_shell(&mut self, now: Now) {
        let asked = self
            .kernel
            .ask_on_shell(now, &mut self.out, &mut self.timers);
        if let Some(asked) = asked {
            self.requests.await_proof(asked);
        }
    }

    /// The kernel has answered the proxy's own request on shell.
    pub(super) fn shell_answers(&mut self, now: Now) {
        self.kernel.shell_answered(&mut self.timers);
        if !self.requests.keys(Request::lacks_proof).is_empty() {
            self.ask_on_shell(now);
        }
        match self.queue.running() {
            Running::Nothing => {}
            Running::Something => self.is_idle(now),
            // Its `idle` is still on the way, or lost.
            running @ Running::Cell { .. } => {
                let at = now.instant + IDLE_LOST;
                self.kernel.doubt_running(running, at, &mut self.timers);
            }
        }
    }

    /// The kernel has not answered on shell for a while.
    pub(super) fn assume_busy(&mut self) {
        if self.kernel.asked_on_shell().is_some() {
            self.queue.assume_busy();
        }
    }

    /// The kernel was idle a while ago, and what ran then still seems to run.
    pub(super) fn end_doubted(&mut self, now: Now) {
        if self.kernel.doubted(self.queue.running()) {
            self.is_idle(now);
        }
    }

    /// Clients that were let in by a synthetic `idle` learn that something runs.
    pub(super) fn publish_still_busy(&mut self, now: Now) {
        if let Some(running) = self.queue.running_header() {
            self.out.publish_busy(now, running);
        }
    }

    // ---- an `idle` that is missing

    /// A reply has come before its request's `idle`, as usual: whether the `idle` is lost is looked at later.
    pub(super) fn await_idle(&mut self, now: Now) {
        if !self.timers.runs(&Timer::LateIdle) {
            self.timers.start(now.instant + LATE_IDLE, Timer::LateIdle);
        }
    }

    /// The `idle` of some requests may be late, or lost: the kernel's shell is asked now.
    pub(super) fn doubt_idles(&mut self, now: Now) {
        if self.kernel.is_live() && self.requests.doubt_idles(self.kernel.asked_on_shell()) {
            self.ask_on_shell(now);
            self.timers.start(now.instant + LATE_IDLE, Timer::LateIdle);
        }
    }

    /// The kernel's main shell has begun a request: what it had begun and replied to before is over.
    ///
    /// A reply alone says nothing of the order, since iopub may be behind the shell's socket.
    fn end_before(&mut self, now: Now, begun: &Key) {
        let was_begun = |request: &Request| {
            let on_main_shell = || {
                let header = Header::parse(&request.header);
                header.is_ok_and(|header| header.subshell_id.is_none())
            };
            request.busy
                && request.lacks_idle()
                && request.channel == Channel::Shell
                && on_main_shell()
        };
        for key in self.requests.keys(was_begun) {
            if key != *begun {
                self.replace_idle(now, &key);
            }
        }
    }

    /// Publishes that a request is over whose `idle` was lost, and how much was lost with it.
    fn replace_idle(&mut self, now: Now, key: &Key) {
        let Some((request, dropped)) = self.requests.lose_idle(key, self.dropped.count()) else {
            return;
        };
        if request.answer == Answer::FromKernel {
            let parent = request.header.clone();
            // One is the `idle` itself.
            if request.msg_type == "execute_request" && dropped > 1 {
                let notice = dropped::notice(dropped);
                self.out.publish_notice(now, parent.clone(), &notice);
            }
            self.out.push(Action::IdleLost {
                msg_id: key.msg_id().to_owned(),
            });
            self.out.publish_idle(now, parent);
        }
        if self.queue.runs(key) {
            self.is_idle(now);
        }
        self.finish(now, key);
    }

    // ---- interrupts

    /// Withdraws the cells of this front end that have not begun, where something else runs.
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
            let Some(request) = self.requests.get(key) else {
                continue;
            };
            // VS Code leaves what the cell showed before above the error that follows.
            let (sent, parent) = (request.sent, request.header.clone());
            self.out.publish_busy(now, parent.clone());
            let clear = json!({ "wait": false });
            self.out.publish_new(now, "clear_output", parent, &clear);
            self.requests.set_busy(key, true);
            if sent {
                self.fail_early(now, &ending, key);
                // The kernel has not begun with it.
                self.requests.set_busy(key, false);
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
        if self.kernel.is_live() && !self.queue.runs_from_outside() {
            return Vec::new();
        }
        self.requests.keys(|request| {
            request.role == Role::Cell
                && !(request.busy || request.replied)
                && request.answer == Answer::FromKernel
        })
    }

    /// Interrupts the kernel in its own way, on the proxy's own account.
    pub(super) fn interrupt_kernel(&mut self, now: Now) {
        match self.kernel() {
            Kernel::Live {
                interrupt: Interrupt::Signal,
                ..
            } => self.out.push(Action::SignalKernel),
            Kernel::Live { .. } => {
                let channel = Channel::Control;
                self.kernel
                    .ask(now, &mut self.out, channel, "interrupt_request");
            }
            _ => {}
        }
    }
}

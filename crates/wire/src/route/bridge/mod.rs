//! The bridge between the clients of one front end and one kernel after another.
//!
//! | file | inputs |
//! |---|---|
//! | `clients` | connections of clients that come and go; sockets to the kernel; subscribers |
//! | `to_kernel`, `control`, `connecting` | messages of clients: sent, held, or answered in the kernel's stead |
//! | `from_kernel`, `idle` | messages of the kernel, and what they show about the running cell |
//! | `failures` | requests that no kernel will answer |

mod clients;
mod connecting;
mod control;
mod failures;
mod from_kernel;
mod idle;
mod to_kernel;

use std::time::Instant;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::attendance::Attendance;
use super::clients::Clients;
use super::comms::Comms;
use super::connection::KernelConnection;
use super::dropped::DroppedMessages;
use super::execution_queue::ExecutionQueue;
use super::kernel::{Ending, Kernel};
use super::output::Output;
use super::request::{Key, Request, Requests};
use super::resolution::NotebookResolution;
use super::settings::{FrontEnd, Policies, Settings};
use super::stored_answers::StoredAnswers;
use super::timer::{IDLE_LOST, KERNEL_WAIT, Now, Timer, Timers};
use super::{Action, ClientId, HeldMessages, Note};
use crate::wire::{Channel, Verified};

/// The bridge of one front end: takes verified messages and the time, returns actions.
#[derive(Debug)]
pub struct Bridge {
    started: Timestamp,
    front_end: FrontEnd,
    policies: Policies,
    notices: Notices,
    kernel: KernelConnection,
    clients: Clients,
    requests: Requests,
    queue: ExecutionQueue,
    stored: StoredAnswers,
    resolution: NotebookResolution,
    /// The cell that ran when this front end last interrupted the kernel.
    interrupted: Option<Key>,
    attendance: Attendance,
    comms: Comms,
    dropped: DroppedMessages,
    timers: Timers,
    out: Output,
}

/// The lines that the next cell's client reads before its outputs.
#[derive(Debug, Default)]
struct Notices {
    /// Says that the kernel is not the one whose variables the client knows.
    replaced: Option<String>,
    /// Says how the kernel was chosen.
    choice: Option<String>,
}

impl Notices {
    fn take(&mut self) -> impl Iterator<Item = String> {
        self.replaced.take().into_iter().chain(self.choice.take())
    }
}

impl Bridge {
    /// Makes a bridge that waits for its kernel.
    pub fn new(settings: Settings, now: Now) -> Self {
        let client_id = ClientId::new(Bytes::from(settings.id.clone()));
        let mut timers = Timers::new(now.instant);
        timers.start(KERNEL_WAIT, Timer::KernelWait);
        Self {
            started: now.date,
            front_end: settings.front_end,
            policies: Policies::default(),
            notices: Notices::default(),
            kernel: KernelConnection::new(client_id),
            clients: Clients::new(settings.held_bytes, settings.undelivered_bytes),
            requests: Requests::default(),
            queue: ExecutionQueue::default(),
            stored: StoredAnswers::default(),
            resolution: NotebookResolution::default(),
            interrupted: None,
            attendance: Attendance::default(),
            comms: Comms::default(),
            dropped: DroppedMessages::default(),
            timers,
            out: Output::new(settings.id, now),
        }
    }

    fn set_now(&mut self, now: Now) {
        self.timers.set_now(now.instant);
        self.out.set_now(now);
    }

    /// Returns the next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.out.poll()
    }

    /// Returns when [`Bridge::handle_timeout`] must be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Takes the user's settings.
    pub fn set_policies(&mut self, policies: Policies) {
        self.queue.set_enabled(policies.turns);
        self.policies = policies;
    }

    /// Sets a notice that the client of the next cell reads before its outputs: another kernel has replaced
    /// the one whose variables it knows, and why.
    pub fn set_notice(&mut self, text: String) {
        self.notices.replaced = Some(text);
    }

    /// Sets a notice that the client of the next cell reads before its outputs: how the kernel was chosen.
    pub fn set_choice(&mut self, text: String) {
        self.notices.choice = Some(text);
    }

    /// Sets the content of a `kernel_info_reply` that the session's kernel gave earlier: with it clients can
    /// connect while the kernel is restarted.
    pub fn set_info(&mut self, info: Option<Bytes>) {
        self.stored.set_info(info);
    }

    /// Sets the kernel's version of ipywidgets, if it is known before a probe.
    pub fn set_widgets(&mut self, version: Option<String>) {
        self.stored.set_widgets(version);
    }

    /// Returns the clients that are connected now.
    pub fn joined(&self) -> impl Iterator<Item = &ClientId> {
        self.clients.joined()
    }

    /// Returns whether a client is connected, or was a moment ago.
    pub fn knows(&self, id: &ClientId) -> bool {
        self.clients.contains(id)
    }

    /// Returns how many requests have no answer yet.
    pub fn outstanding(&self) -> usize {
        self.clients.outstanding()
    }

    /// Returns how much of each client waits, for the kernel or in the execution queue.
    pub fn held(&self) -> impl Iterator<Item = (&ClientId, HeldMessages)> {
        self.clients.held()
    }

    /// Returns the state of the kernel.
    pub fn kernel(&self) -> &Kernel {
        self.kernel.kernel()
    }

    /// Returns whether no person runs the cells of the front end.
    pub fn is_batch(&self) -> bool {
        self.front_end == FrontEnd::Other && self.attendance == Attendance::Unattended
    }

    /// Takes a change of the kernel's state.
    ///
    /// `ending` says how the previous generation ended, if there was one; clients whose requests were under
    /// way get it as an error, and so do those whose code was meant for the lost variables. `unsent` are the
    /// messages that were not wholly written to that generation, in order: those that are no code wait for the next one.
    pub fn set_kernel(
        &mut self,
        now: Now,
        kernel: Kernel,
        ending: &Ending,
        unsent: impl IntoIterator<Item = (ClientId, Channel, Verified)>,
    ) {
        self.change_kernel(now, kernel, ending, unsent, |request| {
            !request.sent && request.msg_type == "execute_request"
        });
    }

    /// Leaves a kernel that was only assumed: the front end has named another notebook. What was not wholly written to
    /// the kernel, which goes on, was meant for the kernel of that notebook.
    pub fn leave_kernel(
        &mut self,
        now: Now,
        ending: &Ending,
        unsent: impl IntoIterator<Item = (ClientId, Channel, Verified)>,
    ) {
        self.change_kernel(now, Kernel::Awaited, ending, unsent, |_| false);
    }

    fn change_kernel(
        &mut self,
        now: Now,
        kernel: Kernel,
        ending: &Ending,
        unsent: impl IntoIterator<Item = (ClientId, Channel, Verified)>,
        fails_unsent: impl Fn(&Request) -> bool,
    ) {
        self.set_now(now);
        if kernel == *self.kernel() || self.attendance == Attendance::Exited {
            return;
        }
        if let Kernel::Live { info, .. } | Kernel::Unresolved { info } = &kernel {
            self.set_info(info.clone());
        }
        if self.kernel().is_same_generation(&kernel) {
            return self.kernel.set_kernel(kernel);
        }
        if self.kernel().is_live() && self.is_batch() {
            return self.end_with_kernel(ending);
        }
        if self.kernel().is_live() {
            self.end_generation(ending, unsent, fails_unsent);
        }
        self.kernel.replace_kernel(kernel);
        self.queue.clear();
        self.comms = Comms::default();
        for timer in [
            Timer::KernelWait,
            Timer::Probe,
            Timer::AssumeBusy,
            Timer::StillBusy,
            Timer::IdleLost,
            Timer::LateIdle,
        ] {
            self.timers.stop(&timer);
        }
        match self.kernel().clone() {
            Kernel::Awaited => self.timers.start(KERNEL_WAIT, Timer::KernelWait),
            Kernel::Live { .. } => {
                self.stored.set_execution_count(0);
                self.kernel.open_links(&mut self.out);
                self.clients.open_all_links(&mut self.out);
            }
            Kernel::Died(ending) | Kernel::Ended(ending) => self.refuse_held(&ending),
            Kernel::Unresolved { .. } => {
                self.resolution.begin();
                self.retry_held();
            }
        }
    }

    /// Ends a generation: requests that were sent to it fail, and of those that it never got the chosen ones; the rest
    /// waits for the next one.
    fn end_generation(
        &mut self,
        ending: &Ending,
        unsent: impl IntoIterator<Item = (ClientId, Channel, Verified)>,
        fails_unsent: impl Fn(&Request) -> bool,
    ) {
        // The caller may report the change before it has polled all actions.
        let unpolled = self.kernel.take_unsent(&mut self.out, |_, _| true);
        self.close_all_links();
        // An answer to the old kernel's prompt is no answer to the next kernel.
        let unsent = unsent.into_iter().chain(unpolled);
        self.put_back(unsent.filter(|(_, channel, _)| *channel != Channel::Stdin));
        self.clients.drop_input(&mut self.out);
        for key in self.requests.keys(fails_unsent) {
            self.take_held(&key);
            self.fail_one(ending, &key);
        }
        self.fail(ending, |request| request.sent);
        self.requests.end_late();
    }

    /// Publishes a message of `nb live` on an editor's comm.
    pub fn editor_message(&mut self, now: Now, comm: &str, data: &Value) {
        self.set_now(now);
        let content = json!({ "comm_id": comm, "data": data });
        let no_request = Bytes::from_static(b"{}");
        self.out.publish_new("comm_msg", no_request, &content);
    }

    /// Publishes that no `nb live` speaks on an editor's comm any more, and why, for a reader.
    pub fn editor_closed(&mut self, now: Now, comm: &str, why: &str) {
        self.set_now(now);
        let content = json!({ "comm_id": comm, "data": { "message": why } });
        let no_request = Bytes::from_static(b"{}");
        self.out.publish_new("comm_close", no_request, &content);
    }

    /// Takes a SIGINT to the proxy, by which Jupyter asks for an interrupt.
    pub fn interrupt(&mut self, now: Now) {
        self.set_now(now);
        let own = self.kernel.client_id().clone();
        self.stop(&own, None, None);
    }

    /// Sets whether iopub messages were read from the socket that the bridge has not been given yet.
    pub fn set_iopub_behind(&mut self, is_behind: bool) {
        self.kernel.set_iopub_behind(is_behind);
    }

    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Now) {
        self.set_now(now);
        while let Some(timer) = self.timers.due() {
            match timer {
                Timer::Probe => self.probe_iopub(),
                Timer::KernelWait => self.kernel_wait_timed_out(),
                Timer::ForgetClient(id) => self.forget(&id),
                Timer::HandOver(id) => self.hand_over(&id),
                Timer::Interrupt(id) => self.release_interrupt(&id),
                Timer::AnswerWait(key) => self.answer_late_request(&key),
                Timer::StillBusy => self.publish_still_busy(),
                Timer::NameWait => self.resolution.assume_default(&mut self.out),
                Timer::AssumeBusy => self.assume_busy(),
                // The `idle` may be among the iopub messages that were read and not handled yet.
                Timer::IdleLost if self.kernel.is_iopub_behind() => {
                    self.timers.start(IDLE_LOST, Timer::IdleLost);
                }
                Timer::IdleLost => self.end_doubted(),
                Timer::LateIdle => self.doubt_idles(),
            }
        }
    }

    /// Fails the requests that wait for a kernel which has not come in time.
    fn kernel_wait_timed_out(&mut self) {
        let seconds = KERNEL_WAIT.as_secs();
        self.out.log(Note::KernelSlow { seconds });
        let ending = Ending::new(
            "KernelNotReady",
            format!(
                "the kernel was not there after {seconds} s. `nb status` tells its state, `nb open` starts it."
            ),
        );
        self.refuse_held(&ending);
        self.kernel.set_kernel(Kernel::Ended(ending));
    }
}

#[cfg(test)]
impl Bridge {
    pub(super) fn actions(&mut self) -> &mut std::collections::VecDeque<Action> {
        self.out.actions()
    }

    pub(super) fn shell_request(&self) -> Option<&super::request::Key> {
        self.kernel.shell_request()
    }

    /// Returns the parts of the bridge that tests compare with the simulated world.
    pub(super) fn parts(&self) -> (&Clients, &Requests, &ExecutionQueue, &Timers) {
        (&self.clients, &self.requests, &self.queue, &self.timers)
    }

    /// Returns whether requests may be sent to the kernel.
    pub(super) fn is_usable(&self) -> bool {
        self.kernel.is_usable()
    }

    pub(super) fn is_iopub_proven(&self) -> bool {
        self.kernel.is_iopub_proven()
    }

    pub(super) fn policies(&self) -> &Policies {
        &self.policies
    }

    pub(super) fn published(&self) -> u64 {
        self.out.published()
    }
}

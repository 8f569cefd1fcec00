//! The timers of the bridge.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::ClientId;
use super::request::Key;

/// The current time, as the caller measures it.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For intervals.
    pub instant: Instant,
    /// For the `date` of a header.
    pub date: jiff::Timestamp,
}

/// The timers by their purpose. Each says what happens when it fires.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The kernel is asked once more for a message on iopub.
    Probe,
    /// Requests that wait for a kernel fail.
    KernelWait,
    /// A client without connections is forgotten.
    ForgetClient(ClientId),
    /// A recorder takes the outputs of the running cells of a client without connections.
    HandOver(ClientId),
    /// A held interrupt is carried out, since no shutdown has followed.
    Interrupt(ClientId),
    /// The bridge answers a connecting client's request in the kernel's stead.
    AnswerWait(Key),
    /// Clients that got an `idle` so that they could connect get the `busy` of what still runs.
    StillBusy,
    /// The default notebook is used, since nothing has named one.
    NameWait,
    /// Something is taken to be running, since the kernel has not answered the proxy's own request on shell.
    AssumeBusy,
    /// A cell is taken to have ended: the kernel was idle, and the cell's `idle` has not arrived.
    IdleLost,
    /// The kernel is asked whether an `idle` is lost that has not followed its reply.
    LateIdle,
}

/// How long requests wait for a kernel that is being started.
pub(super) const KERNEL_WAIT: Duration = Duration::from_secs(60);
/// How long a client without connections is remembered: a client that reconnects in this time has not left.
pub(super) const REMEMBERED: Duration = Duration::from_secs(30);
/// The first wait for a message on iopub; doubled each time, up to [`PROBE_MAX`].
pub(super) const PROBE: Duration = Duration::from_millis(5);
/// The longest wait; VS Code, too, asks again every 500 ms.
pub(super) const PROBE_MAX: Duration = Duration::from_millis(500);
/// How long an interrupt that may hit another client's cell is held: jupyter_client sends one with each
/// shutdown.
pub(super) const INTERRUPT_HELD: Duration = Duration::from_millis(100);
/// How long a connecting client waits for the kernel's own answer.
pub(super) const ANSWER_WAIT: Duration = Duration::from_millis(200);
/// How long after the `idle` of another request clients get the `busy` of the cell that runs. VS Code waits
/// for `idle` when it connects, and then shows the last status.
pub(super) const STILL_BUSY: Duration = Duration::from_secs(3);
/// How long requests that need a kernel wait for the notebook's name. VS Code names it 40 ms after the launch
/// where it runs start-up code, otherwise with the first cell.
pub(super) const NAME_WAIT: Duration = Duration::from_secs(2);

/// How long the kernel may take to answer on shell before something is taken to be running.
pub(super) const BUSY: Duration = Duration::from_millis(200);
/// How long after the kernel was certainly idle a missing `idle` counts as lost.
pub(super) const IDLE_LOST: Duration = Duration::from_secs(1);

/// Every running timer, soonest first.
#[derive(Debug)]
pub(super) struct Timers {
    /// The time of the last input.
    now: Instant,
    running: BTreeSet<(Instant, Timer)>,
}

impl Timers {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            now,
            running: BTreeSet::new(),
        }
    }

    /// Takes the time of an input.
    pub(super) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Returns the time of the last input.
    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// Starts a timer, or restarts it.
    pub(super) fn start(&mut self, after: Duration, timer: Timer) {
        self.stop(&timer);
        self.running.insert((self.now + after, timer));
    }

    pub(super) fn stop(&mut self, timer: &Timer) {
        self.running.retain(|(_, other)| other != timer);
    }

    pub(super) fn stop_all(&mut self) {
        self.running.clear();
    }

    pub(super) fn runs(&self, timer: &Timer) -> bool {
        self.running.iter().any(|(_, other)| other == timer)
    }

    /// Returns when the next timer is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.running.first().map(|(at, _)| *at)
    }

    /// Removes and returns a timer that is due.
    pub(super) fn due(&mut self) -> Option<Timer> {
        if self.next()? > self.now {
            return None;
        }
        self.running.pop_first().map(|(_, timer)| timer)
    }
}

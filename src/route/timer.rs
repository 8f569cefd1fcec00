//! Everything that happens because time passes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::ClientId;
use super::request::Key;

/// The time, as the caller knows it.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For intervals.
    pub instant: Instant,
    /// For the `date` of a header.
    pub date: jiff::Timestamp,
}

/// What a timer is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Ask the kernel for a sign on iopub once more.
    Probe,
    /// Requests have waited long enough for a kernel.
    Awaited,
    /// A client without connections is forgotten.
    Gone(ClientId),
    /// A client without connections has cells that run: a recorder takes their outputs.
    HandOver(ClientId),
    /// No shutdown has followed an interrupt.
    Interrupt(ClientId),
    /// The kernel has not answered what a connecting client waits for.
    Stale(Key),
    /// A client got an `idle` so that it could connect, and something still runs.
    StillBusy,
    /// Nothing has named the notebook.
    Nameless,
    /// The kernel has not answered the proxy's own question on shell.
    Busy,
    /// The kernel was idle, and the `idle` of what ran has not come.
    IdleLost,
    /// Some request was replied to, and its `idle` has not come.
    LateIdle,
}

/// How long requests wait for a kernel that is being started.
pub(super) const AWAITED: Duration = Duration::from_secs(60);
/// How long a client without connections is remembered: a reconnect is no departure.
pub(super) const GONE: Duration = Duration::from_secs(30);
/// How long a client without connections may take to come back to a cell of its own.
pub(super) const RETURNS: Duration = Duration::from_secs(10);
/// How long an idle may come behind its reply before the kernel is asked whether it is lost.
pub(super) const LATE_IDLE: Duration = Duration::from_secs(1);
/// The first wait for a sign on iopub; doubled each time, up to [`PROBE_MAX`].
pub(super) const PROBE: Duration = Duration::from_millis(5);
/// VS Code, too, asks again every 500 ms.
pub(super) const PROBE_MAX: Duration = Duration::from_millis(500);
/// How long an interrupt that may hit another's cell is held: jupyter_client sends one along with
/// each shutdown.
pub(super) const INTERRUPT_HELD: Duration = Duration::from_millis(100);
/// How long a connecting client waits for the kernel itself.
pub(super) const STALE: Duration = Duration::from_millis(200);
/// How long after an answer in the kernel's stead clients get the `busy` of what still runs.
/// VS Code waits for `idle` when it connects, and shows the last status.
pub(super) const STILL_BUSY: Duration = Duration::from_secs(3);
/// How long what needs a kernel waits for the notebook's name. VS Code names it 40 ms after the
/// launch where it runs start-up code, and with the first cell elsewhere.
pub(super) const NAMELESS: Duration = Duration::from_secs(2);

/// How long the kernel may take to answer on shell before something is taken to be running.
pub(super) const BUSY: Duration = Duration::from_millis(200);
/// How long after the kernel was idle for certain a missing `idle` is given up.
pub(super) const IDLE_LOST: Duration = Duration::from_secs(1);

/// Every timer that runs, soonest first.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, Timer)>);

impl Timers {
    /// Starts a timer, or starts it anew.
    pub(super) fn start(&mut self, at: Instant, timer: Timer) {
        self.stop(&timer);
        self.0.insert((at, timer));
    }

    pub(super) fn stop(&mut self, timer: &Timer) {
        self.0.retain(|(_, other)| other != timer);
    }

    pub(super) fn runs(&self, timer: &Timer) -> bool {
        self.0.iter().any(|(_, other)| other == timer)
    }

    /// Returns when the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes one that is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }
}

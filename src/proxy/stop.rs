//! Signals, and the detection of front ends that were killed.

use std::cell::Cell;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;

use crate::kernel::process::Starter;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalAction {
    /// SIGTERM, SIGHUP: end.
    Stop,
    /// SIGINT: jupyter_client's interrupt of a kernel in signal mode. It never ends the proxy.
    Interrupt,
    /// SIGUSR1: write the counters to the log.
    Report,
}

/// The signals of this process, caught from its start.
///
/// Each signal arrives through its own socket pair, so that the handler itself does no work.
pub(super) struct Signals {
    pipes: Vec<(SignalAction, UnixStream)>,
}

impl Signals {
    /// Catches the signals.
    pub(super) fn register() -> io::Result<Self> {
        let signals = [
            (SIGTERM, SignalAction::Stop),
            (SIGHUP, SignalAction::Stop),
            (SIGINT, SignalAction::Interrupt),
            (SIGUSR1, SignalAction::Report),
        ];
        let mut pipes = Vec::new();
        for (signal, action) in signals {
            let (read, write) = UnixStream::pair()?;
            signal_hook::low_level::pipe::register(signal, write)?;
            read.set_nonblocking(true)?;
            pipes.push((action, read));
        }
        Ok(Self { pipes })
    }

    /// Calls `handler` for every signal, for as long as the runtime lives.
    pub(super) fn listen(self, handler: impl Fn(SignalAction) + Clone + 'static) -> io::Result<()> {
        for (action, pipe) in self.pipes {
            let mut pipe = tokio::net::UnixStream::from_std(pipe)?;
            let handler = handler.clone();
            tokio::task::spawn_local(async move {
                let mut bytes = [0; 64];
                while pipe.read(&mut bytes).await.is_ok_and(|count| count > 0) {
                    handler(action);
                }
            });
        }
        Ok(())
    }
}

/// How long an orphan that never had subscribers stays: if its launcher used an intermediate process, clients
/// may still dial.
const GRACE: Duration = Duration::from_secs(30);

/// How long an orphan stays whose subscribers have disconnected with their editor.
const GRACE_AFTER_SUBSCRIBERS: Duration = Duration::from_secs(3);

/// How often the parent's pid is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How soon it is checked after a subscriber has left: the system closes a killed editor's sockets before its
/// children get another parent.
const SOON_INTERVAL: Duration = Duration::from_millis(500);

/// Detects that the front end was killed: this process has another parent, and iopub has no subscriber.
///
/// An editor killed with SIGKILL leaves its proxies behind under PID 1.
pub(super) struct Orphan {
    starter: Starter,
    orphaned_since: Cell<Option<Instant>>,
    /// Whether there has ever been a subscriber.
    had_subscribers: Cell<bool>,
    subscriber_left: Notify,
}

impl Orphan {
    /// Remembers who started this process.
    pub(super) fn watch() -> Self {
        Self {
            starter: Starter::of_this_process(),
            orphaned_since: Cell::new(None),
            had_subscribers: Cell::new(false),
            subscriber_left: Notify::new(),
        }
    }

    /// Records that a subscriber has left.
    pub(super) fn subscriber_left(&self) {
        self.had_subscribers.set(true);
        self.subscriber_left.notify_one();
    }

    /// Waits until this process should end; `subscribers` returns the number of iopub's subscribers.
    pub(super) async fn wait(&self, subscribers: impl Fn() -> usize) {
        let mut pause = Duration::ZERO;
        loop {
            tokio::select! {
                () = self.subscriber_left.notified() => pause = SOON_INTERVAL,
                () = tokio::time::sleep(pause) => {
                    let is_adopted = self.starter.is_gone();
                    if self.is_over(Instant::now(), subscribers(), is_adopted) {
                        return;
                    }
                    pause = if self.orphaned_since.get().is_some() { SOON_INTERVAL } else { CHECK_INTERVAL };
                }
            }
        }
    }

    fn is_over(&self, now: Instant, subscribers: usize, is_adopted: bool) -> bool {
        if subscribers > 0 {
            self.had_subscribers.set(true);
        }
        if !is_adopted || subscribers > 0 {
            self.orphaned_since.set(None);
            return false;
        }
        let since = self.orphaned_since.get().unwrap_or(now);
        self.orphaned_since.set(Some(since));
        let had_subscribers = self.had_subscribers.get();
        let grace = if had_subscribers {
            GRACE_AFTER_SUBSCRIBERS
        } else {
            GRACE
        };
        now.duration_since(since) >= grace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_ends_after_its_grace_period_if_it_has_no_subscribers() {
        let start = Instant::now();
        let orphan = Orphan::watch();
        assert!(!orphan.is_over(start, 0, false));
        assert!(!orphan.is_over(start, 0, true));
        assert!(!orphan.is_over(start + GRACE / 2, 0, true));
        assert!(orphan.is_over(start + GRACE, 0, true));
    }

    #[test]
    fn an_orphan_whose_subscribers_have_left_ends_soon() {
        let start = Instant::now();
        let orphan = Orphan::watch();
        assert!(!orphan.is_over(start, 1, false));
        assert!(!orphan.is_over(start, 0, true));
        assert!(
            !orphan.is_over(start + GRACE_AFTER_SUBSCRIBERS / 2, 1, true),
            "one still listens"
        );
        assert!(
            !orphan.is_over(start + GRACE_AFTER_SUBSCRIBERS, 0, true),
            "the grace begins anew"
        );
        assert!(orphan.is_over(start + GRACE_AFTER_SUBSCRIBERS * 2, 0, true));
    }
}

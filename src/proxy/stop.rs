//! Signals, and front ends that were killed.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use tokio::io::AsyncReadExt;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// SIGTERM, SIGHUP: end.
    Stop,
    /// SIGINT: jupyter_client's interrupt of a kernel in signal mode. Never an end.
    Interrupt,
    /// SIGUSR1: write the counters down.
    Report,
}

/// The signals of this process, caught from the first millisecond on.
///
/// Each comes through a socket pair of its own, so that nothing runs inside a handler.
pub(super) struct Signals {
    pipes: Vec<(Asked, UnixStream)>,
}

impl Signals {
    /// Catches the signals.
    pub(super) fn register() -> io::Result<Self> {
        let wanted = [
            (SIGTERM, Asked::Stop),
            (SIGHUP, Asked::Stop),
            (SIGINT, Asked::Interrupt),
            (SIGUSR1, Asked::Report),
        ];
        let mut pipes = Vec::new();
        for (signal, asked) in wanted {
            let (read, write) = UnixStream::pair()?;
            signal_hook::low_level::pipe::register(signal, write)?;
            read.set_nonblocking(true)?;
            pipes.push((asked, read));
        }
        Ok(Self { pipes })
    }

    /// Calls `on` for every signal, for as long as the runtime lives.
    pub(super) fn listen(self, on: impl Fn(Asked) + Clone + 'static) -> io::Result<()> {
        for (asked, pipe) in self.pipes {
            let mut pipe = tokio::net::UnixStream::from_std(pipe)?;
            let on = on.clone();
            tokio::task::spawn_local(async move {
                let mut bytes = [0; 64];
                while pipe.read(&mut bytes).await.is_ok_and(|count| count > 0) {
                    on(asked);
                }
            });
        }
        Ok(())
    }
}

/// How long an orphan without subscribers stays: whoever launched it by way of another process may dial yet.
const GRACE: Duration = Duration::from_secs(30);

/// How long where subscribers were there: they went with their editor.
const GRACE_KILLED: Duration = Duration::from_secs(3);

/// Notices that the front end was killed: the parent is another and nobody listens.
///
/// An editor killed with SIGKILL leaves its proxies behind under PID 1.
pub(super) struct Orphan {
    parent: Option<rustix::process::Pid>,
    since: Option<Instant>,
    /// Whether anybody has ever listened.
    was_heard: bool,
}

impl Orphan {
    /// How often to look.
    pub(super) const EVERY: Duration = Duration::from_secs(5);

    /// How soon once somebody has left: the system closes a killed editor's sockets before its children
    /// have another parent.
    pub(super) const SOON: Duration = Duration::from_millis(500);

    /// Remembers today's parent.
    pub(super) fn watch() -> Self {
        Self {
            parent: rustix::process::getppid(),
            since: None,
            was_heard: false,
        }
    }

    /// Returns whether it is time to go.
    pub(super) fn is_over(&mut self, now: Instant, subscribers: usize) -> bool {
        self.judge(now, subscribers, rustix::process::getppid() != self.parent)
    }

    fn judge(&mut self, now: Instant, subscribers: usize, adopted: bool) -> bool {
        self.was_heard |= subscribers > 0;
        if !adopted || subscribers > 0 {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let grace = if self.was_heard { GRACE_KILLED } else { GRACE };
        now.duration_since(since) >= grace
    }

    /// Says that somebody listened.
    pub(super) fn is_heard(&mut self) {
        self.was_heard = true;
    }

    /// Returns whether it goes before long, if nobody comes.
    pub(super) fn is_about_to_go(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_goes_after_its_grace_and_only_when_nobody_listens() {
        let start = Instant::now();
        let mut orphan = Orphan {
            parent: None,
            since: None,
            was_heard: false,
        };
        assert!(!orphan.judge(start, 0, false));
        assert!(!orphan.judge(start, 0, true));
        assert!(!orphan.judge(start + GRACE / 2, 0, true));
        assert!(orphan.judge(start + GRACE, 0, true));
    }

    #[test]
    fn an_orphan_whose_subscribers_went_with_their_editor_goes_soon() {
        let start = Instant::now();
        let mut orphan = Orphan {
            parent: None,
            since: None,
            was_heard: false,
        };
        assert!(!orphan.judge(start, 1, false));
        assert!(!orphan.judge(start, 0, true));
        assert!(
            !orphan.judge(start + GRACE_KILLED / 2, 1, true),
            "somebody still listens"
        );
        assert!(
            !orphan.judge(start + GRACE_KILLED, 0, true),
            "the grace begins anew"
        );
        assert!(orphan.judge(start + GRACE_KILLED * 2, 0, true));
    }
}

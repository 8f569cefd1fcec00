//! Decides when outputs are written into the notebook while a cell runs: seldom, since an editor that
//! shows it reads it again each time.
//!
//! The first seconds of a run are an exception. An editor gets no other sign that another actor's
//! cell runs. So the cell is written at once, without its old outputs and its execution count, and
//! its first outputs follow soon.

use std::time::Duration;

use super::held::check_pause;
use crate::execution::into_notebook::Hold;

/// How long after the start of a run its first cell is written into the notebook.
const FIRST: Duration = Duration::from_millis(300);

/// The gap between two writes during the first [`EARLY_TIME`] of a run.
const EARLY_GAP: Duration = Duration::from_secs(1);

/// For how long the gaps at the start of a run are short.
const EARLY_TIME: Duration = Duration::from_secs(10);

/// A notebook of more bytes than this takes long to write.
const SHORT_BYTES: u64 = 2_000_000;

/// The least gap between two writes after that, and the time until the first write of a long
/// notebook.
const GAP_MIN: Duration = Duration::from_secs(2);

/// The longest gap, unless writing takes very long or writes very many bytes.
const GAP_MAX: Duration = Duration::from_secs(30);

/// The longest time of a write that counts as quick.
const QUICK: Duration = Duration::from_millis(40);

/// Writing takes at most one part in this many of the time: 2 %.
const SHARE: u32 = 50;

/// The most bytes written per second, on average over a long time: each write writes the whole
/// notebook, even if little in it is new.
const BYTES_A_SECOND: u64 = 600_000;

/// The facts about a write that decide when the next one may come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WriteFacts {
    /// How long it took.
    pub(super) took: Duration,
    /// How many bytes it wrote.
    pub(super) bytes: u64,
    /// Whether nothing could be written.
    pub(super) failed: bool,
    /// What holds the outputs back, if anything does.
    pub(super) held_by: Option<Hold>,
    /// Whether a front end shows the notebook.
    pub(super) is_watched: bool,
}

/// The gap before the next write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    doubling: Duration,
    next: Duration,
}

impl Gaps {
    /// Returns the gaps for a notebook of this size in bytes: the first write comes soon if it is
    /// short.
    pub(super) fn new(notebook_bytes: u64) -> Self {
        let is_short = notebook_bytes <= SHORT_BYTES;
        Self {
            doubling: GAP_MIN,
            next: if is_short { FIRST } else { GAP_MIN },
        }
    }

    /// Returns how long to wait after the start of the run or after the first new output.
    pub(super) fn next(self) -> Duration {
        self.next
    }

    /// Takes a write, made when the run was `age` old.
    pub(super) fn wrote(&mut self, wrote: WriteFacts, age: Duration) {
        if let Some(hold) = wrote.held_by {
            self.next = check_pause(hold);
            return;
        }
        let by_bytes = Duration::from_millis(wrote.bytes * 1000 / BYTES_A_SECOND);
        if age < EARLY_TIME && wrote.took <= QUICK && !wrote.failed {
            self.next = EARLY_GAP.max(by_bytes);
            return;
        }
        let disturbs = wrote.is_watched || wrote.failed || wrote.took > QUICK;
        self.doubling = if disturbs {
            GAP_MAX.min(self.doubling * 2)
        } else {
            GAP_MIN
        };
        self.next = self.doubling.max(wrote.took * SHARE).max(by_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates ten minutes of prints, with writes like the given one; returns when they began,
    /// with the one at the end.
    fn ten_minutes(wrote: WriteFacts) -> Vec<Duration> {
        let end = Duration::from_secs(600);
        let mut gaps = Gaps::new(wrote.bytes);
        let (mut now, mut writes) = (Duration::ZERO, Vec::new());
        loop {
            now += gaps.next();
            if now >= end {
                writes.push(end);
                return writes;
            }
            writes.push(now);
            now += wrote.took;
            gaps.wrote(wrote, now);
        }
    }

    #[test]
    fn a_large_notebook_is_written_seldom() {
        let wrote = WriteFacts {
            took: Duration::from_millis(400),
            bytes: 40_000_000,
            ..WriteFacts::default()
        };
        let writes = ten_minutes(wrote);
        let count = u32::try_from(writes.len()).unwrap();
        assert!(u64::from(count) * wrote.bytes <= 500_000_000, "{count}");
        assert!(count >= 8, "{count}");
        assert!(wrote.took * count <= Duration::from_secs(600) / SHARE);
        assert_eq!(writes[0], GAP_MIN);
    }

    #[test]
    fn a_slow_one_takes_a_fiftieth_of_the_time() {
        for seconds in [1, 3, 10] {
            let wrote = WriteFacts {
                took: Duration::from_secs(seconds),
                bytes: 1000,
                ..WriteFacts::default()
            };
            let writes = ten_minutes(wrote);
            // The first and the last write are made however long they take.
            let between = u32::try_from(writes.len()).unwrap() - 2;
            assert!(
                wrote.took * between <= Duration::from_secs(12),
                "{writes:?}"
            );
        }
    }

    #[test]
    fn an_open_editor_is_disturbed_less_and_less_and_nobody_not_at_all() {
        let small = WriteFacts {
            took: Duration::from_millis(5),
            bytes: 10_000,
            ..WriteFacts::default()
        };
        // Ten during the first seconds, and the rest.
        assert_eq!(ten_minutes(small).len(), 10 + 296);
        for (is_watched, failed) in [(true, false), (false, true)] {
            let writes = ten_minutes(WriteFacts {
                is_watched,
                failed,
                ..small
            });
            let gaps: Vec<_> = writes
                .windows(2)
                .map(|two| (two[1] - two[0]).as_secs())
                .filter(|gap| *gap > 1)
                .collect();
            assert_eq!(gaps[..4], [4, 8, 16, 30]);
            assert!(writes.len() < 36, "{}", writes.len());
        }
        // When writes are quick and no front end is joined, they become frequent again.
        let mut gaps = Gaps::new(0);
        let watched = WriteFacts {
            is_watched: true,
            ..small
        };
        gaps.wrote(watched, EARLY_TIME);
        gaps.wrote(small, EARLY_TIME);
        assert_eq!(gaps.next(), GAP_MIN);
    }

    #[test]
    fn an_early_change_is_written_at_once_and_each_second_also_beside_an_open_editor() {
        let small = WriteFacts {
            took: Duration::from_millis(5),
            bytes: 10_000,
            is_watched: true,
            ..WriteFacts::default()
        };
        let writes = ten_minutes(small);
        assert_eq!(writes[0], FIRST);
        let early = writes.iter().filter(|at| **at < EARLY_TIME).count();
        assert_eq!(early, 10, "{writes:?}");
        assert!(writes[1] - writes[0] < EARLY_GAP + QUICK, "{writes:?}");
        // Slow writes get long gaps from the beginning.
        for slow in [
            WriteFacts {
                took: QUICK * 2,
                ..small
            },
            WriteFacts {
                failed: true,
                ..small
            },
        ] {
            let writes = ten_minutes(slow);
            assert!(writes[1] - writes[0] >= GAP_MIN * 2, "{writes:?}");
        }
    }
}

//! When outputs go into the notebook while a cell runs: seldom, since an editor that shows it reads
//! it anew each time.

use std::time::Duration;

/// How long after they began outputs go into the notebook, and the least gap between two writes.
const LEAST: Duration = Duration::from_secs(2);

/// The longest gap, unless writing takes very long or writes very much.
const LONGEST: Duration = Duration::from_secs(30);

/// A write that takes longer than this is not quick.
const QUICK: Duration = Duration::from_millis(40);

/// At most one part of so many of the time goes into writing: 2 %.
const SHARE: u32 = 50;

/// How much is written a second at most, over a long time: a notebook is written whole, however
/// little is new in it.
const BYTES_A_SECOND: u64 = 600_000;

/// One write, as far as it says when the next one may come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wrote {
    /// How long it took.
    pub(super) took: Duration,
    /// How many bytes it wrote.
    pub(super) bytes: u64,
    /// Nothing could be written.
    pub(super) failed: bool,
    /// A front end shows the notebook.
    pub(super) is_watched: bool,
}

/// The gap before the next write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    doubling: Duration,
    next: Duration,
}

impl Gaps {
    /// The first comes soon after outputs began.
    pub(super) fn new() -> Self {
        Self {
            doubling: LEAST,
            next: LEAST,
        }
    }

    /// Returns how long to wait from the first new output on.
    pub(super) fn next(self) -> Duration {
        self.next
    }

    /// Takes a write.
    pub(super) fn wrote(&mut self, wrote: Wrote) {
        let disturbs = wrote.is_watched || wrote.failed || wrote.took > QUICK;
        self.doubling = if disturbs {
            LONGEST.min(self.doubling * 2)
        } else {
            LEAST
        };
        let by_bytes = Duration::from_millis(wrote.bytes * 1000 / BYTES_A_SECOND);
        self.next = self.doubling.max(wrote.took * SHARE).max(by_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten minutes of prints, each write as given; returns when writes began, the last at the end.
    fn ten_minutes(wrote: Wrote) -> Vec<Duration> {
        let end = Duration::from_secs(600);
        let mut gaps = Gaps::new();
        let (mut now, mut writes) = (Duration::ZERO, Vec::new());
        loop {
            now += gaps.next();
            if now >= end {
                writes.push(end);
                return writes;
            }
            writes.push(now);
            now += wrote.took;
            gaps.wrote(wrote);
        }
    }

    #[test]
    fn a_large_notebook_is_written_seldom() {
        let wrote = Wrote {
            took: Duration::from_millis(400),
            bytes: 40_000_000,
            ..Wrote::default()
        };
        let writes = ten_minutes(wrote);
        let count = u32::try_from(writes.len()).unwrap();
        assert!(u64::from(count) * wrote.bytes <= 500_000_000, "{count}");
        assert!(count >= 8, "{count}");
        assert!(wrote.took * count <= Duration::from_secs(600) / SHARE);
        assert_eq!(writes[0], LEAST);
    }

    #[test]
    fn a_slow_one_takes_a_fiftieth_of_the_time() {
        for seconds in [1, 3, 10] {
            let wrote = Wrote {
                took: Duration::from_secs(seconds),
                bytes: 1000,
                ..Wrote::default()
            };
            let writes = ten_minutes(wrote);
            // The first and the last come whatever they take.
            let between = u32::try_from(writes.len()).unwrap() - 2;
            assert!(
                wrote.took * between <= Duration::from_secs(12),
                "{writes:?}"
            );
        }
    }

    #[test]
    fn an_open_editor_is_disturbed_less_and_less_and_nobody_not_at_all() {
        let small = Wrote {
            took: Duration::from_millis(5),
            bytes: 10_000,
            ..Wrote::default()
        };
        assert_eq!(ten_minutes(small).len(), 300);
        for (is_watched, failed) in [(true, false), (false, true)] {
            let writes = ten_minutes(Wrote {
                is_watched,
                failed,
                ..small
            });
            let gaps: Vec<_> = writes
                .windows(2)
                .map(|two| (two[1] - two[0]).as_secs())
                .collect();
            assert_eq!(gaps[..4], [4, 8, 16, 30]);
            assert!(writes.len() < 26, "{}", writes.len());
        }
        // Once it is quick and nobody looks, it is written often again.
        let mut gaps = Gaps::new();
        gaps.wrote(Wrote {
            is_watched: true,
            ..small
        });
        gaps.wrote(small);
        assert_eq!(gaps.next(), LEAST);
    }
}

//! A latency histogram of fixed size, for percentiles of recent durations.

use std::time::Duration;

/// A histogram of the last one or two thousand durations.
///
/// Each power of two is divided into eight buckets, so a percentile is exact to one part in sixteen.
/// Adding a duration allocates nothing.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    recent: Box<[u16; BUCKETS]>,
    older: Box<[u16; BUCKETS]>,
    added: u16,
}

/// The number of durations after which the older half is forgotten.
const WINDOW: u16 = 1024;

/// The number of buckets between two powers of two.
const FINE: u32 = 8;

/// The number of buckets: from a microsecond to some 19 hours. The last one takes all that is longer.
const BUCKETS: usize = (36 * FINE) as usize;

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self {
            recent: Box::new([0; BUCKETS]),
            older: Box::new([0; BUCKETS]),
            added: 0,
        }
    }
}

impl LatencyHistogram {
    /// Adds a duration.
    pub fn add(&mut self, took: Duration) {
        if self.added == WINDOW {
            std::mem::swap(&mut self.recent, &mut self.older);
            self.recent.fill(0);
            self.added = 0;
        }
        self.added += 1;
        let bucket = bucket(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        if let Some(count) = self.recent.get_mut(bucket) {
            *count += 1;
        }
    }

    /// Returns the duration that `percent` in a hundred did not exceed; `None` where none was added.
    pub fn percentile(&self, percent: u32) -> Option<Duration> {
        let counts = || {
            self.recent
                .iter()
                .zip(&*self.older)
                .map(|(a, b)| u32::from(a + b))
        };
        let all: u32 = counts().sum();
        let wanted = (all * percent).div_ceil(100).max(1);
        let mut below = 0;
        let bucket = counts().position(|count| {
            below += count;
            below >= wanted
        })?;
        Some(Duration::from_micros(middle(bucket)))
    }
}

/// Returns the bucket of a number of microseconds; the first eight hold one number each.
fn bucket(micros: u64) -> usize {
    let fine = u64::from(FINE);
    if micros < fine {
        return usize::try_from(micros).expect("less than eight");
    }
    let power = micros.ilog2();
    // The three bits after the first.
    let within = (micros >> (power - FINE.ilog2())) & (fine - 1);
    let bucket = u64::from(power - FINE.ilog2() + 1) * fine + within;
    usize::try_from(bucket).map_or(BUCKETS - 1, |bucket| bucket.min(BUCKETS - 1))
}

/// Returns the middle of a bucket, in microseconds.
fn middle(bucket: usize) -> u64 {
    let (bucket, fine) = (bucket as u64, u64::from(FINE));
    if bucket < fine {
        return bucket;
    }
    let shift = bucket / fine - 1;
    let low = (fine + bucket % fine) << shift;
    low + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(histogram: &LatencyHistogram, percent: u32) -> u128 {
        histogram
            .percentile(percent)
            .expect("some were taken")
            .as_micros()
    }

    #[test]
    fn a_percentile_is_right_to_one_part_in_sixteen() {
        for wanted in [
            0_u64,
            1,
            7,
            8,
            9,
            100,
            1234,
            65_535,
            3_000_000,
            40_000_000_000,
        ] {
            let got = middle(bucket(wanted));
            assert!(got.abs_diff(wanted) * 16 <= wanted, "{got} for {wanted}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn half_and_nearly_all() {
        let mut histogram = LatencyHistogram::default();
        assert_eq!(histogram.percentile(50), None);
        for _ in 0..98 {
            histogram.add(Duration::from_micros(5));
        }
        histogram.add(Duration::from_micros(6));
        histogram.add(Duration::from_secs(1));
        assert_eq!((micros(&histogram, 50), micros(&histogram, 99)), (5, 6));
        assert!(micros(&histogram, 100) > 900_000);
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut histogram = LatencyHistogram::default();
        histogram.add(Duration::from_secs(1));
        for _ in 0..2 * WINDOW {
            histogram.add(Duration::from_micros(3));
        }
        assert_eq!(micros(&histogram, 100), 3);
    }
}

//! How long things took lately: the half and the ninety-nine in a hundred, in a few bytes.

use std::time::Duration;

/// The spread of the last one or two thousand durations.
///
/// Each is kept as one of the steps between the powers of two, so a percentile is exact to one
/// part in sixteen. Nothing is allocated after it was made, and taking one is an addition.
#[derive(Clone, Debug)]
pub struct Spread {
    now: Box<[u16; STEPS]>,
    before: Box<[u16; STEPS]>,
    taken: u16,
}

/// After so many the older half is forgotten.
const WINDOW: u16 = 1024;

/// Between two powers of two.
const FINE: u32 = 8;

/// From a microsecond to some 19 hours; what takes longer counts as that.
const STEPS: usize = (36 * FINE) as usize;

impl Default for Spread {
    fn default() -> Self {
        Self {
            now: Box::new([0; STEPS]),
            before: Box::new([0; STEPS]),
            taken: 0,
        }
    }
}

impl Spread {
    /// Takes a duration.
    pub fn take(&mut self, took: Duration) {
        if self.taken == WINDOW {
            std::mem::swap(&mut self.now, &mut self.before);
            self.now.fill(0);
            self.taken = 0;
        }
        self.taken += 1;
        let step = step(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        if let Some(count) = self.now.get_mut(step) {
            *count += 1;
        }
    }

    /// Returns what so many in a hundred did not exceed; none where nothing was taken.
    pub fn percentile(&self, percent: u32) -> Option<Duration> {
        let counts = || {
            self.now
                .iter()
                .zip(&*self.before)
                .map(|(a, b)| u32::from(a + b))
        };
        let all: u32 = counts().sum();
        let wanted = (all * percent).div_ceil(100).max(1);
        let mut below = 0;
        let step = counts().position(|count| {
            below += count;
            below >= wanted
        })?;
        Some(Duration::from_micros(middle(step)))
    }
}

/// Returns the step of a number of microseconds: the first eight are steps of one.
fn step(micros: u64) -> usize {
    let fine = u64::from(FINE);
    if micros < fine {
        return usize::try_from(micros).expect("less than eight");
    }
    let power = micros.ilog2();
    // The three bits after the first.
    let within = (micros >> (power - FINE.ilog2())) & (fine - 1);
    let step = u64::from(power - FINE.ilog2() + 1) * fine + within;
    usize::try_from(step).map_or(STEPS - 1, |step| step.min(STEPS - 1))
}

/// Returns the middle of a step, in microseconds.
fn middle(step: usize) -> u64 {
    let (step, fine) = (step as u64, u64::from(FINE));
    if step < fine {
        return step;
    }
    let shift = step / fine - 1;
    let low = (fine + step % fine) << shift;
    low + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(spread: &Spread, percent: u32) -> u128 {
        spread
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
            let got = middle(step(wanted));
            assert!(got.abs_diff(wanted) * 16 <= wanted, "{got} for {wanted}");
        }
        assert_eq!(step(u64::MAX), STEPS - 1);
    }

    #[test]
    fn half_and_nearly_all() {
        let mut spread = Spread::default();
        assert_eq!(spread.percentile(50), None);
        for _ in 0..98 {
            spread.take(Duration::from_micros(5));
        }
        spread.take(Duration::from_micros(6));
        spread.take(Duration::from_secs(1));
        assert_eq!((micros(&spread, 50), micros(&spread, 99)), (5, 6));
        assert!(micros(&spread, 100) > 900_000);
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let mut spread = Spread::default();
        spread.take(Duration::from_secs(1));
        for _ in 0..2 * WINDOW {
            spread.take(Duration::from_micros(3));
        }
        assert_eq!(micros(&spread, 100), 3);
    }
}

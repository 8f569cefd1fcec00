//! The pauses between attempts to connect.

use std::time::Duration;

/// The pauses after the first attempts, in seconds; then the last one again and again.
const PAUSES: [u64; 6] = [1, 2, 4, 8, 16, 30];

/// Pauses that grow, with a random part, so that the clients of a server that returns do not come all at once.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    attempts: usize,
}

impl Backoff {
    /// Returns the next pause; `random` is a number at random.
    pub(super) fn next(&mut self, random: u8) -> Duration {
        let last = PAUSES.len() - 1;
        let seconds = PAUSES.get(self.attempts).or(PAUSES.get(last)).copied();
        self.attempts += 1;
        let seconds = Duration::from_secs(seconds.unwrap_or_default());
        // 80 to 120 percent.
        seconds.mul_f64(0.8 + 0.4 * f64::from(random) / 255.0)
    }

    /// Begins again with the first pause.
    pub(super) fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_minute_and_begin_again() {
        let mut backoff = Backoff::default();
        let mut seconds = |random: u8| backoff.next(random).as_secs_f64();
        let pauses: Vec<f64> = (0..8).map(|_| seconds(0).round()).collect();
        assert_eq!(pauses, [1.0, 2.0, 3.0, 6.0, 13.0, 24.0, 24.0, 24.0]);
        assert!((seconds(255) - 36.0).abs() < 1e-9);
        backoff.reset();
        assert!((backoff.next(255).as_secs_f64() - 1.2).abs() < 1e-9);
    }
}

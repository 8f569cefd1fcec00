//! One table, for people.

use std::time::Duration;

/// Prints the head.
pub fn head() {
    println!(
        "{:<44} {:>12} {:>12} {:>9}  note",
        "", "direct", "nb-proxy", "ratio"
    );
}

/// Prints one row that has both sides.
pub fn pair(name: &str, direct: Duration, through: Duration, note: &str) {
    let ratio = through.as_secs_f64() / direct.as_secs_f64();
    println!(
        "{name:<44} {:>12} {:>12} {ratio:>8.2}×  {note}",
        show(direct),
        show(through)
    );
}

/// Prints one row that concerns the proxy alone.
pub fn alone(name: &str, value: &str, note: &str) {
    println!("{name:<44} {:>12} {value:>12} {:>9}  {note}", "–", "–");
}

/// Shows a time with three digits that matter.
pub fn show(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    match micros {
        _ if micros < 1_000.0 => format!("{micros:.1} µs"),
        _ if micros < 1_000_000.0 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

/// Returns the median.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Returns the value below which 99 % lie.
pub fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times
        .get(times.len() * 99 / 100)
        .copied()
        .unwrap_or_default()
}

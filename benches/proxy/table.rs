//! One table, for people.

use std::time::Duration;

/// Prints the head.
pub fn head() {
    println!(
        "{:<36} {:>11} {:>11} {:>11} {:>8} {:>8}  note",
        "", "direct", "byte pump", "nb-proxy", "/direct", "/pump"
    );
}

/// Prints one row that has all sides: direct, the byte pump, the proxy.
pub fn sides(name: &str, [direct, pump, proxy]: [Duration; 3], note: &str) {
    let ratio = |to: Duration| proxy.as_secs_f64() / to.as_secs_f64();
    println!(
        "{name:<36} {:>11} {:>11} {:>11} {:>7.2}× {:>7.2}×  {note}",
        show(direct),
        show(pump),
        show(proxy),
        ratio(direct),
        ratio(pump)
    );
}

/// Prints one row that concerns the proxy alone.
pub fn alone(name: &str, value: &str, note: &str) {
    println!(
        "{name:<36} {:>11} {:>11} {value:>11} {:>8} {:>8}  {note}",
        "–", "–", "–", "–"
    );
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

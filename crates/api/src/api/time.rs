//! Points in time and durations, as messages show them.

use std::time::Duration;

use jiff::Timestamp;

use crate::activity::zone;

/// Formats a point in time: the time of day if it is today, else with its date.
pub fn moment(at: Timestamp) -> String {
    let zone = zone::here();
    let (at, now) = (at.to_zoned(zone.clone()), Timestamp::now().to_zoned(zone));
    let format = if at.date() == now.date() {
        "%H:%M:%S"
    } else {
        "%Y-%m-%d %H:%M"
    };
    at.strftime(format).to_string()
}

/// Formats a duration: `0.4 s`, `3 min 12 s`.
pub fn took(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Returns a duration in whole milliseconds, as answers have it.
pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Formats the time since `since`: `12 s`, `4 min`, `3 h`, `5 days`.
pub fn age(since: Timestamp) -> String {
    let seconds = Timestamp::now().as_second() - since.as_second();
    match u64::try_from(seconds).unwrap_or_default() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        assert_eq!(took(Duration::from_millis(412)), "0.4 s");
        assert_eq!(took(Duration::from_secs(192)), "3 min 12 s");
        assert_eq!(took(Duration::from_secs(7322)), "2 h 2 min");
        let ago = |seconds| age(Timestamp::now() - Duration::from_secs(seconds));
        assert_eq!(ago(119), "119 s");
        assert_eq!(ago(121), "2 min");
        assert_eq!(ago(3 * 86400), "3 days");
    }
}

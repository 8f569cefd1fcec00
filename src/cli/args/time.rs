//! Parses points in time in the past, as people write them.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::{Span, Timestamp, Zoned};

use crate::activity::zone;
use crate::api::problem::{Problem, ProblemKind};

/// Parses how many seconds to wait: a finite number, not below 0.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.filter(|seconds| Duration::try_from_secs_f64(*seconds).is_ok());
    seconds.ok_or_else(|| "give seconds, 0 or more".to_owned())
}

/// Parses a time of day, a date, both, a full timestamp, or a span before now.
pub(crate) fn read(text: &str) -> Result<Timestamp, Problem> {
    at(text, &Timestamp::now().to_zoned(zone::here())).ok_or_else(|| {
        let message = format!(
            "{text:?} is not a time: last, 14:02, 2026-01-31, 2026-01-31 14:02, 90min or 3d"
        );
        Problem::new(ProblemKind::Usage, message)
    })
}

fn at(text: &str, now: &Zoned) -> Option<Timestamp> {
    let text = text.trim();
    let zoned = |moment: DateTime| {
        let zoned = moment.to_zoned(now.time_zone().clone()).ok()?;
        Some(zoned.timestamp())
    };
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp);
    }
    // A time of day later than now means yesterday's.
    if text.contains(':')
        && let Ok(time) = Time::strptime(time_format(text), text)
    {
        let today = zoned(now.date().to_datetime(time))?;
        return match today > now.timestamp() {
            true => zoned(now.date().yesterday().ok()?.to_datetime(time)),
            false => Some(today),
        };
    }
    if let Ok(date) = text.parse::<Date>()
        && text.len() == "2026-01-31".len()
    {
        return zoned(date.to_datetime(Time::midnight()));
    }
    if let Some((date, time)) = text.split_once([' ', 'T'])
        && let Ok(date) = date.parse::<Date>()
    {
        let time = Time::strptime(time_format(time), time).ok()?;
        return zoned(date.to_datetime(time));
    }
    let span: Span = text.parse().ok()?;
    // `2 hours ago` parses as a negative span.
    let earlier = now.checked_sub(span.abs()).ok()?;
    Some(earlier.timestamp())
}

fn time_format(text: &str) -> &'static str {
    match text.matches(':').count() {
        1 => "%H:%M",
        _ => "%H:%M:%S",
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn a_wait_is_a_finite_number_of_seconds() {
        assert_eq!(seconds("0"), Ok(0.0));
        assert_eq!(seconds("1.5"), Ok(1.5));
        for bad in ["-1", "nan", "inf", "1e300", "x", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn moments_are_written_as_people_do() {
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        let now: Zoned = "2026-01-31T10:00:00Z"
            .parse::<Timestamp>()
            .unwrap()
            .to_zoned(zone);
        for (text, want) in [
            ("11:30", "2026-01-31T09:30:00Z"),
            ("11:30:05", "2026-01-31T09:30:05Z"),
            ("14:02", "2026-01-30T12:02:00Z"),
            ("2026-01-30", "2026-01-29T22:00:00Z"),
            ("2026-01-30 14:02", "2026-01-30T12:02:00Z"),
            ("2026-01-30T14:02", "2026-01-30T12:02:00Z"),
            ("2026-01-30T14:02:00Z", "2026-01-30T14:02:00Z"),
            ("90min", "2026-01-31T08:30:00Z"),
            ("3d", "2026-01-28T10:00:00Z"),
            ("2 hours ago", "2026-01-31T08:00:00Z"),
        ] {
            let read = at(text, &now).map(|at| at.to_string());
            assert_eq!(read.as_deref(), Some(want), "{text}");
        }
        for text in ["", "yesterday", "25:00", "2026-13-01", "3"] {
            assert_eq!(at(text, &now), None, "{text}");
        }
    }
}

//! The local time zone, and moments in it.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The file in which most systems store the rules of the local time zone.
const LOCAL: &str = "/etc/localtime";

/// Returns the local time zone.
///
/// If the system has a file with the zone's rules, only that file is read. The zone's name, which is
/// never shown, could only be found by comparing the file with those of all zones, which takes
/// longer than most commands. The file is read once, since a list of times needs the zone for each
/// of them.
pub fn here() -> TimeZone {
    static RULES: LazyLock<Option<TimeZone>> = LazyLock::new(|| rules(LOCAL));
    match std::env::var_os("TZ") {
        Some(_) => TimeZone::system(),
        None => RULES.clone().unwrap_or_else(TimeZone::system),
    }
}

fn rules(path: &str) -> Option<TimeZone> {
    let rules = std::fs::read(path).ok()?;
    TimeZone::tzif("local", &rules).ok()
}

/// Formats a time: without a date if it is today, else with its date.
pub fn clock(at: Timestamp, zone: &TimeZone) -> String {
    let at = at.to_zoned(zone.clone());
    let format = if at.date() == Timestamp::now().to_zoned(zone.clone()).date() {
        "%H:%M"
    } else {
        "%Y-%m-%d %H:%M"
    };
    at.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_as_the_systems_own() {
        let all = ["2026-01-31T10:00:00Z", "2026-07-31T10:00:00Z"];
        for at in all.map(|at| at.parse::<Timestamp>().unwrap()) {
            let [ours, theirs] = [here(), TimeZone::system()].map(|zone| zone.to_offset(at));
            assert_eq!(ours, theirs);
        }
        assert!(rules("/dev/null").is_none());
    }
}

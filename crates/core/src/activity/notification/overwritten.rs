//! The notification lines about edits that a save wiped out.

use std::collections::HashSet;

use jiff::tz::TimeZone;

use crate::activity::labels;
use crate::activity::zone;
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::notebook::ChangeKind;
use crate::project::event::OverwrittenEdit;

/// The most lines.
const LINES: usize = 3;

/// Returns the lines about edits that were wiped out, one for each cell and at most three. If a
/// cell was edited several times, only its last edit is named.
pub fn words(edits: &[OverwrittenEdit]) -> Vec<Hint> {
    if edits.is_empty() {
        return Vec::new();
    }
    lines_in(edits, &zone::here())
}

fn lines_in(edits: &[OverwrittenEdit], zone: &TimeZone) -> Vec<Hint> {
    let mut cells = HashSet::new();
    let mut last: Vec<_> = edits
        .iter()
        .rev()
        .filter(|edit| cells.insert(&edit.cell))
        .collect();
    last.reverse();
    let (count, shown) = (
        last.len(),
        if last.len() > LINES { LINES - 1 } else { LINES },
    );
    let mut lines: Vec<_> = last
        .iter()
        .take(shown)
        .map(|edit| line(edit, zone))
        .collect();
    if count > shown {
        let more = count - shown;
        lines.push(hint![
            format!("{more} more of your edits were overwritten too: "),
            nb(Verb::Log),
            " tells"
        ]);
    }
    lines
}

fn line(edit: &OverwrittenEdit, zone: &TimeZone) -> Hint {
    let OverwrittenEdit { cell, revision, .. } = edit;
    let short = labels::cell(cell);
    let at = zone::clock(edit.at, zone);
    let label = match edit.kind {
        ChangeKind::Removed => {
            let text = format!(
                "{short}, which you removed {at}, is in the file again: a save overwrote that; "
            );
            return hint![text, nb(Verb::Rm).word(&**cell), " removes it"];
        }
        ChangeKind::Inserted => format!("your new cell {short}"),
        _ => format!("your edit of {short}"),
    };
    let text = format!("{label} ({at}) is no longer in the file: a save overwrote it");
    match revision {
        Some(revision) => {
            let restore = nb(Verb::Restore).word(format!("{cell}@{revision}"));
            hint![text, "; ", restore, " brings it back"]
        }
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(cell: &str, kind: ChangeKind) -> OverwrittenEdit {
        OverwrittenEdit {
            cell: cell.to_owned(),
            op: "12345678".to_owned(),
            by: "claude".to_owned(),
            by_session: None,
            kind,
            revision: "1a2b3c4d5e".parse().ok(),
            at: "2026-01-02T14:02:00Z".parse().unwrap(),
        }
    }

    #[test]
    fn a_line_tells_what_is_gone_and_how_it_comes_back() {
        let all = [
            edit("77de0a1b", ChangeKind::Edited),
            edit("load", ChangeKind::Inserted),
            edit("0123abcd", ChangeKind::Removed),
            edit("77de0a1b", ChangeKind::Edited),
        ];
        let lines = lines_in(&all, &TimeZone::UTC);
        let lines: Vec<_> = lines
            .iter()
            .map(|line| line.to_string().replace("2026-01-02 ", ""))
            .collect();
        assert_eq!(
            lines,
            [
                "your new cell load (14:02) is no longer in the file: a save overwrote it; \
                 nb restore load@1a2b3c4d5e brings it back",
                "0123, which you removed 14:02, is in the file again: a save overwrote that; \
                 nb rm 0123abcd removes it",
                "your edit of 77de (14:02) is no longer in the file: a save overwrote it; \
                 nb restore 77de0a1b@1a2b3c4d5e brings it back",
            ]
        );
        let many: Vec<_> = ["a", "b", "c", "d"]
            .map(|id| edit(id, ChangeKind::Edited))
            .into();
        let lines = lines_in(&many, &TimeZone::UTC);
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[2].to_string(),
            "2 more of your edits were overwritten too: nb log tells"
        );
    }
}

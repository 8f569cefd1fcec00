//! What a refusal shows of its conflicts: the lines that others changed, within a limit.

use serde::Serialize;

use crate::notebook::{Conflict, DiffLine, changed_lines};

/// How many bytes of lines a refusal shows.
const LIMIT: usize = 180;

/// How many conflicts a refusal shows with their lines.
const CONFLICTS_MAX: usize = 3;

/// The lines that one side of a conflict changed, as a refusal shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ConflictSummary {
    /// The first changed lines.
    pub lines: Vec<DiffLine>,
    /// How many more changed lines there are. A line that is too long is one of these.
    pub left_out: usize,
}

/// The side of a conflict that is compared with its base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictSide {
    /// The writer.
    Yours,
    /// The file.
    Theirs,
}

/// Returns for each conflict of a refusal what one side changed.
pub fn summaries(conflicts: &[Conflict], side: ConflictSide) -> Vec<ConflictSummary> {
    let limit = LIMIT / conflicts.len().clamp(1, CONFLICTS_MAX);
    let each = conflicts.iter().enumerate();
    each.map(|(at, conflict)| {
        let lines = changed(conflict, side);
        let fits = if at < CONFLICTS_MAX { limit } else { 0 };
        let mut bytes = 0;
        let shown = lines.iter().take_while(|line| {
            bytes += line.text().len() + 5;
            bytes <= fits
        });
        let shown = shown.count();
        ConflictSummary {
            left_out: lines.len() - shown,
            lines: lines.into_iter().take(shown).collect(),
        }
    })
    .collect()
}

fn changed(conflict: &Conflict, side: ConflictSide) -> Vec<DiffLine> {
    let now = match side {
        ConflictSide::Yours => &conflict.yours,
        ConflictSide::Theirs => &conflict.theirs,
    };
    match (&conflict.base, now) {
        (Some(base), Some(now)) => changed_lines(base, now),
        (None, Some(now)) => now
            .split('\n')
            .map(str::to_owned)
            .map(DiffLine::Added)
            .collect(),
        (_, None) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn theirs(conflicts: &[Conflict]) -> Vec<ConflictSummary> {
        summaries(conflicts, ConflictSide::Theirs)
    }

    fn conflict(base: Option<&str>, theirs: Option<&str>) -> Conflict {
        Conflict {
            base: base.map(str::to_owned),
            theirs: theirs.map(str::to_owned),
            ..Conflict::default()
        }
    }

    #[test]
    fn only_changed_lines_are_shown_and_only_within_the_limit() {
        let same = "x\n".repeat(1000);
        let one = conflict(Some(&format!("{same}a")), Some(&format!("{same}b")));
        let shown = ConflictSummary {
            lines: vec![DiffLine::Removed("a".into()), DiffLine::Added("b".into())],
            left_out: 0,
        };
        assert_eq!(theirs(std::slice::from_ref(&one)).first(), Some(&shown));
        let yours = Conflict {
            yours: Some(format!("{same}c")),
            ..one.clone()
        };
        let yours = summaries(&[yours], ConflictSide::Yours);
        assert_eq!(yours[0].lines.last(), Some(&DiffLine::Added("c".into())));
        let removed = conflict(Some("a"), None);
        assert_eq!(theirs(&[removed]), [ConflictSummary::default()]);

        let long = conflict(None, Some(&format!("a\n{}\nc", "b".repeat(10_000))));
        let [summary] = &theirs(&[long])[..] else {
            panic!()
        };
        assert_eq!((summary.lines.len(), summary.left_out), (1, 2));

        let many = theirs(&vec![one; 100]);
        assert_eq!(many[2], shown);
        assert_eq!((many[3].lines.len(), many[3].left_out), (0, 2));
        let bytes =
            |it: &ConflictSummary| it.lines.iter().map(|line| line.text().len()).sum::<usize>();
        assert!(many.iter().map(bytes).sum::<usize>() <= LIMIT);
    }
}

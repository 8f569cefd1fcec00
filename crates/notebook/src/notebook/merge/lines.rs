//! Merges two changes of one text by lines.
//!
//! Lines are compared without their newlines: appending a line does not change the line before it. Changes
//! of neighbouring lines can be merged; changes of the same line, or two insertions at the same position,
//! cannot. (Merge crates treat neighbouring changes as a conflict, and write conflict markers, which do not
//! belong in a cell.)

use std::hash::Hash;
use std::ops::Range;

use similar::{Algorithm, DiffTag, capture_diff_slices};

/// The limit on pairs of differing lines. Texts with more are not compared, since that would take too long.
const MOST_PAIRS: usize = 50_000_000;

/// Lines of the base that one side replaced.
struct Replacement {
    base: Range<usize>,
    /// The side's lines.
    new: Range<usize>,
    side: usize,
}

/// Returns a text with the changes of both sides; none if they change the same lines.
pub fn merge_texts(base: &str, first: &str, second: &str) -> Option<String> {
    let merged = merged(base.as_bytes(), first.as_bytes(), second.as_bytes())?;
    String::from_utf8(merged).ok()
}

/// Returns a text with the changes of both sides. Where they change the same lines, those of the first come before those of
/// the second. Texts that differ in too many lines to be compared are united whole.
pub fn merge_keeping_both(base: &str, first: &str, second: &str) -> String {
    let texts = [base, first, second].map(str::as_bytes);
    let merged = merged_by(texts, SameLines::Both);
    let merged = merged.and_then(|merged| String::from_utf8(merged).ok());
    merged.unwrap_or_else(|| unite_texts(first, second))
}

/// What becomes of lines that both sides have changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SameLines {
    /// There is no merge.
    Refused,
    /// Both are kept.
    Both,
}

/// Returns a text with the lines of both texts, in their order; where each has lines of its own, those of the first come
/// before those of the second. A line that they have at different places is there once, as in the first.
pub fn unite_texts(first: &str, second: &str) -> String {
    let [first, second] = [first, second].map(|text| text.split('\n').collect::<Vec<_>>());
    let hunks = differences(&first, &second);
    let mut only_first: Vec<&str> = Vec::new();
    for (in_first, _) in &hunks {
        only_first.extend(first.get(in_first.clone()).unwrap_or_default());
    }
    let mut lines: Vec<&str> = Vec::new();
    let mut at = 0;
    for (in_first, in_second) in &hunks {
        lines.extend(first.get(at..in_first.end).unwrap_or_default());
        at = in_first.end;
        for line in second.get(in_second.clone()).unwrap_or_default() {
            match only_first.iter().position(|it| it == line) {
                Some(moved) => drop(only_first.remove(moved)),
                None => lines.push(line),
            }
        }
    }
    lines.extend(first.get(at..).unwrap_or_default());
    lines.join("\n")
}

/// Returns `base` with the changes of both sides; `None` if they cannot be merged.
pub(super) fn merged(base: &[u8], first: &[u8], second: &[u8]) -> Option<Vec<u8>> {
    merged_by([base, first, second], SameLines::Refused)
}

fn merged_by([base, first, second]: [&[u8]; 3], same_lines: SameLines) -> Option<Vec<u8>> {
    if first == second || base == second {
        return Some(first.to_vec());
    }
    if base == first {
        return Some(second.to_vec());
    }
    let [base, first, second] =
        [base, first, second].map(|text| text.split(|byte| *byte == b'\n').collect::<Vec<_>>());
    let mut hunks = changes(&base, &first, 0)?;
    hunks.extend(changes(&base, &second, 1)?);
    hunks.sort_by_key(|hunk| (hunk.base.start, hunk.base.end, hunk.side));
    let sides = [&first, &second];
    let new = |hunk: &Replacement| sides[hunk.side].get(hunk.new.clone()).unwrap_or_default();
    // Lines that one side inserts beside a change of the other side may already be part of that change, if
    // the same merge is made a second time.
    let from = |hunk: &Replacement| sides[hunk.side].get(hunk.new.start..).unwrap_or_default();
    let until = |hunk: &Replacement| sides[hunk.side].get(..hunk.new.end).unwrap_or_default();
    let is_part = |(at, hunk): (usize, &Replacement)| {
        let neighbours = hunks.get(at.saturating_sub(2)..(at + 3).min(hunks.len()));
        let mut others = neighbours.unwrap_or_default().iter();
        hunk.base.is_empty()
            && others.any(|other| {
                !other.base.is_empty()
                    && !other.new.is_empty()
                    && (other.base.start == hunk.base.end && from(other).starts_with(new(hunk))
                        || other.base.end == hunk.base.start && until(other).ends_with(new(hunk)))
            })
    };
    let part: Vec<_> = hunks.iter().enumerate().map(is_part).collect();
    let hunks: Vec<_> = hunks
        .iter()
        .zip(&part)
        .filter(|(_, part)| !**part)
        .map(|(hunk, _)| hunk)
        .collect();
    let mut out: Vec<&[u8]> = Vec::new();
    let mut at = 0;
    let mut last: [Option<&Replacement>; 2] = [None, None];
    for hunk in hunks {
        if let Some(other) = last[1 - hunk.side] {
            let is_same = other.base == hunk.base;
            if is_same && new(other) == new(hunk) {
                continue;
            }
            // They touch the same lines, or insert at the same position.
            let is_conflict = is_same || hunk.base.start < other.base.end;
            if is_conflict && same_lines == SameLines::Refused {
                return None;
            }
        }
        out.extend(base.get(at..hunk.base.start).unwrap_or_default());
        out.extend(new(hunk));
        at = at.max(hunk.base.end);
        last[hunk.side] = Some(hunk);
    }
    out.extend(base.get(at..).unwrap_or_default());
    Some(out.join(&b'\n'))
}

/// Returns the ranges of lines that differ, in both texts, in order.
pub(super) fn differences<T: Eq + Hash>(
    before: &[T],
    after: &[T],
) -> Vec<(Range<usize>, Range<usize>)> {
    match changes(before, after, 0) {
        Some(hunks) => hunks
            .into_iter()
            .map(|hunk| (hunk.base, hunk.new))
            .collect(),
        None => vec![(0..before.len(), 0..after.len())],
    }
}

fn changes<T: Eq + Hash>(base: &[T], other: &[T], side: usize) -> Option<Vec<Replacement>> {
    let head = base.iter().zip(other).take_while(|(a, b)| a == b).count();
    let longest_tail = base.len().min(other.len()) - head;
    let pairs = base.iter().rev().zip(other.iter().rev());
    let tail = pairs.take_while(|(a, b)| a == b).count().min(longest_tail);
    let left = base.get(head..base.len() - tail)?;
    let right = other.get(head..other.len() - tail)?;
    if left.len().saturating_mul(right.len()) > MOST_PAIRS {
        return None;
    }
    let ops = capture_diff_slices(Algorithm::Myers, left, right).into_iter();
    let hunks = ops
        .map(|op| op.as_tag_tuple())
        .filter(|(tag, ..)| *tag != DiffTag::Equal);
    let hunks = hunks.map(|(_, old, new)| Replacement {
        base: old.start + head..old.end + head,
        new: new.start + head..new.end + head,
        side,
    });
    Some(hunks.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_changes_of_the_same_lines_can_be_kept() {
        for (base, first, second, want) in [
            ("a\nb\nc", "a\nB\nc", "a\nbb\nC", "a\nB\nbb\nC"),
            ("a\nb\nc", "A\nb\nc", "a\nb\nC", "A\nb\nC"),
            ("a\nb\nc\nd", "a\nX\nd", "a\nb\nY\nd", "a\nX\nY\nd"),
            ("a", "a\nb", "a\nc", "a\nb\nc"),
            ("a", "b", "b", "b"),
        ] {
            assert_eq!(
                merge_keeping_both(base, first, second),
                want,
                "{first:?} {second:?}"
            );
        }
    }

    #[test]
    fn united_texts_have_each_line_once() {
        for (first, second, want) in [
            ("a\nmine\nb", "a\ntheirs\nb", "a\nmine\ntheirs\nb"),
            ("a\nb", "new\na\nb\nend", "new\na\nb\nend"),
            ("moved\na\nb", "a\nb\nmoved", "moved\na\nb"),
            ("", "x", "\nx"),
            ("x", "x", "x"),
        ] {
            assert_eq!(unite_texts(first, second), want, "{first:?} {second:?}");
        }
    }

    fn both(base: &str, first: &str, second: &str) -> Option<String> {
        let swapped = merged(base.as_bytes(), second.as_bytes(), first.as_bytes());
        let merged = merged(base.as_bytes(), first.as_bytes(), second.as_bytes());
        assert_eq!(merged, swapped);
        merged.map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn changes_of_different_lines_go_together() {
        for (base, first, second, want) in [
            ("a\nb\nc", "A\nb\nc", "a\nb\nC", "A\nb\nC"),
            // Neighbouring lines, and a line after one without a newline.
            ("a\nb", "A\nb", "a\nB", "A\nB"),
            ("a", "A", "a\nb", "A\nb"),
            ("a", "A", "b\na", "b\nA"),
            ("a\nb\nc", "a\nc", "a\nb\nc\nd", "a\nc\nd"),
            ("a\nb", "a\nx\nb", "a\nx\nb", "a\nx\nb"),
            // One side already has the other's insertion.
            ("a", "x\nA", "x\na", "x\nA"),
            ("a\nb", "A\nx\nb", "a\nx\nb", "A\nx\nb"),
            ("a\n\n", "x\n\nB", "x\n\na\n\n", "x\n\nB"),
            ("\n\na", "B\n\nx", "\n\na\n\nx", "B\n\nx"),
            ("a\nb\nc\n", "a\nb\nx\nc\n", "a\nc\n", "a\nx\nc\n"),
            // Equal lines that are no part of the other side's change, or on its other side.
            ("x", "a\nh", "x\na", "a\nh\na"),
            ("x", "a\nx", "b\na", "a\nb\na"),
            ("\na", "a", "a\n", "a"),
        ] {
            assert_eq!(
                both(base, first, second).as_deref(),
                Some(want),
                "{base:?} {first:?} {second:?}"
            );
        }
    }

    #[test]
    fn changes_of_one_line_do_not() {
        for (base, first, second) in [
            ("a", "b", "c"),
            ("a\nb", "a\nx\nb", "a\ny\nb"),
            ("a", "a\nb", "a\nc"),
            ("a\nb\nc", "a\nc", "a\nB\nc"),
            ("a\nb\nc\nd", "a\nd", "a\nb\nx\nc\nd"),
            ("a\n", "", "\n"),
        ] {
            assert_eq!(
                both(base, first, second),
                None,
                "{base:?} {first:?} {second:?}"
            );
        }
    }

    #[test]
    fn texts_that_differ_everywhere_take_no_time() {
        let text = |word: &str| {
            (0..100_000)
                .map(|n| format!("{word}{n}\n"))
                .collect::<String>()
        };
        let [a, b, c] = ["a", "b", "c"].map(text);
        assert_eq!(both(&a, &b, &c), None);
        // Only one side has changed it, or both in the same way.
        assert_eq!(both(&a, &b, &a).as_ref(), Some(&b));
        assert_eq!(both(&a, &b, &b).as_ref(), Some(&b));
        // Few lines are unique.
        let shuffled = |factor: usize| {
            let lines = (0..100_000).map(|n| format!("{}\n", n * n % factor % 89));
            lines.collect::<String>()
        };
        let [a, b, c] = [10_007, 9_973, 9_967].map(shuffled);
        assert_eq!(both(&a, &b, &c), None);
    }

    #[test]
    fn differences_are_as_short_as_possible() {
        for (before, after, want) in [
            ("", "", &[][..]),
            ("aa", "a", &[(1..2, 1..1)]),
            ("a", "aa", &[(1..1, 1..2)]),
            ("xabay", "xacay", &[(2..3, 2..3)]),
            ("abc", "xbyz", &[(0..1, 0..1), (2..3, 2..4)]),
        ] {
            let found = differences(before.as_bytes(), after.as_bytes());
            assert_eq!(found, want, "{before} {after}");
        }
    }

    #[test]
    fn texts_are_merged_as_sources_are() {
        let merged = merge_texts("a\nb", "A\nb", "a\nB");
        assert_eq!(merged.as_deref(), Some("A\nB"));
        assert_eq!(merge_texts("a", "b", "c"), None);
    }

    proptest::proptest! {
        #[test]
        fn one_sides_changes_are_taken_whole(
            base in "[abc\n]{0,20}", first in "[abc\n]{0,20}", second in "[abc\n]{0,20}",
        ) {
            proptest::prop_assert_eq!(both(&base, &first, &base), Some(first.clone()));
            proptest::prop_assert_eq!(both(&base, &first, &first), Some(first.clone()));
            if let Some(text) = both(&base, &first, &second) {
                // Every line that a side added is in the result.
                for line in first.split('\n').chain(second.split('\n')) {
                    let known = base.split('\n').any(|other| other == line);
                    proptest::prop_assert!(known || text.split('\n').any(|other| other == line));
                }
            }
        }
    }
}

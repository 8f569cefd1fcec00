//! The sizes that a notebook's file had in the last day.
//!
//! VS Code saves over a file without asking if it has the size that VS Code loaded or saved last, even if its time is
//! newer (`notebook::merge::other_size` has more). So an edit avoids all sizes of the day in which an editor may have
//! read the file, not only the one before.
//!
//! Each write reads and stores the sizes, so their record stays short: only the last few are known one by one, each
//! with the text that the file had. Older ones are ranges. If there are too many ranges, two near ones become one, and
//! the sizes between them are avoided, too.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::notebook::{Document, Revision};

/// How long a size is remembered.
const KEPT: SignedDuration = SignedDuration::from_hours(24);

/// How many of the last sizes are known with their text.
const MOST_RECENT: usize = 32;

/// How many ranges of older sizes are remembered; the oldest go first.
const MOST_RANGES: usize = 256;

/// How long a range is at most that has sizes which the file did not have, in bytes: half of the spaces that
/// [`Document::with_size`] may add.
const RANGE_BYTES_MAX: u64 = 2048;

/// The time in which the sizes of one range were seen.
const PERIOD: SignedDuration = SignedDuration::from_hours(4);

/// Which sizes a written file may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::editing) enum SizeRule {
    /// Any: only the style of the file changes, and no text is lost if an editor saves its own copy over it.
    Any,
    /// Another size than the file has now: a recorder's outputs are in its job, too.
    OtherThanNow,
    /// None that the file had in the last day.
    New,
    /// None that the file had in the last day with another text: an undo brings back the bytes of an earlier version.
    NewOrSameText,
}

impl SizeRule {
    /// Returns the revision of a notebook if later writes may have to know it.
    pub(super) fn text_of(self, notebook: &Document) -> Option<Revision> {
        matches!(self, Self::New | Self::NewOrSameText).then(|| notebook.revision())
    }
}

/// The sizes that a file had, by their number of bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::editing) struct Sizes {
    recent: BTreeMap<u64, SeenSize>,
    /// In ascending order.
    older: Vec<SizeRange>,
}

/// Sizes that a file had in one period: the number of the period, the first size and the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct SizeRange(i64, u64, u64);

/// When the file last had a size, and what it had then.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct SeenSize(Timestamp, SeenText);

/// The text of a file of some size: the notebook's revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum SeenText {
    Unknown,
    One(Revision),
    Several,
}

impl Sizes {
    /// Adds a size that the file got.
    pub(super) fn add(&mut self, size: u64, text: Option<Revision>, now: Timestamp) {
        let text = match (self.text(size), text) {
            (None, None) => SeenText::Unknown,
            (None, Some(text)) => SeenText::One(text),
            (Some(SeenText::One(known)), Some(text)) if known == text => SeenText::One(text),
            (Some(_), _) => SeenText::Several,
        };
        self.insert(size, text, now);
    }

    /// Adds the size that `nb` gave the file and that it still has.
    pub(super) fn keep(&mut self, size: u64, text: Option<Revision>, now: Timestamp) {
        let text = match (self.text(size), text) {
            (None | Some(SeenText::Unknown), Some(text)) => SeenText::One(text),
            (known, _) => known.unwrap_or(SeenText::Unknown),
        };
        self.insert(size, text, now);
    }

    /// Returns the text that the file had with a size, if it had that size.
    fn text(&self, size: u64) -> Option<SeenText> {
        let recent = self.recent.get(&size).map(|SeenSize(_, text)| *text);
        let is_older = || self.older.iter().any(|range| range.contains(size));
        recent.or_else(|| is_older().then_some(SeenText::Several))
    }

    fn insert(&mut self, size: u64, text: SeenText, now: Timestamp) {
        self.recent.insert(size, SeenSize(now, text));
        while self.recent.len() > MOST_RECENT {
            let oldest = self.recent.iter().min_by_key(|(_, SeenSize(at, _))| *at);
            let Some((size, SeenSize(at, _))) = oldest.map(|(size, seen)| (*size, *seen)) else {
                break;
            };
            self.recent.remove(&size);
            self.insert_older(size, at);
        }
    }

    fn insert_older(&mut self, size: u64, at: Timestamp) {
        let mut new = SizeRange(period(at), size, size);
        self.older.retain(|range| {
            let joins = range.0 == new.0 && range.1 <= new.2 + 1 && new.1 <= range.2 + 1;
            if joins {
                new = SizeRange(new.0, new.1.min(range.1), new.2.max(range.2));
            }
            !joins
        });
        let at = self.older.partition_point(|range| *range < new);
        self.older.insert(at, new);
        if self.older.len() <= MOST_RANGES {
            return;
        }
        let pairs = self.older.windows(2).enumerate();
        let near = pairs.filter_map(|(at, pair)| {
            let [SizeRange(period, first, end), SizeRange(other, start, last)] = pair else {
                return None;
            };
            (period == other && last - first < RANGE_BYTES_MAX).then(|| (start - end, at + 1))
        });
        let second = near.min().map_or(0, |(_, second)| second);
        let SizeRange(_, _, last) = self.older.remove(second);
        if let Some(first) = second.checked_sub(1).and_then(|at| self.older.get_mut(at)) {
            first.2 = last;
        }
    }

    /// Removes the sizes that the file had more than a day ago.
    pub(super) fn forget_old(&mut self, now: Timestamp) {
        self.recent.retain(|_, SeenSize(at, _)| is_young(*at, now));
        self.older.retain(|range| range.is_young(now));
    }

    /// Returns whether a file of `current` bytes may become one of `size` bytes with this text.
    fn allow(
        &self,
        rule: SizeRule,
        size: usize,
        current: usize,
        text: Option<Revision>,
        now: Timestamp,
    ) -> bool {
        let bytes = size as u64;
        let recent = self.recent.get(&bytes);
        let recent = recent.filter(|SeenSize(at, _)| is_young(*at, now));
        let is_older = || {
            let mut older = self.older.iter();
            older.any(|range| range.contains(bytes) && range.is_young(now))
        };
        let is_new = || recent.is_none() && !is_older();
        let has_same_text = || {
            let seen = recent.map(|SeenSize(_, seen)| *seen);
            text.is_some_and(|text| seen == Some(SeenText::One(text)))
        };
        match rule {
            SizeRule::Any => true,
            SizeRule::OtherThanNow => size != current,
            SizeRule::New => size != current && is_new(),
            SizeRule::NewOrSameText => size != current && (is_new() || has_same_text()),
        }
    }

    /// Returns whether a rule allows that a notebook's file becomes another one.
    pub(super) fn allows(&self, rule: SizeRule, after: &Document, before: &Document) -> bool {
        let text = (rule == SizeRule::NewOrSameText).then(|| after.revision());
        self.allow(rule, after.size(), before.size(), text, Timestamp::now())
    }

    /// Returns a notebook, made from `before` by edits, with a size that the rule allows; with another size than
    /// `before` if it allows none that white space can give. `mover` is as for [`Document::with_size`].
    pub(in crate::editing) fn fit(
        &self,
        rule: SizeRule,
        after: Document,
        before: &Document,
        mover: Option<&str>,
    ) -> Document {
        let text = (rule == SizeRule::NewOrSameText).then(|| after.revision());
        let (current, now) = (before.size(), Timestamp::now());
        after.with_size(before, mover, &|size| {
            self.allow(rule, size, current, text, now)
        })
    }
}

impl SizeRange {
    fn contains(self, size: u64) -> bool {
        (self.1..=self.2).contains(&size)
    }

    /// Returns whether the period was in the last day, at least in part.
    fn is_young(self, now: Timestamp) -> bool {
        now.as_second() < (self.0 + 1) * PERIOD.as_secs() + KEPT.as_secs()
    }
}

/// Returns the number of the period of a moment.
fn period(at: Timestamp) -> i64 {
    at.as_second().div_euclid(PERIOD.as_secs())
}

/// Returns whether a moment was in the last day; true for the future, to which a clock that was set back leads.
fn is_young(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at) < KEPT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + hours * 3600).unwrap()
    }

    fn text(number: u8) -> Revision {
        format!("{number:010}").parse().unwrap()
    }

    #[test]
    fn a_size_is_avoided_for_a_day() {
        let mut sizes = Sizes::default();
        sizes.add(2150, Some(text(1)), at(0));
        sizes.add(2151, Some(text(2)), at(1));
        let allow = |rule, size, revision, hours| {
            sizes.allow(rule, size, 2151, Some(text(revision)), at(hours))
        };
        assert!(!allow(SizeRule::New, 2150, 3, 2) && !allow(SizeRule::New, 2150, 1, 2));
        assert!(!allow(SizeRule::NewOrSameText, 2150, 3, 2));
        assert!(allow(SizeRule::NewOrSameText, 2150, 1, 2));
        assert!(allow(SizeRule::New, 2150, 3, 24) && allow(SizeRule::New, 2152, 3, 2));
        let mut later = sizes.clone();
        later.forget_old(at(24));
        assert_eq!(later.recent.keys().collect::<Vec<_>>(), [&2151]);
        // The size that the file has now stays forbidden.
        for rule in [
            SizeRule::OtherThanNow,
            SizeRule::New,
            SizeRule::NewOrSameText,
        ] {
            assert!(!allow(rule, 2151, 2, 99));
        }
        assert!(allow(SizeRule::OtherThanNow, 2150, 3, 2));
        assert!(allow(SizeRule::Any, 2151, 3, 2));
        // The clock was set back.
        assert!(!allow(SizeRule::New, 2150, 3, -9));
    }

    #[test]
    fn a_size_counts_from_the_last_moment_at_which_the_file_had_it() {
        let mut sizes = Sizes::default();
        let same = |sizes: &Sizes, revision| {
            let rule = SizeRule::NewOrSameText;
            sizes.allow(rule, 2150, 9, Some(text(revision)), at(50))
        };
        // A recorder wrote it, and the text is known later.
        sizes.add(2150, None, at(27));
        assert!(!same(&sizes, 1));
        sizes.keep(2150, Some(text(1)), at(30));
        assert!(!sizes.allow(SizeRule::New, 2150, 9, None, at(50)));
        assert!(same(&sizes, 1) && !same(&sizes, 2));
        sizes.keep(2150, None, at(31));
        assert!(same(&sizes, 1));
        // Two texts had that size.
        sizes.add(2150, Some(text(2)), at(32));
        assert!(!same(&sizes, 1) && !same(&sizes, 2));
    }

    #[test]
    fn the_record_of_a_day_is_short_and_has_each_size() {
        let mut random = 1_u64;
        let mut below = |limit: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % limit
        };
        let mut sizes = Sizes::default();
        let mut all = Vec::new();
        let (mut size, mut now) = (20_000, at(0));
        for _ in 0..5_000 {
            now += SignedDuration::from_secs(5);
            // Edits of one cell, and outputs that come and go.
            size = 20_000 + below(120) + 300 * (below(20) + 1);
            let free = |it: &usize| sizes.allow(SizeRule::New, *it, 0, None, now);
            size = (size as usize..).find(free).unwrap() as u64;
            assert!(size < 30_000, "{size}");
            sizes.add(size, Some(text(1)), now);
            all.push(size as usize);
        }
        let stored = serde_json::to_vec(&sizes).unwrap();
        assert!(stored.len() < 10_000, "{}", stored.len());
        let sizes: Sizes = serde_json::from_slice(&stored).unwrap();
        for size in &all {
            assert!(!sizes.allow(SizeRule::New, *size, 0, None, now), "{size}");
        }
        // The text of the last ones is known.
        let known =
            |size: &usize| sizes.allow(SizeRule::NewOrSameText, *size, 0, Some(text(1)), now);
        assert!(all.iter().rev().take(MOST_RECENT).all(known));
        assert!(!known(&all[0]));
        let mut sizes = sizes;
        sizes.forget_old(at(32));
        assert!(sizes.allow(SizeRule::New, all[0], 0, None, at(32)));
        assert!(sizes.allow(SizeRule::New, size as usize, 0, None, at(32)));
        assert!(sizes.recent.is_empty());
    }

    #[test]
    fn sizes_far_from_one_another_are_bounded() {
        let mut sizes = Sizes::default();
        for number in 0..2_000_u64 {
            let second = SignedDuration::from_secs(i64::try_from(number).unwrap());
            sizes.add(number * 10_000, Some(text(1)), at(0) + second);
        }
        assert_eq!(sizes.older.len(), MOST_RANGES);
        let stored = serde_json::to_vec(&sizes).unwrap();
        assert!(stored.len() < super::super::touch::NOTE_BYTES * 9 / 10);
        // None of them is longer than it was, so that a size is free nearby.
        assert!(sizes.older.iter().all(|range| range.1 == range.2));
        let allow = |size| sizes.allow(SizeRule::New, size, 0, None, at(1));
        assert!(!allow(19_990_000) && allow(19_990_001) && !allow(18_000_000));
    }
}

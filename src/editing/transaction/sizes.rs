//! The sizes that a notebook's file had in the last day.
//!
//! VS Code saves over a file without asking if it has the size that VS Code loaded or saved last, even if its time is
//! newer (`notebook::merge::other_size` has more). So an edit avoids all sizes of the day in which an editor may have
//! read the file, not only the one before.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::notebook::{Document, Revision};

/// How long a size is remembered.
const KEPT: SignedDuration = SignedDuration::from_hours(24);

/// How many sizes are remembered; the oldest go first. A recorder that writes for a day makes 3,000.
const MOST: usize = 10_000;

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
#[serde(transparent)]
pub(in crate::editing) struct Sizes {
    seen: BTreeMap<u64, SeenSize>,
}

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

    fn text(&self, size: u64) -> Option<SeenText> {
        self.seen.get(&size).map(|SeenSize(_, text)| *text)
    }

    fn insert(&mut self, size: u64, text: SeenText, now: Timestamp) {
        self.seen.insert(size, SeenSize(now, text));
        while self.seen.len() > MOST {
            let oldest = self.seen.iter().min_by_key(|(_, SeenSize(at, _))| *at);
            let Some(oldest) = oldest.map(|(size, _)| *size) else {
                break;
            };
            self.seen.remove(&oldest);
        }
    }

    /// Removes the sizes that the file had more than a day ago.
    pub(super) fn forget_old(&mut self, now: Timestamp) {
        self.seen.retain(|_, SeenSize(at, _)| is_young(*at, now));
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
        let seen = self.seen.get(&(size as u64));
        let seen = seen.filter(|SeenSize(at, _)| is_young(*at, now));
        let has_same_text =
            |SeenSize(_, seen): &SeenSize| text.is_some_and(|text| *seen == SeenText::One(text));
        match rule {
            SizeRule::Any => true,
            SizeRule::OtherThanNow => size != current,
            SizeRule::New => size != current && seen.is_none(),
            SizeRule::NewOrSameText => size != current && seen.is_none_or(has_same_text),
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
        assert_eq!(later.seen.keys().collect::<Vec<_>>(), [&2151]);
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
    fn the_sizes_of_a_day_are_bounded_and_stored() {
        let mut sizes = Sizes::default();
        let begin = at(0);
        for size in 0..MOST as u64 + 5 {
            let second = SignedDuration::from_secs(i64::try_from(size).unwrap());
            sizes.add(size, Some(text(1)), begin + second);
        }
        assert_eq!(sizes.seen.len(), MOST);
        assert!(!sizes.seen.contains_key(&4) && sizes.seen.contains_key(&5));
        let stored = serde_json::to_vec(&sizes).unwrap();
        assert!(stored.len() < super::super::touch::NOTE_BYTES * 9 / 10);
        let read: Sizes = serde_json::from_slice(&stored).unwrap();
        assert_eq!(read.seen.len(), MOST);
    }
}

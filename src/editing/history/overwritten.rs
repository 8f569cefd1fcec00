//! Which of `nb`'s edits a save of somebody else's has wiped out.
//!
//! An editor that has a notebook open writes what it holds: the file as it was when it was read,
//! with what its user did since. So a save that knows nothing of an edit takes it back. What tells
//! that from a person's own further edit:
//! - The cell is again at a revision that it had before the edit: wiped out.
//! - The cell says something new, and nothing (or less than half) of what the edit brought is in it:
//!   wiped out, by a text that was made of an earlier one. Else it was edited further.
//! - The edit brought nothing and only took something away, and that is back: wiped out.
//! - A cell that the edit inserted is gone, or one that it removed is back: wiped out.
//!
//! An editor's text is of one moment: whoever has a later edit of `nb` in it has had the earlier
//! ones before their eyes, too. So where a later edit still stands, a new text or a deletion is a
//! person's decision, and is not told as an accident. That holds for what was saved into the very
//! file that `nb` put there last; a save that came at the moment of another write has been merged
//! with that, and the later edit may be in the file by the merge alone.

use std::collections::{BTreeMap, HashMap};

use super::known::Watched;
use super::steps::Manifest;
use crate::notebook::{ChangeKind, Revision};
use crate::project::event::{OverwrittenEdit, split_actor};

/// What a save has left of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// It is in the file, just as it was made.
    Whole,
    /// It is in the file, edited further; or nothing can be told.
    Something,
    /// It is not there, and its cell says something that is new.
    Nothing,
    /// It is taken back.
    TakenBack,
    /// It was not there any more before the save either.
    Over,
}

/// Judges what a save that led from `before` to `after` has left of the watched edits, and returns
/// those that it wiped out; these, and those that are over, are watched no more. `whole` says that
/// it was not merged with anything; `text` gives the source of a kept version.
pub(super) fn judge(
    watched: &mut Vec<Watched>,
    before: &Manifest,
    after: &Manifest,
    whole: bool,
    text: &dyn Fn(Revision) -> Option<String>,
) -> Vec<OverwrittenEdit> {
    let by_id = |cells: &Manifest| -> HashMap<String, Revision> { cells.iter().cloned().collect() };
    let (old, new) = (by_id(before), by_id(after));
    let mut chains: HashMap<&str, Vec<Revision>> = HashMap::new();
    let mut left = Vec::new();
    for edit in watched.iter() {
        let chain = chains.entry(&edit.cell).or_default();
        chain.extend(edit.before);
        let (then, now) = (old.get(&edit.cell).copied(), new.get(&edit.cell).copied());
        left.push(judge_one(edit, chain, then, now, text));
    }
    let last = left.iter().rposition(|left| *left == Left::Whole);
    let is_decision = |at: usize| whole && last.is_some_and(|last| last > at);
    let mut lost = Vec::new();
    let mut at = 0;
    watched.retain(|edit| {
        let index = at;
        at += 1;
        match left.get(index) {
            Some(Left::Nothing) if is_decision(index) => false,
            Some(Left::Nothing | Left::TakenBack) => {
                let (by, by_session) = split_actor(&edit.by);
                lost.push(OverwrittenEdit {
                    cell: edit.cell.clone(),
                    op: edit.op.clone(),
                    by: by.to_owned(),
                    by_session: by_session.map(str::to_owned),
                    what: edit.what,
                    revision: edit.after.or_else(|| new.get(&edit.cell).copied()),
                    at: edit.at,
                });
                false
            }
            Some(Left::Over) => false,
            _ => true,
        }
    });
    lost
}

/// `chain` has the revisions that the cell had before this edit and before earlier ones.
fn judge_one(
    edit: &Watched,
    chain: &[Revision],
    then: Option<Revision>,
    now: Option<Revision>,
    text: &dyn Fn(Revision) -> Option<String>,
) -> Left {
    match (edit.what, then, now) {
        (ChangeKind::Inserted, None, _) | (ChangeKind::Removed, Some(_), _) => Left::Over,
        (ChangeKind::Inserted, Some(_), None) => Left::Nothing,
        (ChangeKind::Inserted, Some(_), Some(_)) | (ChangeKind::Removed, None, None) => Left::Whole,
        (ChangeKind::Removed, None, Some(_)) => Left::TakenBack,
        (_, None, _) => Left::Over,
        // With its cell, which was deleted.
        (_, Some(_), None) => Left::Nothing,
        (_, Some(_), Some(now)) if edit.after == Some(now) => Left::Whole,
        (_, Some(then), Some(now)) if then == now => Left::Something,
        (_, Some(_), Some(now)) if chain.contains(&now) => Left::TakenBack,
        (_, Some(then), Some(now)) => {
            let texts = [edit.before, edit.after, Some(then), Some(now)];
            match texts.map(|revision| text(revision?)) {
                [Some(old), Some(new), Some(then), Some(now)] => in_words(&old, &new, &then, &now),
                // Versions are not kept, or not any more.
                _ => Left::Something,
            }
        }
    }
}

/// Judges by the words that an edit from `old` to `new` brought, and those that it took away: how
/// many of them that were there still before the save are there after it?
fn in_words(old: &str, new: &str, then: &str, now: &str) -> Left {
    let [old, new, then, now] = [old, new, then, now].map(words);
    let of = |words: &Words<'_>, word: &str| words.get(word).copied().unwrap_or(0);
    // A word that was nowhere in the cell tells more than one more of those that were.
    let mut brought: Vec<_> = new.keys().filter(|word| of(&old, word) == 0).collect();
    if brought.is_empty() {
        brought = new
            .keys()
            .filter(|word| of(&new, word) > of(&old, word))
            .collect();
    }
    let is_brought = |words: &Words<'_>, word: &str| of(words, word) > of(&old, word);
    let taken: Vec<_> = old
        .keys()
        .filter(|word| of(&old, word) > of(&new, word))
        .collect();
    let is_taken = |words: &Words<'_>, word: &str| of(words, word) < of(&old, word);
    let only_took = brought.is_empty();
    let of = if only_took { taken } else { brought };
    let is_there = |words: &Words<'_>, word: &str| match only_took {
        true => is_taken(words, word),
        false => is_brought(words, word),
    };
    if of.is_empty() {
        // Of white space, the type or the metadata.
        return Left::Something;
    }
    let there: Vec<_> = of
        .into_iter()
        .filter(|word| is_there(&then, word))
        .collect();
    let still = there.iter().filter(|word| is_there(&now, word)).count();
    match there.len() {
        0 => Left::Over,
        all if still * 2 < all => Left::Nothing,
        _ => Left::Something,
    }
}

type Words<'a> = BTreeMap<&'a str, usize>;

/// Counts the words of a text: names and numbers, and single signs.
fn words(text: &str) -> Words<'_> {
    let mut words = Words::new();
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = match is_part(first) {
            true => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, after) = rest.split_at(end);
        rest = after;
        if !first.is_whitespace() {
            *words.entry(word).or_default() += 1;
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cells `id:text`, of which the text makes the revision.
    fn list(cells: &str) -> Manifest {
        let cells = cells.split(',').filter(|cell| !cell.is_empty());
        let cell = |cell: &str| {
            let (id, text) = cell.split_once(':').unwrap();
            (id.to_owned(), revision(text))
        };
        cells.map(cell).collect()
    }

    fn revision(text: &str) -> Revision {
        Revision::of_cells([(text, "0000000000".parse().unwrap())])
    }

    /// Edits `id:before>after`, each by an op of its own; nothing before is an insertion, nothing
    /// after a removal.
    fn edits(edits: &str) -> Vec<Watched> {
        let edits = edits.split(',').enumerate();
        let edit = |(number, edit): (usize, &str)| {
            let (cell, texts) = edit.split_once(':').unwrap();
            let (before, after) = texts.split_once('>').unwrap();
            let [before, after] =
                [before, after].map(|text| (!text.is_empty()).then(|| revision(text)));
            Watched {
                op: number.to_string(),
                by: "claude".to_owned(),
                at: jiff::Timestamp::UNIX_EPOCH,
                cell: cell.to_owned(),
                what: match (before, after) {
                    (None, _) => ChangeKind::Inserted,
                    (_, None) => ChangeKind::Removed,
                    _ => ChangeKind::Edited,
                },
                before,
                after,
            }
        };
        edits.map(edit).collect()
    }

    /// The ops that a save wiped out, and those that are watched still.
    fn judged(watched: &str, before: &str, after: &str) -> (String, String) {
        judged_of(watched, before, after, true)
    }

    fn judged_of(watched: &str, before: &str, after: &str, whole: bool) -> (String, String) {
        let texts: HashMap<Revision, String> = [watched, before, after]
            .iter()
            .flat_map(|all| all.split([',', ':', '>']))
            .map(|text| (revision(text), text.to_owned()))
            .collect();
        let mut watched = edits(watched);
        let text = |revision: Revision| texts.get(&revision).cloned();
        let lost = judge(&mut watched, &list(before), &list(after), whole, &text);
        let lost: Vec<_> = lost.into_iter().map(|one| one.op).collect();
        let stay: Vec<_> = watched.into_iter().map(|one| one.op).collect();
        (lost.join(" "), stay.join(" "))
    }

    /// Of each case: the edits, the notebook before and after a save, the edits that are lost, and
    /// those that stay.
    fn assert_judged(cases: &[(&str, &str, &str, &str, &str)]) {
        for (edits, before, after, lost, stay) in cases {
            let want = ((*lost).to_owned(), (*stay).to_owned());
            assert_eq!(
                judged(edits, before, after),
                want,
                "{edits}: {before} / {after}"
            );
        }
    }

    #[test]
    fn a_text_from_before_the_edit_takes_it_back() {
        assert_judged(&[
            ("a:x = 1>x = 2", "a:x = 2", "a:x = 1", "0", ""),
            ("a:x = 1>x = 2", "a:x = 2", "a:x = 2,h:new", "", "0"),
            // Two edits of one cell: the last one, or both.
            ("a:one>two,a:two>three", "a:three", "a:two", "1", "0"),
            ("a:one>two,a:two>three", "a:three", "a:one", "0 1", ""),
            // Somebody has edited it further, and then an old text came.
            ("a:one>one two", "a:one two three", "a:one", "0", ""),
        ]);
    }

    #[test]
    fn a_new_text_without_what_the_edit_brought_wipes_it_out() {
        assert_judged(&[
            // Made of the text before the edit, which the save does not know.
            ("a:print>print one", "a:print one", "a:print human", "0", ""),
            (
                "a:p>p one,a:p one>p one two",
                "a:p one two",
                "a:p h",
                "0 1",
                "",
            ),
            (
                "a:p>p one,a:p one>p one two",
                "a:p one two",
                "a:p one h",
                "1",
                "0",
            ),
            ("a:p p q>p q", "a:p q", "a:p p q h", "0", ""),
            // Edited further.
            (
                "a:print>print one",
                "a:print one",
                "a:print one human",
                "",
                "0",
            ),
            ("a:x>y = load z", "a:y = load z", "a:y = load w", "", "0"),
            ("a:p p q>p q", "a:p q", "a:p q h", "", "0"),
            // The next edit has taken the first one's words away.
            ("a:p>p one,a:p one>p two", "a:p two", "a:p h", "1", ""),
        ]);
    }

    #[test]
    fn cells_come_and_go() {
        assert_judged(&[
            ("n:>new", "a:1,n:new", "a:1", "0", ""),
            ("n:>new", "a:1,n:new", "a:1,n:human", "", "0"),
            ("n:>new", "a:1", "a:2", "", ""),
            ("a:1>", "b:2", "b:2,a:1", "0", ""),
            ("a:1>", "b:2", "b:3", "", "0"),
            ("a:1>2", "a:2,b:2", "b:2", "0", ""),
        ]);
    }

    #[test]
    fn who_knows_a_later_edit_has_decided_about_an_earlier_one() {
        let edits = "a:x = 1>x = 2,n:>new,b:1>2";
        let before = "a:x = 2,n:new,b:2";
        let want = |lost: &str, stay: &str| (lost.to_owned(), stay.to_owned());
        // A value of their own, and a cell deleted, while the last edit is in the file.
        assert_eq!(judged(edits, before, "a:x = 3,b:2"), want("", "2"));
        // Unless it was merged into what they saved.
        let merged = judged_of(edits, before, "a:x = 3,b:2", false);
        assert_eq!(merged, want("0 1", "2"));
        // The last one is gone, too: they knew nothing of it.
        assert_eq!(judged(edits, before, "a:x = 3,b:1"), want("0 1 2", ""));
        // Exactly the old text is told all the same.
        assert_eq!(judged(edits, before, "a:x = 1,n:new,b:2"), want("0", "1 2"));
    }
}

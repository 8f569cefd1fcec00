//! Finds the edits by `nb` that another program's save has wiped out.
//!
//! An editor that has a notebook open saves its own copy: the file as it was when the editor read it, with
//! its user's changes. If that copy does not contain an edit by `nb`, the save undoes the edit. These rules
//! distinguish this from a person's further edit of the cell:
//! - The cell has a revision again that it had before the edit: wiped out.
//! - The cell has a new text, with nothing (or less than half) of what the edit added: wiped out, by a text
//!   that was made from an earlier one. With more of it, the cell was edited further.
//! - The edit only removed something, and that is back: wiped out.
//! - A cell that the edit inserted is missing, or one that it removed is back: wiped out.
//!
//! An editor's text is from one moment: if it contains a later edit by `nb`, its user has seen the earlier
//! ones too. So if a later edit is still there, a new text or a deletion is the person's decision, and is not
//! reported as an accident. That holds for a save into the very file that `nb` wrote last. A save at the same
//! moment as another write has been merged with that write, so the later edit may be in the file only because
//! of the merge.

use std::collections::{BTreeMap, HashMap};

use super::ledger_content::Watched;
use super::steps::Manifest;
use crate::notebook::{ChangeKind, Revision};
use crate::project::event::{OverwrittenEdit, split_actor};

/// How much of an edit a save has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EditRemains {
    /// The cell is as the edit left it.
    Whole,
    /// The cell was edited further; or it cannot be decided.
    Part,
    /// The cell has a new text without the edit, or is gone.
    None,
    /// The cell is as it was before the edit.
    Reverted,
    /// The edit was not in the file before the save either.
    AlreadyLost,
}

/// Returns the watched edits that a save wiped out; the save changed `before` into `after`. Removes these
/// edits from `watched`, and those that were not in the file any more. `whole` says that the save was not
/// merged with anything; `text` returns the source of a stored version.
pub(super) fn take_overwritten(
    watched: &mut Vec<Watched>,
    before: &Manifest,
    after: &Manifest,
    whole: bool,
    text: &dyn Fn(Revision) -> Option<String>,
) -> Vec<OverwrittenEdit> {
    let by_id = |cells: &Manifest| -> HashMap<String, Revision> { cells.iter().cloned().collect() };
    let (old, new) = (by_id(before), by_id(after));
    let mut chains: HashMap<&str, Vec<Revision>> = HashMap::new();
    let mut remains = Vec::new();
    for edit in watched.iter().filter(|edit| edit.undone_by.is_none()) {
        let chain = chains.entry(&edit.cell).or_default();
        chain.extend(edit.before);
        let (then, now) = (old.get(&edit.cell).copied(), new.get(&edit.cell).copied());
        remains.push(remains_of(edit, chain, then, now, text));
    }
    let last = remains
        .iter()
        .rposition(|remains| *remains == EditRemains::Whole);
    let is_decision = |at: usize| whole && last.is_some_and(|last| last > at);
    let mut lost = Vec::new();
    let mut judged = remains.iter().enumerate();
    watched.retain(|edit| {
        if edit.undone_by.is_some() {
            return true;
        }
        let Some((index, remains)) = judged.next() else {
            return true;
        };
        match remains {
            EditRemains::None if is_decision(index) => false,
            EditRemains::None | EditRemains::Reverted => {
                let (by, by_session) = split_actor(&edit.by);
                lost.push(OverwrittenEdit {
                    cell: edit.cell.clone(),
                    op: edit.op.clone(),
                    by: by.to_owned(),
                    by_session: by_session.map(str::to_owned),
                    kind: edit.kind,
                    revision: edit.after.or_else(|| new.get(&edit.cell).copied()),
                    at: edit.at,
                });
                false
            }
            EditRemains::AlreadyLost => false,
            EditRemains::Whole | EditRemains::Part => true,
        }
    });
    lost
}

/// Judges one edit. `chain` has the revisions of the cell before this edit and before earlier ones.
fn remains_of(
    edit: &Watched,
    chain: &[Revision],
    then: Option<Revision>,
    now: Option<Revision>,
    text: &dyn Fn(Revision) -> Option<String>,
) -> EditRemains {
    match (edit.kind, then, now) {
        (ChangeKind::Inserted, None, _) | (ChangeKind::Removed, Some(_), _) => {
            EditRemains::AlreadyLost
        }
        (ChangeKind::Inserted, Some(_), None) => EditRemains::None,
        (ChangeKind::Inserted, Some(_), Some(_)) | (ChangeKind::Removed, None, None) => {
            EditRemains::Whole
        }
        (ChangeKind::Removed, None, Some(_)) => EditRemains::Reverted,
        (_, None, _) => EditRemains::AlreadyLost,
        // The cell was deleted.
        (_, Some(_), None) => EditRemains::None,
        (_, Some(_), Some(now)) if edit.after == Some(now) => EditRemains::Whole,
        (_, Some(then), Some(now)) if then == now => EditRemains::Part,
        (_, Some(_), Some(now)) if chain.contains(&now) => EditRemains::Reverted,
        (_, Some(then), Some(now)) => {
            let texts = [edit.before, edit.after, Some(then), Some(now)];
            match texts.map(|revision| text(revision?)) {
                [Some(old), Some(new), Some(then), Some(now)] => by_words(&old, &new, &then, &now),
                // The versions were never stored, or were removed.
                _ => EditRemains::Part,
            }
        }
    }
}

/// Judges an edit from `old` to `new` by the words that it added or, if it added none, by those that
/// it removed: how many of these changes that were still in `then` are in `now`?
fn by_words(old: &str, new: &str, then: &str, now: &str) -> EditRemains {
    let [old, new, then, now] = [old, new, then, now].map(words);
    let of = |words: &Words<'_>, word: &str| words.get(word).copied().unwrap_or(0);
    // A word that is new to the cell is stronger evidence than a repetition of a word that it had.
    let mut changed: Vec<_> = new.keys().filter(|word| of(&old, word) == 0).collect();
    if changed.is_empty() {
        changed = new
            .keys()
            .filter(|word| of(&new, word) > of(&old, word))
            .collect();
    }
    let only_removed = changed.is_empty();
    if only_removed {
        changed = old
            .keys()
            .filter(|word| of(&old, word) > of(&new, word))
            .collect();
    }
    let has_change = |words: &Words<'_>, word: &str| match only_removed {
        true => of(words, word) < of(&old, word),
        false => of(words, word) > of(&old, word),
    };
    if changed.is_empty() {
        // The edit changed white space, the type or the metadata.
        return EditRemains::Part;
    }
    let then_present: Vec<_> = changed
        .into_iter()
        .filter(|word| has_change(&then, word))
        .collect();
    let still_present = then_present
        .iter()
        .filter(|word| has_change(&now, word))
        .count();
    match then_present.len() {
        0 => EditRemains::AlreadyLost,
        all if still_present * 2 < all => EditRemains::None,
        _ => EditRemains::Part,
    }
}

type Words<'a> = BTreeMap<&'a str, usize>;

/// Counts the words of a text: names, numbers, and single other characters.
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

    /// Makes cells from `id:text`; the text gives the revision.
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

    /// Makes edits from `id:before>after`, each with an op of its own; an empty `before` is an
    /// insertion, an empty `after` a removal.
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
                kind: match (before, after) {
                    (None, _) => ChangeKind::Inserted,
                    (_, None) => ChangeKind::Removed,
                    _ => ChangeKind::Edited,
                },
                before,
                after,
                undone_by: None,
            }
        };
        edits.map(edit).collect()
    }

    /// Returns the ops that a save wiped out, and those that are still watched.
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
        let lost = take_overwritten(&mut watched, &list(before), &list(after), whole, &text);
        let lost: Vec<_> = lost.into_iter().map(|one| one.op).collect();
        let stay: Vec<_> = watched.into_iter().map(|one| one.op).collect();
        (lost.join(" "), stay.join(" "))
    }

    /// Checks cases: the edits, the notebook before and after a save, the edits that are lost, and
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
            // Another program edited it further, and then an old text was saved.
            ("a:one>one two", "a:one two three", "a:one", "0", ""),
        ]);
    }

    #[test]
    fn a_new_text_without_what_the_edit_changed_wipes_it_out() {
        assert_judged(&[
            // Made from the text before the edit; the editor had not read the edit.
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
            // The second edit removed the words of the first one.
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
    fn a_save_that_has_a_later_edit_decides_about_an_earlier_one() {
        let edits = "a:x = 1>x = 2,n:>new,b:1>2";
        let before = "a:x = 2,n:new,b:2";
        let want = |lost: &str, stay: &str| (lost.to_owned(), stay.to_owned());
        // They wrote a value of their own and deleted a cell, and the last edit is in the file.
        assert_eq!(judged(edits, before, "a:x = 3,b:2"), want("", "2"));
        // The last edit may be in the file only because of a merge.
        let merged = judged_of(edits, before, "a:x = 3,b:2", false);
        assert_eq!(merged, want("0 1", "2"));
        // The last edit is missing too: their copy was older than all of them.
        assert_eq!(judged(edits, before, "a:x = 3,b:1"), want("0 1 2", ""));
        // If exactly the old text is back, the edit is reported in any case.
        assert_eq!(judged(edits, before, "a:x = 1,n:new,b:2"), want("0", "1 2"));
    }
}

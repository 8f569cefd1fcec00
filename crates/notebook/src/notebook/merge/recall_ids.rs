//! Takes the ids of cells in files without ids from the ledger.
//!
//! Formats before 4.5 have no ids, and an edit does not change a notebook's format. The cells' ids are in
//! `nb`'s ledger, a list of ids and revisions in the order of the cells. A program that saves the file in
//! between may edit, add and move cells. This module aligns the ledger with the cells, so that a cell keeps
//! its id as long as it can be recognised.

use super::align::align;
use super::lines::differences;
use crate::notebook::document::ids;
use crate::notebook::document::{Cell, Document, Revision};
use std::collections::{HashMap, HashSet, VecDeque};

/// The smallest share of equal text by which two cells are taken for versions of one cell.
const ALIKE: f64 = 0.3;

/// How many cells at one position are compared for similarity at most.
const COMPARED_MAX: usize = 40;

impl Document {
    /// Gives cells without an id in the file the ids that the ledger has for them. `known` are the last
    /// known ids and revisions of the notebook's cells; `text` returns the source of a revision, if it is
    /// stored. A cell that is not in the ledger gets a new id, the same one each time the file is read.
    pub fn recall_ids(
        &mut self,
        known: &[(String, Revision)],
        text: &dyn Fn(Revision) -> Option<String>,
    ) {
        if self.cells.iter().all(|cell| cell.own_id) {
            return;
        }
        let places = recalled(&self.cells, known, text);
        let names = match known {
            [] => self
                .cells
                .iter()
                .map(|cell| Some(cell.id.clone()))
                .collect(),
            _ => places
                .into_iter()
                .map(|at| Some(known.get(at?)?.0.clone()))
                .collect(),
        };
        let reserved = known.iter().map(|(id, _)| id.clone()).collect();
        ids::name(&mut self.cells, names, reserved);
    }

    /// Gives cells without an id in the file the ids that they have in another version of the notebook. Any
    /// program may have written this one.
    pub fn adopt_ids(&mut self, base: &Self) {
        if self.cells.iter().all(|cell| cell.own_id) {
            return;
        }
        for cell in &mut self.cells {
            cell.recorded_id = false;
        }
        let mut names = vec![None; self.cells.len()];
        for (cell, at) in base
            .cells
            .iter()
            .zip(align(&base.cells, &self.cells, |_| false))
        {
            if let Some(slot) = at.and_then(|at| names.get_mut(at)) {
                *slot = Some(cell.id.clone());
            }
        }
        let reserved: HashSet<_> = base.cells.iter().map(|cell| cell.id.clone()).collect();
        ids::name(&mut self.cells, names, reserved);
    }
}

/// Returns for each cell its position in the ledger.
fn recalled(
    cells: &[Cell],
    known: &[(String, Revision)],
    text: &dyn Fn(Revision) -> Option<String>,
) -> Vec<Option<usize>> {
    let by_id: HashMap<&str, usize> = known
        .iter()
        .enumerate()
        .map(|(at, (id, _))| (id.as_str(), at))
        .collect();
    let mut matches: Vec<Option<usize>> = vec![None; cells.len()];
    let mut free = vec![true; known.len()];
    let mut join = |matches: &mut Vec<Option<usize>>, index: usize, at: usize| -> bool {
        match (matches.get_mut(index), free.get_mut(at)) {
            (Some(slot @ None), Some(free @ true)) => {
                *slot = Some(at);
                *free = false;
                true
            }
            _ => false,
        }
    };
    for (index, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.own_id) {
        if let Some(at) = by_id.get(cell.id()) {
            join(&mut matches, index, *at);
        }
    }
    let named = |index: usize| cells.get(index).is_some_and(|cell| cell.own_id);
    let old: Vec<Revision> = known.iter().map(|(_, revision)| *revision).collect();
    let new: Vec<Revision> = cells.iter().map(Cell::revision).collect();
    let hunks = differences(&old, &new);
    // The cells between the hunks are in both lists.
    let (mut at, mut index) = (0, 0);
    for (from, to) in hunks
        .iter()
        .cloned()
        .chain([(old.len()..old.len(), new.len()..new.len())])
    {
        for (at, index) in (at..from.start).zip(index..to.start) {
            if !named(index) {
                join(&mut matches, index, at);
            }
        }
        (at, index) = (from.end, to.end);
    }
    // Match cells that were moved.
    let mut places: HashMap<Revision, VecDeque<usize>> = HashMap::new();
    for (at, revision) in old.iter().enumerate() {
        places.entry(*revision).or_default().push_back(at);
    }
    for (index, revision) in new.iter().enumerate().filter(|(index, _)| !named(*index)) {
        if matches.get(index) == Some(&None)
            && let Some(places) = places.get_mut(revision)
        {
            while let Some(at) = places.pop_front() {
                if join(&mut matches, index, at) {
                    break;
                }
            }
        }
    }
    // Match edited cells, which have kept their position.
    for (from, to) in hunks {
        let taken: HashSet<usize> = matches.iter().flatten().copied().collect();
        let old: Vec<usize> = from.filter(|at| !taken.contains(at)).collect();
        let new: Vec<usize> = to
            .filter(|index| matches.get(*index) == Some(&None) && !named(*index))
            .collect();
        for (at, index) in pairs(&old, &new, known, cells, text) {
            join(&mut matches, index, at);
        }
    }
    matches
}

/// Matches edited cells: one by one if their number is the same, else those whose text is most alike.
fn pairs(
    old: &[usize],
    new: &[usize],
    known: &[(String, Revision)],
    cells: &[Cell],
    text: &dyn Fn(Revision) -> Option<String>,
) -> Vec<(usize, usize)> {
    let one_by_one = || old.iter().copied().zip(new.iter().copied()).collect();
    if old.is_empty() || new.is_empty() {
        return Vec::new();
    }
    if old.len() == new.len() || old.len().max(new.len()) > COMPARED_MAX {
        return one_by_one();
    }
    let sources: Option<Vec<String>> = old.iter().map(|at| text(known.get(*at)?.1)).collect();
    // Without stored sources, compare by position.
    let Some(sources) = sources else {
        return one_by_one();
    };
    let mut all = Vec::new();
    for (at, source) in old.iter().zip(&sources) {
        for index in new {
            let score = cells
                .get(*index)
                .map_or(0.0, |cell| alike(source, &cell.source()));
            all.push((score, *at, *index));
        }
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (mut used_old, mut used_new) = (HashSet::new(), HashSet::new());
    let mut pairs = Vec::new();
    for (score, at, index) in all {
        if score >= ALIKE && !used_old.contains(&at) && !used_new.contains(&index) {
            used_old.insert(at);
            used_new.insert(index);
            pairs.push((at, index));
        }
    }
    pairs
}

/// Returns the share of two texts that is equal at their beginning and end, from 0 to 1.
fn alike(one: &str, other: &str) -> f64 {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let (short, long) = (one.len().min(other.len()), one.len().max(other.len()));
    if long == 0 {
        return 1.0;
    }
    let head = one.iter().zip(other).take_while(|(a, b)| a == b).count();
    let rest = short - head;
    let pairs = one.iter().rev().zip(other.iter().rev());
    let tail = pairs.take(rest).take_while(|(a, b)| a == b).count();
    (head + tail) as f64 / long as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::NewCell;

    /// A notebook of format 4.4 with these sources.
    fn plain(sources: &[&str]) -> Document {
        let cell = |source: &&str| {
            format!(
                r#"{{"cell_type":"code","source":"{source}","outputs":[],"execution_count":null,"metadata":{{}}}}"#
            )
        };
        let cells: Vec<_> = sources.iter().map(cell).collect();
        Document::parse(format!(
            r#"{{"cells":[{}],"metadata":{{}},"nbformat":4,"nbformat_minor":4}}"#,
            cells.join(",")
        ))
        .unwrap()
    }

    fn known(document: &Document) -> Vec<(String, Revision)> {
        let cells = document.cells().iter();
        cells
            .map(|cell| (cell.id().to_owned(), cell.revision()))
            .collect()
    }

    fn ids(document: &Document) -> Vec<&str> {
        document.cells().iter().map(Cell::id).collect()
    }

    /// Returns for each cell after a save which of the cells before it is.
    fn followed(before: &[&str], after: &[&str]) -> Vec<Option<usize>> {
        let (old, mut new) = (plain(before), plain(after));
        let texts = |revision| {
            let mut cells = old.cells().iter();
            let cell = cells.find(|cell| cell.revision() == revision)?;
            Some(cell.source().into_owned())
        };
        new.recall_ids(&known(&old), &texts);
        let mut again = plain(after);
        again.recall_ids(&known(&old), &texts);
        assert_eq!(ids(&again), ids(&new), "each look finds the same");
        let unique: HashSet<_> = ids(&new).into_iter().collect();
        assert_eq!(unique.len(), after.len());
        let old = ids(&old);
        let places = ids(&new);
        let places = places.iter().map(|id| old.iter().position(|it| it == id));
        places.collect()
    }

    #[test]
    fn a_cell_keeps_its_id_over_other_programs_saves() {
        for (before, after, want) in [
            (&["a", "b", "c"][..], &["a", "b", "c"][..], &[0, 1, 2][..]),
            // A new cell before it, in between, and beside an edited one.
            (&["a", "b"], &["new", "a", "b"], &[9, 0, 1]),
            (&["a", "b", "c"], &["a", "b2", "c"], &[0, 1, 2]),
            (
                &["import os", "total = 1"],
                &["something", "import os", "total = 2"],
                &[9, 0, 1],
            ),
            (
                &["import os", "total = 1", "end"],
                &["import os", "quite another", "total = 2", "end"],
                &[0, 9, 1, 2],
            ),
            // Removed, moved, and copied.
            (&["a", "b", "c"], &["a", "c"], &[0, 2]),
            (&["a", "b", "c"], &["c", "a", "b"], &[2, 0, 1]),
            (&["a", "b"], &["a", "a", "b"], &[0, 9, 1]),
            (&["", "", ""], &["", "x", ""], &[0, 1, 2]),
            (&["abc", ""], &["", ""], &[0, 1]),
            (
                &["a", "a", "q", "r", "s"],
                &["q", "r", "s", "a", "a"],
                &[2, 3, 4, 0, 1],
            ),
            (&["a", "q", "r", "a"], &["a", "a", "q", "r"], &[0, 3, 1, 2]),
            // Edited, and one more or fewer: the text that is most alike, if it is alike enough.
            (&["abcdef1"], &["abcxxx!", "abcdef2"], &[9, 0]),
            (&["abcdef1"], &["zzz", "yyyy"], &[9, 9]),
            (&["abc"], &["abcdefghij", "zz"], &[0, 9]),
            (&["ab", "cb"], &["abcb", "abcb", "zzz"], &[0, 1, 9]),
        ] {
            let matches: Vec<_> = followed(before, after)
                .into_iter()
                .map(|at| at.unwrap_or(9))
                .collect();
            assert_eq!(matches, want, "{before:?} / {after:?}");
        }
    }

    #[test]
    fn too_many_edited_cells_are_matched_by_position() {
        let sources = |count: u8, end: &str| -> Vec<String> {
            let words = (0..count).map(|n| char::from(b'0' + n).to_string().repeat(8));
            words.map(|word| word + end).collect()
        };
        for (before, after, first) in [(40, 39, 1), (41, 40, 0), (39, 40, 0), (40, 41, 0)] {
            // If there is one cell more after the save, the first one is new.
            let added = after > before;
            let (old, new) = (sources(before, "a"), sources(after.max(before), "b"));
            let old: Vec<_> = old.iter().map(String::as_str).collect();
            let new: Vec<_> = new.iter().map(String::as_str).collect();
            let new = match added {
                true => [&["new"], &new[..new.len() - 1]].concat(),
                false => new[1..].to_vec(),
            };
            let found = followed(&old, &new);
            let by_position = before.max(after) > 40;
            let want = match (added, by_position) {
                (true, false) => None,
                _ => Some(first),
            };
            assert_eq!(found[0], want, "{before} {after}");
        }
    }

    #[test]
    fn texts_are_alike_by_their_beginning_and_end() {
        for (one, other, share) in [
            ("", "", 1.0),
            ("", "x", 0.0),
            ("abcd", "abXd", 0.75),
            ("xabc", "abc", 0.75),
            ("aaaa", "aa", 0.5),
            ("abc", "xyz", 0.0),
        ] {
            assert_eq!(alike(one, other), share, "{one:?} {other:?}");
            assert_eq!(alike(other, one), share, "{other:?} {one:?}");
        }
    }

    /// A notebook of cells `id:source`, or `source` without an id.
    fn partly(words: &str) -> Document {
        let cell = |word: &str| match word.split_once(':') {
            Some((id, source)) => {
                format!(r#"{{"cell_type":"code","id":"{id}","source":"{source}"}}"#)
            }
            None => format!(r#"{{"cell_type":"code","source":"{word}"}}"#),
        };
        let cells: Vec<_> = words.split(' ').map(cell).collect();
        Document::parse(format!("{{\"cells\":[{}]}}", cells.join(","))).unwrap()
    }

    #[test]
    fn a_cell_with_an_id_in_the_file_takes_no_other_id_from_the_ledger() {
        for (before, after, want) in [
            ("a:x b:y", "h:x y", ["h", "b"]),
            // The cell without an id is the edited one, or the one of the same text, or the one that is left.
            ("a:abcdef", "zz h:abcdeg", ["a", "h"]),
            ("a:x", "h:x x", ["h", "a"]),
            ("a:q b:r", "a:q1 zz", ["a", "b"]),
        ] {
            let (old, mut new) = (partly(before), partly(after));
            new.recall_ids(&known(&old), &|revision| {
                let cell = old.cells().iter().find(|it| it.revision() == revision)?;
                Some(cell.source().into_owned())
            });
            assert_eq!(ids(&new), want, "{before} / {after}");
        }
    }

    #[test]
    fn without_a_ledger_the_stand_ins_are_the_ids() {
        let mut document = plain(&["x", "y"]);
        let before = document.clone();
        document.recall_ids(&[], &|_| None);
        assert_eq!(ids(&document), ids(&before));
    }

    #[test]
    fn a_version_without_ids_gets_those_of_another_version() {
        let base = partly("a:x b:y");
        let mut saved = partly("new x Y");
        // Ids of an earlier look do not count.
        saved.recall_ids(&[], &|_| None);
        saved.adopt_ids(&base);
        assert_eq!(ids(&saved)[1..], ["a", "b"]);
        assert!(!ids(&base).contains(&ids(&saved)[0]));
        let (mut recorded, mut later) = (plain(&["x", "y"]), plain(&["y", "x"]));
        recorded.recall_ids(&known(&base), &|_| None);
        later.recall_ids(&[], &|_| None);
        later.adopt_ids(&recorded);
        assert_eq!(ids(&later), [ids(&recorded)[1], ids(&recorded)[0]]);
        // Some cells have ids in the file.
        let base = partly("a:x q");
        let mut saved = partly("h:new a:x Q");
        saved.adopt_ids(&base);
        assert_eq!(ids(&saved), ["h", "a", base.cells()[1].id()]);
    }

    #[test]
    fn edits_keep_the_format_and_what_they_call_a_cell_is_found_again() {
        let file = plain(&["x", "y"]);
        let mut document = file;
        document.recall_ids(&[], &|_| None);
        let new = NewCell {
            id: "new".into(),
            cell_type: "code".parse().unwrap(),
            source: "z".into(),
            metadata: None,
        };
        document.insert(0, &new).unwrap();
        document.set_source(1, "x2").unwrap();
        document.move_cell(2, 0).unwrap();
        let text = String::from_utf8(document.to_bytes()).unwrap();
        assert!(
            !text.contains("\"id\"") && text.contains("\"nbformat_minor\":4"),
            "{text}"
        );
        let mut again = Document::parse(text).unwrap();
        again.recall_ids(&known(&document), &|_| None);
        assert_eq!(ids(&again), ids(&document));
        assert_eq!(ids(&again)[1], "new");
        // The id of a deleted cell is not given to another one.
        let records = known(&document);
        again.remove(0).unwrap();
        let mut file = plain(&["quite", "other", "cells"]);
        file.recall_ids(&known(&again), &|_| Some(String::new()));
        assert!(!ids(&file).contains(&&*records[0].0));
        // Only `nb fmt --write` writes the ids into the file.
        let formatted = document.formatted().unwrap();
        assert_eq!(ids(&formatted), ids(&document));
        assert_eq!(formatted.nbformat(), (4, 5));
        assert!(formatted.cells().iter().all(Cell::has_own_id));
    }
}

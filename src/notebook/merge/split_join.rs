//! Cells that were split or joined, merged with what the other side made of them meanwhile.
//!
//! A split takes lines out of one cell and puts them into new ones; a join takes them out of cells
//! that go. Merged cell by cell, where the other side has changed one of those, the lines would be
//! there twice or nowhere. So such cells are merged as one text, which is cut where it was cut; where
//! that does not go, all of the writer's change of them is refused.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::cell::{Source, has_new_outputs, name_in_merged, with_source};
use super::lines::{differences, merged};
use super::three_versions::ThreeVersions;
use crate::notebook::document::Cell;
use crate::notebook::edit::Conflict;
use crate::notebook::json::lossy;

/// What was decided of cells that were split or joined; all by their places.
#[derive(Debug, Default)]
pub(in crate::notebook) struct Reshaped {
    pub of_file: HashMap<usize, Source>,
    /// Cells of the file that go with the writer's join.
    pub joined: HashSet<usize>,
    /// Cells of the file that stay, as the writer's join is refused.
    pub kept: HashSet<usize>,
    /// The writer's own cells: their source, or none where they do not go in.
    pub of_writer: HashMap<usize, Option<Vec<u8>>>,
    pub conflicts: Vec<Conflict>,
}

impl ThreeVersions<'_> {
    /// Finds cells that one side has split or joined and the other has changed.
    pub(in crate::notebook) fn reshaped(&self) -> Reshaped {
        let mut done = Reshaped::default();
        // Most merges are of a few cells of many.
        let new = self.of_writer.contains(&None);
        let gone = |places: &[Option<usize>]| places.contains(&None);
        if new {
            self.split_by_writer(&mut done);
        }
        if gone(&self.in_writer) {
            self.joined_by_writer(&mut done);
        }
        if gone(&self.in_file) {
            self.joined_by_file(&mut done);
        }
        done
    }

    fn split_by_writer(&self, done: &mut Reshaped) {
        let mut used = HashSet::new();
        for (at, base) in self.base.cells.iter().enumerate() {
            let (Some(to), Some(there)) = (self.writer_of(at), self.file_of(at)) else {
                continue;
            };
            let (writer, file) = (&self.writer.cells[to], &self.file.cells[there]);
            if file.source_bytes() == base.source_bytes() {
                continue;
            }
            let taken = lines_beyond(base, Some(writer));
            let parts: Vec<usize> = self
                .of_writer
                .iter()
                .enumerate()
                .filter(|(index, of)| of.is_none() && !used.contains(index))
                .filter(|(index, _)| {
                    let cell = self.writer.cells.get(*index);
                    cell.is_some_and(|cell| shares(&taken, &lines_beyond(cell, None)))
                })
                .map(|(index, _)| index)
                .collect();
            // What both inserted under one name is no part of a split.
            let both: HashSet<&usize> = self.inserted_by_both.values().collect();
            if parts.is_empty() || parts.iter().any(|part| both.contains(part)) {
                continue;
            }
            used.extend(parts.iter().copied());
            let together = parts
                .iter()
                .enumerate()
                .all(|(n, part)| *part == to + 1 + n);
            let all = std::iter::once(to).chain(parts.iter().copied());
            let mut all: Vec<usize> = all.collect();
            all.sort_unstable();
            let sources: Vec<_> = all
                .iter()
                .map(|at| self.writer.cells[*at].source_bytes())
                .collect();
            let cut = together
                .then(|| cut(&base.source_bytes(), &file.source_bytes(), &sources))
                .flatten();
            if let Some(texts) = cut {
                for (place, text) in all.iter().zip(texts) {
                    if *place == to {
                        done.of_file.insert(there, Source::MergedNotebook(text));
                        continue;
                    }
                    // Where nothing is left of a part, the other side has taken all of it away.
                    let text = Some(text).filter(|text| !text.is_empty());
                    if text.is_none() {
                        let part = &self.writer.cells[*place];
                        done.conflicts.extend(besides_source(Some(writer), part));
                    }
                    done.of_writer.insert(*place, text);
                }
                continue;
            }
            done.of_file.insert(there, Source::Kept);
            for part in parts {
                let cell = &self.writer.cells[part];
                done.conflicts.extend(besides_source(Some(writer), cell));
                done.of_writer.insert(part, None);
            }
            let yours = sources.join(&b"\n"[..]);
            done.conflicts
                .push(lost(name_in_merged(Some(base), file), base, &yours, file));
        }
    }

    fn joined_by_writer(&self, done: &mut Reshaped) {
        for (at, base) in self.base.cells.iter().enumerate() {
            let (Some(to), Some(there)) = (self.writer_of(at), self.file_of(at)) else {
                continue;
            };
            if done.of_file.contains_key(&there) {
                continue;
            }
            let (writer, file) = (&self.writer.cells[to], &self.file.cells[there]);
            let came = lines_beyond(writer, Some(base));
            if came.is_empty() {
                continue;
            }
            let is_joined = |other: &usize| {
                let cell = self.base.cells.get(*other);
                self.writer_of(*other).is_none()
                    && self.file_of(*other).is_some()
                    && cell.is_some_and(|cell| shares(&came, &lines_beyond(cell, None)))
            };
            let joined: Vec<usize> = (0..self.base.cells.len()).filter(is_joined).collect();
            let ran = |of: usize| {
                let file = self
                    .file_of(of)
                    .and_then(|place| self.file.cells.get(place));
                file.is_some_and(|file| has_new_outputs(&self.base.cells[of], file))
            };
            let changed = |of: usize| {
                let file = self
                    .file_of(of)
                    .and_then(|place| self.file.cells.get(place));
                file.is_some_and(|file| file.revision() != self.base.cells[of].revision())
            };
            // What is not source has no place in the joined cell.
            let stays = |of: usize| {
                let base = &self.base.cells[of];
                let file = self
                    .file_of(of)
                    .and_then(|place| self.file.cells.get(place));
                file.is_some_and(|file| {
                    let style = &self.file.style;
                    let same = with_source(file, &base.source_bytes(), style);
                    has_new_outputs(base, file) || same.revision() != base.revision()
                })
            };
            let source_changed = file.source_bytes() != base.source_bytes();
            if joined.is_empty()
                || !(source_changed || joined.iter().any(|of| changed(*of) || ran(*of)))
            {
                continue;
            }
            let mut all: Vec<usize> = joined.clone();
            all.push(at);
            all.sort_unstable();
            let places: Vec<usize> = all.iter().filter_map(|of| self.file_of(*of)).collect();
            let together = follow(&all) && follow(&places) && !joined.iter().any(|of| stays(*of));
            let text = together
                .then(|| {
                    let base = joined_text(&self.base.cells, &all);
                    let file = joined_text(&self.file.cells, &places);
                    merged(&base, &file, &writer.source_bytes())
                })
                .flatten();
            let others = joined.iter().filter_map(|of| self.file_of(*of));
            if let Some(text) = text {
                done.of_file.insert(there, Source::MergedNotebook(text));
                done.joined.extend(others);
            } else {
                done.of_file.insert(there, Source::Kept);
                done.kept.extend(others);
                let yours = writer.source_bytes();
                done.conflicts
                    .push(lost(name_in_merged(Some(base), file), base, &yours, file));
            }
        }
    }

    /// The file has joined cells of which the writer has changed one that is gone.
    fn joined_by_file(&self, done: &mut Reshaped) {
        for (at, base) in self.base.cells.iter().enumerate() {
            let Some(there) = self.file_of(at) else {
                continue;
            };
            if done.of_file.contains_key(&there) {
                continue;
            }
            let file = &self.file.cells[there];
            // What the writer has put there itself tells nothing: an earlier merge wrote it.
            let writers = self.writer_of(at).and_then(|at| self.writer.cells.get(at));
            let writers = writers.map(|writer| lines_beyond(writer, Some(base)));
            let writers = writers.unwrap_or_default();
            let mut came = lines_beyond(file, Some(base));
            came.retain(|line| !writers.contains(line));
            if came.is_empty() {
                continue;
            }
            let is_joined = |other: &usize| {
                let cell = self.base.cells.get(*other);
                self.file_of(*other).is_none()
                    && self.writer_of(*other).is_some()
                    && cell.is_some_and(|cell| shares(&came, &lines_beyond(cell, None)))
            };
            let joined: Vec<usize> = (0..self.base.cells.len()).filter(is_joined).collect();
            let new = |of: usize| {
                let writer = self.writer_of(of).and_then(|at| self.writer.cells.get(at));
                writer.filter(|writer| writer.revision() != self.base.cells[of].revision())
            };
            if !joined.iter().any(|of| new(*of).is_some()) {
                continue;
            }
            let mut all = joined.clone();
            all.push(at);
            all.sort_unstable();
            let places: Vec<usize> = all.iter().filter_map(|of| self.writer_of(*of)).collect();
            let together = places.len() == all.len() && follow(&all) && follow(&places);
            let text = together
                .then(|| {
                    let base = joined_text(&self.base.cells, &all);
                    let writer = joined_text(&self.writer.cells, &places);
                    let text = merged(&base, &file.source_bytes(), &writer)?;
                    // The same merge may be made once more, of the file that this one leaves.
                    let again = merged(&base, &text, &writer)?;
                    (again == text).then_some(text)
                })
                .flatten();
            for of in &joined {
                if let Some(place) = self.writer_of(*of) {
                    done.of_writer.insert(place, None);
                    let (old, cell) = (&self.base.cells[*of], &self.writer.cells[place]);
                    done.conflicts.extend(besides_source(Some(old), cell));
                }
            }
            if let Some(text) = text {
                done.of_file.insert(there, Source::MergedNotebook(text));
                continue;
            }
            done.of_file.insert(there, Source::Kept);
            for of in all {
                if let Some(writer) = new(of) {
                    let old = &self.base.cells[of];
                    let yours = writer.source_bytes();
                    done.conflicts.push(lost(writer.id(), old, &yours, file));
                }
            }
        }
    }

    fn file_of(&self, base: usize) -> Option<usize> {
        let place = self.in_file.get(base).copied().flatten();
        place.filter(|place| *place < self.file.cells.len())
    }

    fn writer_of(&self, base: usize) -> Option<usize> {
        let place = self.in_writer.get(base).copied().flatten();
        place.filter(|place| *place < self.writer.cells.len())
    }
}

/// Returns the sources of some cells as the source of one.
fn joined_text(cells: &[Cell], places: &[usize]) -> Vec<u8> {
    let sources = places.iter().filter_map(|at| cells.get(*at));
    let sources: Vec<_> = sources.map(Cell::source_bytes).collect();
    sources.join(&b"\n"[..])
}

/// Whether places follow each other.
fn follow(places: &[usize]) -> bool {
    places.windows(2).all(|two| two[1] == two[0] + 1)
}

fn lost(cell: &str, base: &Cell, yours: &[u8], theirs: &Cell) -> Conflict {
    Conflict {
        cell: Some(cell.to_owned()),
        field: "source".into(),
        base: Some(base.source().into_owned()),
        yours: Some(lossy(Cow::Borrowed(yours)).into_owned()),
        theirs: Some(theirs.source().into_owned()),
        revision: None,
    }
}

/// Says what of a cell that does not go in is in no source: its metadata, and what running it left.
fn besides_source(old: Option<&Cell>, cell: &Cell) -> Vec<Conflict> {
    let metadata = |cell: &Cell| cell.metadata(&[]).map(|json| json.text().into_owned());
    let conflict = |field: &str, base, yours| Conflict {
        cell: Some(cell.id().to_owned()),
        field: field.into(),
        base,
        yours,
        theirs: None,
        revision: None,
    };
    let (had, has) = (old.and_then(metadata), metadata(cell));
    let mut lost = Vec::new();
    if has != had {
        lost.push(conflict("metadata", had, has));
    }
    if old.is_none_or(|old| has_new_outputs(old, cell)) {
        let short = |cell: &Cell| cell.outputs_line(200);
        let short = (old.map(short), Some(short(cell)));
        lost.push(conflict("outputs", short.0, short.1));
    }
    lost
}

/// Merges a cell that was split, as one text, and cuts the result where it was cut.
fn cut(base: &[u8], file: &[u8], parts: &[Cow<'_, [u8]>]) -> Option<Vec<Vec<u8>>> {
    let whole = parts.join(&b"\n"[..]);
    let text = merged(base, file, &whole)?;
    let lines = |text: &[u8]| -> Vec<Vec<u8>> {
        let lines = text.split(|byte| *byte == b'\n');
        lines.map(<[u8]>::to_vec).collect()
    };
    let (old, new) = (lines(&whole), lines(&text));
    let hunks = differences(&old, &new);
    let mut place = 0;
    let mut from = 0;
    let mut texts = Vec::new();
    for part in parts {
        place += lines(part).len();
        let to = if texts.len() + 1 == parts.len() {
            new.len()
        } else {
            moved_to(place, &hunks)?
        };
        texts.push(new.get(from..to)?.join(&b"\n"[..]));
        from = to;
    }
    Some(texts)
}

/// Returns where a place between two lines is after changes; none where it is within one.
fn moved_to(
    place: usize,
    hunks: &[(std::ops::Range<usize>, std::ops::Range<usize>)],
) -> Option<usize> {
    let mut at = place;
    for (old, new) in hunks {
        if old.end < place || (old.end == place && old.start <= place) {
            at = new.end + (place - old.end);
        } else if old.start < place {
            return None;
        }
    }
    Some(at)
}

/// Returns the lines of a cell that another version of it has not, without blank ones.
pub(in crate::notebook) fn lines_beyond(cell: &Cell, other: Option<&Cell>) -> Vec<Vec<u8>> {
    let lines = |cell: &Cell| -> Vec<Vec<u8>> {
        let source = cell.source_bytes();
        let lines = source.split(|byte| *byte == b'\n');
        let lines = lines.map(|line| line.trim_ascii().to_vec());
        lines.filter(|line| !line.is_empty()).collect()
    };
    let mut count: HashMap<Vec<u8>, usize> = HashMap::new();
    for line in other.map(lines).unwrap_or_default() {
        *count.entry(line).or_default() += 1;
    }
    let mut beyond = lines(cell);
    beyond.retain(|line| match count.get_mut(line) {
        Some(count @ 1..) => {
            *count -= 1;
            false
        }
        _ => true,
    });
    beyond
}

/// Whether two cells' lines have one that is the same.
pub(in crate::notebook) fn shares(one: &[Vec<u8>], other: &[Vec<u8>]) -> bool {
    one.iter().any(|line| other.contains(line))
}

#[cfg(test)]
mod tests {
    use crate::notebook::tests::fixtures::{cells, in_words};
    use crate::notebook::{Document, merge};

    fn merged(base: &str, file: &str, writer: &str) -> (String, Vec<String>) {
        let [base, file, writer] = [base, file, writer].map(cells);
        let merged = merge(&base, &file, &writer, &|_| false);
        crate::notebook::tests::laws::assert_whole(&merged.document);
        let conflicts = merged.conflicts.into_iter();
        let conflicts = conflicts.map(|it| {
            let yours = it.yours.unwrap_or_default().replace('\n', "|");
            format!("{} {} {yours}", it.cell.unwrap_or_default(), it.field)
        });
        (in_words(&merged.document), conflicts.collect())
    }

    /// What the cells were, are in the file and are the writer's; the merge, and its conflicts.
    type Case<'a> = (&'a str, &'a str, &'a str, &'a str, &'a [&'a str]);

    fn assert_merges(cases: &[Case<'_>]) {
        for (base, file, writer, want, conflicts) in cases {
            let (found, said) = merged(base, file, writer);
            assert_eq!(found, *want, "{base} / {file} / {writer}");
            assert_eq!(said, *conflicts, "{base} / {file} / {writer}");
        }
    }

    #[test]
    fn a_split_and_an_edit_of_the_same_cell_go_together_or_not_at_all() {
        assert_merges(&[
            // In the first part, in the second, in both.
            ("a:1|2|3", "a:1h|2|3", "a:1 n:2|3", "a:1h n:2|3", &[]),
            ("a:1|2|3", "a:1|2|3h", "a:1 n:2|3", "a:1 n:2|3h", &[]),
            ("a:1|2|3", "a:h|1|2|3h", "a:1 n:2|3", "a:h|1 n:2|3h", &[]),
            // Edited as it was split.
            ("a:1|2|3", "a:h|1|2|3", "a:1 n:2|3w", "a:h|1 n:2|3w", &[]),
            // Where it was cut, the text is another one now.
            (
                "a:1|2|3|4",
                "a:1|h|4",
                "a:1|2w n:3|4",
                "a:1|h|4",
                &["a source 1|2w|3|4"],
            ),
            // Both have split it, and one has joined it with the next.
            ("a:1|2", "a:1 m:2", "a:1 n:2", "a:1 m:2", &[]),
            ("a:1|2 b:3", "a:1|2|3", "a:1 n:2 b:3", "a:1 n:2|3", &[]),
        ]);
    }

    #[test]
    fn a_join_and_an_edit_of_its_cells_go_together_or_not_at_all() {
        assert_merges(&[
            ("a:1 b:2", "a:1 b:2|h", "a:1|2", "a:1|2|h", &[]),
            ("a:1 b:2", "a:h|1 b:2", "a:1|2", "a:h|1|2", &[]),
            ("a:1 b:2 c:3", "a:1 b:2|h c:3", "a:1|2|3", "a:1|2|h|3", &[]),
            // The writer has changed the same line, or something stands between them now.
            (
                "a:1 b:2|x",
                "a:1 b:2h|x",
                "a:1|2w|x",
                "a:1 b:2h|x",
                &["b deleted ", "a source 1|2w|x"],
            ),
            (
                "a:1 b:2",
                "a:1 h:h b:2|i",
                "a:1|2",
                "a:1 h:h b:2|i",
                &["b deleted ", "a source 1|2"],
            ),
            // The file has joined them.
            ("a:1 b:2|3", "a:1|2|3", "a:1 b:2|3w", "a:1|2|3w", &[]),
            ("a:1 b:2", "a:1|2h", "a:1 b:2w", "a:1|2h b:2w", &[]),
            (
                "a:1 b:2|x",
                "a:1|2h|x",
                "a:1 b:2w|x",
                "a:1|2h|x",
                &["b source 2w|x"],
            ),
            // Both have.
            ("a:1 b:2", "a:1|2", "a:1|2", "a:1|2", &[]),
        ]);
    }

    #[test]
    fn a_deletion_and_a_line_of_the_deleted_cell_in_another_one_are_a_join() {
        assert_merges(&[
            // It merges: the edit is in the other cell.
            ("a:b c:x", "c:b|h|x", "a:w|b c:x", "c:w|b|h|x", &[]),
            // It does not: the edit is reported.
            ("a:b c:", "c:h|b|", "a:w|b c:", "c:h|b|", &["a source w|b"]),
            // The same line, written by the other side, or by nobody: an edit beats a deletion.
            ("a:b c:x", "c:x", "a:w|b c:b|x", "a:w|b c:b|x", &[]),
            ("a:b c:b", "c:b|h", "a:w|b c:b", "a:w|b c:b|h", &[]),
        ]);
    }

    /// The merge is the same for a file whose ids are in the records.
    #[test]
    fn a_join_is_the_same_one_in_a_file_without_ids() {
        let cell = |source: &str| {
            format!(
                r#"{{"cell_type":"code","source":"{source}","outputs":[],"execution_count":null,"metadata":{{}}}}"#
            )
        };
        let sources = ["", "", "b", "", ""].map(cell).join(",");
        let text = format!(r#"{{"cells":[{sources}],"nbformat":4,"nbformat_minor":4}}"#);
        let mut base = Document::parse(text).unwrap();
        base.recall_ids(&[], &|_| None);
        let (mut file, mut writer) = (base.clone(), base.clone());
        file.set_source(3, "h\nb\n\n").unwrap();
        file.remove(2).unwrap();
        file.remove(0).unwrap();
        writer.set_source(2, "w\n\nb").unwrap();
        let merged = merge(&base, &file, &writer, &|_| false);
        assert_eq!(merged.document.to_bytes(), file.to_bytes());
        let conflicts: Vec<_> = merged.conflicts.iter().collect();
        assert_eq!(conflicts.len(), 1, "{conflicts:?}");
        assert_eq!(conflicts[0].cell.as_deref(), Some(base.cells()[2].id()));
        assert_eq!(conflicts[0].yours.as_deref(), Some("w\n\nb"));
    }
}

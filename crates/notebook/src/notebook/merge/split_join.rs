//! Merges cells that one side split or joined with what the other side changed in them meanwhile.
//!
//! A split takes lines out of one cell and puts them into new ones; a join takes them out of cells that it
//! removes. If the other side has changed one of these cells, a merge cell by cell would keep the moved
//! lines twice or not at all. So the cells of one split or join are merged as one text, and the result is
//! cut at the same positions. If that is not possible, the writer's change of these cells is refused.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::cell::{SourceMerge, has_new_outputs, name_in_merged, outputs_lost, with_source};
use super::lines::{differences, merged};
use super::three_versions::{ThreeVersions, position};
use crate::notebook::document::{Cell, Document};
use crate::notebook::edit::Conflict;
use crate::notebook::json::lossy;

/// The decisions about cells that were split or joined, by the cells' positions.
#[derive(Debug, Default)]
pub(super) struct SplitsAndJoins {
    /// The sources of cells of the file.
    pub of_file: HashMap<usize, SourceMerge>,
    /// Cells of the file that the writer's join removes.
    pub joined: HashSet<usize>,
    /// Cells of the file that stay because the writer's join is refused.
    pub kept: HashSet<usize>,
    /// The sources of the writer's own cells; `None` for a cell that is not inserted.
    pub of_writer: HashMap<usize, Option<Vec<u8>>>,
    /// The writer's changes that were refused.
    pub conflicts: Vec<Conflict>,
}

impl ThreeVersions<'_> {
    /// Finds cells that one side has split or joined and the other has changed.
    pub(super) fn splits_and_joins(&self) -> SplitsAndJoins {
        let mut done = SplitsAndJoins::default();
        // Most merges concern a few cells of many, and these three steps compare all of them.
        if self.of_writer.contains(&None) {
            self.split_by_writer(&mut done);
        }
        if self.in_writer.contains(&None) {
            self.joined_by_writer(&mut done);
        }
        if self.in_file.contains(&None) {
            self.joined_by_file(&mut done);
        }
        done
    }

    fn split_by_writer(&self, done: &mut SplitsAndJoins) {
        // Cells that both sides inserted with the same id are not parts of a split.
        let by_both: HashSet<&usize> = self.inserted_by_both.values().collect();
        let mut used = HashSet::new();
        for (at, base) in self.base.cells.iter().enumerate() {
            let (Some((to, writer)), Some((file_at, file))) =
                (self.writer_cell(at), self.file_cell(at))
            else {
                continue;
            };
            if file.source_bytes() == base.source_bytes() {
                continue;
            }
            let removed_lines = lines_beyond(base, Some(writer));
            let new_cells = self.writer.cells.iter().zip(&self.of_writer).enumerate();
            let parts: Vec<usize> = new_cells
                .filter(|(index, (_, of))| of.is_none() && !used.contains(index))
                .filter(|(_, (cell, _))| shares(&removed_lines, &lines_beyond(cell, None)))
                .map(|(index, _)| index)
                .collect();
            if parts.is_empty() || parts.iter().any(|part| by_both.contains(part)) {
                continue;
            }
            used.extend(parts.iter().copied());
            let mut all = parts.clone();
            all.push(to);
            all.sort_unstable();
            let sources: Vec<_> = all
                .iter()
                .map(|at| self.writer.cells[*at].source_bytes())
                .collect();
            if let Some(texts) = cut(&base.source_bytes(), &file.source_bytes(), &sources) {
                for (part, text) in all.iter().zip(texts) {
                    if *part == to {
                        done.of_file.insert(file_at, SourceMerge::Merged(text));
                        continue;
                    }
                    // The other side has removed all lines of this part.
                    let text = Some(text).filter(|text| !text.is_empty());
                    if text.is_none() {
                        let part = &self.writer.cells[*part];
                        done.conflicts.extend(besides_source(writer, part));
                    }
                    done.of_writer.insert(*part, text);
                }
                continue;
            }
            done.of_file.insert(file_at, SourceMerge::Kept);
            for part in parts {
                let cell = &self.writer.cells[part];
                done.conflicts.extend(besides_source(writer, cell));
                done.of_writer.insert(part, None);
            }
            let yours = sources.join(&b"\n"[..]);
            let id = name_in_merged(Some(base), file);
            done.conflicts.push(refused_source(id, base, &yours, file));
        }
    }

    fn joined_by_writer(&self, done: &mut SplitsAndJoins) {
        for (at, base) in self.base.cells.iter().enumerate() {
            let (Some((_, writer)), Some((file_at, file))) =
                (self.writer_cell(at), self.file_cell(at))
            else {
                continue;
            };
            if done.of_file.contains_key(&file_at) {
                continue;
            }
            let added_lines = lines_beyond(writer, Some(base));
            if added_lines.is_empty() {
                continue;
            }
            let joined = self.joined(&added_lines, &self.in_writer, &self.in_file, self.file);
            let has_changed = |it: &JoinedCell<'_>| {
                it.other.revision() != it.base.revision() || has_new_outputs(it.base, it.other)
            };
            let source_changed = file.source_bytes() != base.source_bytes();
            if joined.is_empty() || !(source_changed || joined.iter().any(has_changed)) {
                continue;
            }
            // The joined cell has no place for changes outside the source.
            let has_more = |it: &JoinedCell<'_>| {
                let same = with_source(it.other, &it.base.source_bytes(), &self.file.style);
                has_new_outputs(it.base, it.other) || same.revision() != it.base.revision()
            };
            let (all, positions) = with_joined(at, &joined, &self.in_file);
            let can_merge =
                are_adjacent(&all) && are_adjacent(&positions) && !joined.iter().any(has_more);
            let text = can_merge
                .then(|| {
                    let base = joined_text(&self.base.cells, &all);
                    let file = joined_text(&self.file.cells, &positions);
                    merged(&base, &file, &writer.source_bytes())
                })
                .flatten();
            let others = joined.iter().map(|cell| cell.position);
            if let Some(text) = text {
                done.of_file.insert(file_at, SourceMerge::Merged(text));
                done.joined.extend(others);
            } else {
                done.of_file.insert(file_at, SourceMerge::Kept);
                done.kept.extend(others);
                let id = name_in_merged(Some(base), file);
                let yours = writer.source_bytes();
                done.conflicts.push(refused_source(id, base, &yours, file));
            }
        }
    }

    /// Finds cells that the file has joined, if the writer has changed one that the file removed.
    fn joined_by_file(&self, done: &mut SplitsAndJoins) {
        for (at, base) in self.base.cells.iter().enumerate() {
            let Some((file_at, file)) = self.file_cell(at) else {
                continue;
            };
            if done.of_file.contains_key(&file_at) {
                continue;
            }
            // Ignore lines that the writer's version of the cell has too: an earlier merge wrote them.
            let writers = self.writer_cell(at);
            let writers = writers.map(|(_, writer)| lines_beyond(writer, Some(base)));
            let writers = writers.unwrap_or_default();
            let mut added_lines = lines_beyond(file, Some(base));
            added_lines.retain(|line| !writers.contains(line));
            if added_lines.is_empty() {
                continue;
            }
            let joined = self.joined(&added_lines, &self.in_file, &self.in_writer, self.writer);
            let has_changed = |cell: &JoinedCell<'_>| cell.other.revision() != cell.base.revision();
            if !joined.iter().any(has_changed) {
                continue;
            }
            let (all, positions) = with_joined(at, &joined, &self.in_writer);
            let can_merge = positions.len() == all.len() && are_adjacent(&positions);
            let text = can_merge
                .then(|| {
                    let base = joined_text(&self.base.cells, &all);
                    let writer = joined_text(&self.writer.cells, &positions);
                    let text = merged(&base, &file.source_bytes(), &writer)?;
                    // The same merge may be repeated on the file that it produces, and must then change
                    // nothing.
                    let again = merged(&base, &text, &writer)?;
                    (again == text).then_some(text)
                })
                .flatten();
            for cell in &joined {
                done.of_writer.insert(cell.position, None);
                let lost = besides_source(cell.base, cell.other);
                done.conflicts.extend(lost);
            }
            if let Some(text) = text {
                done.of_file.insert(file_at, SourceMerge::Merged(text));
                continue;
            }
            done.of_file.insert(file_at, SourceMerge::Kept);
            for of in all {
                let old = &self.base.cells[of];
                if let Some((_, writer)) = self.writer_cell(of)
                    && writer.revision() != old.revision()
                {
                    let yours = writer.source_bytes();
                    done.conflicts
                        .push(refused_source(writer.id(), old, &yours, file));
                }
            }
        }
    }
}

/// A cell of the base that one side has joined into another cell, and that still exists on the other side.
struct JoinedCell<'a> {
    at: usize,
    base: &'a Cell,
    /// The other side's version, and its position on that side.
    other: &'a Cell,
    position: usize,
}

impl<'a> ThreeVersions<'a> {
    /// Returns the cells of the base that one side no longer has, the other still has, and of which a line
    /// is among those that came into another cell.
    fn joined(
        &self,
        added_lines: &[Vec<u8>],
        missing_in: &[Option<usize>],
        in_other: &[Option<usize>],
        other: &'a Document,
    ) -> Vec<JoinedCell<'a>> {
        let cells = self.base.cells.iter().enumerate();
        let removed = cells.filter(|(at, _)| position(missing_in, *at).is_none());
        let joined = removed.filter_map(|(at, base)| {
            let position = position(in_other, at)?;
            let other = other.cells.get(position)?;
            shares(added_lines, &lines_beyond(base, None)).then_some(JoinedCell {
                at,
                base,
                other,
                position,
            })
        });
        joined.collect()
    }
}

/// Returns the positions of a cell and of those joined into it, in order: in the base and in another
/// version.
fn with_joined(
    at: usize,
    joined: &[JoinedCell<'_>],
    in_other: &[Option<usize>],
) -> (Vec<usize>, Vec<usize>) {
    let mut all: Vec<usize> = joined.iter().map(|cell| cell.at).chain([at]).collect();
    all.sort_unstable();
    let positions = all.iter().filter_map(|at| position(in_other, *at));
    let positions = positions.collect();
    (all, positions)
}

/// Returns the sources of some cells as one source.
fn joined_text(cells: &[Cell], positions: &[usize]) -> Vec<u8> {
    let sources = positions.iter().filter_map(|at| cells.get(*at));
    let sources: Vec<_> = sources.map(Cell::source_bytes).collect();
    sources.join(&b"\n"[..])
}

/// Says whether the positions are consecutive.
fn are_adjacent(positions: &[usize]) -> bool {
    positions.windows(2).all(|two| two[1] == two[0] + 1)
}

fn refused_source(cell: &str, base: &Cell, yours: &[u8], theirs: &Cell) -> Conflict {
    Conflict {
        cell: Some(cell.to_owned()),
        field: "source".into(),
        base: Some(base.source().into_owned()),
        yours: Some(lossy(Cow::Borrowed(yours)).into_owned()),
        theirs: Some(theirs.source().into_owned()),
        ..Conflict::default()
    }
}

/// Returns the conflicts for the metadata and outputs of a refused cell.
fn besides_source(old: &Cell, cell: &Cell) -> Vec<Conflict> {
    let metadata = |cell: &Cell| cell.metadata(&[]).map(|json| json.text().into_owned());
    let (base, yours) = (metadata(old), metadata(cell));
    let metadata = (yours != base).then(|| Conflict {
        cell: Some(cell.id().to_owned()),
        field: "metadata".into(),
        base,
        yours,
        ..Conflict::default()
    });
    metadata
        .into_iter()
        .chain(outputs_lost(old, cell))
        .collect()
}

/// Merges a cell that was split as one text, and cuts the result where the writer has cut it.
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
        let to = moved_to(place, &hunks)?;
        texts.push(new.get(from..to)?.join(&b"\n"[..]));
        from = to;
    }
    Some(texts)
}

/// Returns the position of a border between two lines after changes; `None` if the border is within a
/// change.
fn moved_to(
    place: usize,
    hunks: &[(std::ops::Range<usize>, std::ops::Range<usize>)],
) -> Option<usize> {
    let mut at = place;
    for (old, new) in hunks {
        if old.end <= place {
            at = new.end + (place - old.end);
        } else if old.start < place {
            return None;
        }
    }
    Some(at)
}

/// Returns the lines of a cell that another version of it does not have, without blank lines.
pub(super) fn lines_beyond(cell: &Cell, other: Option<&Cell>) -> Vec<Vec<u8>> {
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

/// Returns whether two lists of lines have a line in common.
pub(super) fn shares(one: &[Vec<u8>], other: &[Vec<u8>]) -> bool {
    one.iter().any(|line| other.contains(line))
}

#[cfg(test)]
mod tests {
    use crate::notebook::tests::fixtures::{cells, in_words};
    use crate::notebook::{Cell, CellExecution, Conflict, Document, Json, merge};

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

    /// A notebook of format 4.4 with these sources.
    fn without_ids(sources: &[&str]) -> Document {
        let cells = sources.iter().map(|source| {
            let source = source.replace('|', "\\n");
            format!(
                r#"{{"cell_type":"code","source":"{source}","outputs":[],"execution_count":null,"metadata":{{}}}}"#
            )
        });
        let cells = cells.collect::<Vec<_>>().join(",");
        let text = format!(r#"{{"cells":[{cells}],"nbformat":4,"nbformat_minor":4}}"#);
        Document::parse(text).unwrap()
    }

    fn ran() -> CellExecution {
        let output = r#"{"output_type": "stream", "name": "stdout", "text": "w"}"#;
        CellExecution {
            outputs: vec![Json::parse(output).unwrap()],
            execution_count: Some(1),
            times: None,
        }
    }

    /// The cells in the base, in the file and in the writer's version; the merged cells, and the conflicts.
    type Case<'a> = (&'a str, &'a str, &'a str, &'a str, &'a [&'a str]);

    fn assert_merges(cases: &[Case<'_>]) {
        for (base, file, writer, want, conflicts) in cases {
            let (found, reported) = merged(base, file, writer);
            assert_eq!(found, *want, "{base} / {file} / {writer}");
            assert_eq!(reported, *conflicts, "{base} / {file} / {writer}");
        }
    }

    #[test]
    fn a_split_and_an_edit_of_the_same_cell_go_together_or_not_at_all() {
        assert_merges(&[
            // An edit in the first part, in the second, in both.
            ("a:1|2|3", "a:1h|2|3", "a:1 n:2|3", "a:1h n:2|3", &[]),
            ("a:1|2|3", "a:1|2|3h", "a:1 n:2|3", "a:1 n:2|3h", &[]),
            ("a:1|2|3", "a:h|1|2|3h", "a:1 n:2|3", "a:h|1 n:2|3h", &[]),
            // The writer edited while splitting.
            ("a:1|2|3", "a:h|1|2|3", "a:1 n:2|3w", "a:h|1 n:2|3w", &[]),
            // The text at the cut has changed.
            (
                "a:1|2|3|4",
                "a:1|h|4",
                "a:1|2w n:3|4",
                "a:1|h|4",
                &["a source 1|2w|3|4"],
            ),
            // Both sides have split it, and one has joined the second part with the next cell.
            ("a:1|2", "a:1 m:2", "a:1 n:2", "a:1 m:2", &[]),
            ("a:1|2 b:3", "a:1|2|3", "a:1 n:2 b:3", "a:1 n:2|3", &[]),
            // The second part is elsewhere, and only another cell was edited.
            ("a:1|2 b:3", "a:1|2 b:h", "a:1 b:3 n:2", "a:1 b:h n:2", &[]),
            // A part before the rest of the cell, or behind another cell.
            ("a:1|2|3", "a:1|2|3h", "n:2|3 a:1", "n:2|3h a:1", &[]),
            (
                "a:1|2|3",
                "a:1h|2|3",
                "a:1 n:2 w:w m:3",
                "a:1h n:2 w:w m:3",
                &[],
            ),
            // New text at the cut; text at the cut that the file alone has changed.
            ("a:1|2", "a:1|h|2", "a:1 n:2", "a:1|h n:2", &[]),
            (
                "a:1|2|3|4",
                "a:1|h|4",
                "a:1|2 n:3|4",
                "a:1|h|4",
                &["a source 1|2|3|4"],
            ),
            // Equal lines; lines that the writer has indented anew.
            ("a:1|1", "a:1|1h", "a:1 n:1", "a:1 n:1h", &[]),
            (
                "a:1|\\t2|\\t3",
                "a:1|\\t2|\\t3h",
                "a:1 n:2|3",
                "a:1|\t2|\t3h",
                &["a source 1|2|3"],
            ),
            // A copy of a line that stays is no part of a split, nor is one of a part of another cell.
            ("a:1", "a:h", "n:1 a:1", "n:1 a:h", &[]),
            (
                "a:1|2 b:2",
                "a:1|h|2 b:h|2",
                "a:1 n:2 b:w",
                "a:1|h n:2 b:h|w",
                &[],
            ),
            // Both sides have made the same cell of it, but at another position or of another line.
            ("a:1|2", "a:1 n:2", "n:2 a:1", "a:1 n:2", &[]),
            (
                "a:1|2|3",
                "a:1|2 n:3",
                "a:1 n:2 m:3",
                "a:1|2 n:3 m:3",
                &["a source 1", "n source 2"],
            ),
            // The writer has also joined a cell with the first part.
            ("a:1|2 b:3", "a:1|2h b:3", "a:1|3 n:2", "a:1|3 n:2h", &[]),
            (
                "a:1|2 b:3|x",
                "a:1|2 b:3h|x",
                "a:1|3|x n:2",
                "a:1|3h|x n:2",
                &[],
            ),
        ]);
    }

    #[test]
    fn a_join_and_an_edit_of_its_cells_go_together_or_not_at_all() {
        assert_merges(&[
            ("a:1 b:2", "a:1 b:2|h", "a:1|2", "a:1|2|h", &[]),
            ("a:1 b:2", "a:h|1 b:2", "a:1|2", "a:h|1|2", &[]),
            ("a:1 b:2 c:3", "a:1 b:2|h c:3", "a:1|2|3", "a:1|2|h|3", &[]),
            // The writer has changed the same line, or another cell is between them now.
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
            // Both sides have joined them.
            ("a:1 b:2", "a:1|2", "a:1|2", "a:1|2", &[]),
            // Cells that are not neighbours, and only the one between them was edited.
            ("a:1 c:5 b:2", "a:1 c:h b:2", "a:1|2 c:5", "a:1|2 c:h", &[]),
        ]);
    }

    #[test]
    fn a_refused_join_by_the_writer_changes_no_cell() {
        assert_merges(&[
            // The file has changed only the cell that the other one was joined into.
            (
                "a:1|x b:2",
                "a:1h|x b:2",
                "a:1w|x|2",
                "a:1h|x b:2",
                &["a source 1w|x|2"],
            ),
            // The file has deleted the cell in the middle.
            (
                "a:1 b:2 c:3",
                "a:1 c:3|h",
                "a:1|2|3",
                "a:1 c:3|h",
                &["c deleted ", "a source 1|2|3"],
            ),
            // A line that both cells had is no sign of a join.
            (
                "a:1|x b:2|x",
                "a:1h|x b:2h|x",
                "a:1|x",
                "a:1h|x b:2h|x",
                &["b deleted "],
            ),
        ]);
    }

    #[test]
    fn a_join_by_the_file_takes_the_writers_changes_or_reports_each_of_them() {
        assert_merges(&[
            // The writer has also inserted or removed another cell.
            (
                "a:1 b:2|3",
                "a:1|2|3",
                "a:1 b:2|3w w:w",
                "a:1|2|3w w:w",
                &[],
            ),
            (
                "a:1 b:2|3 c:4",
                "a:1|2|3 c:4",
                "a:w|1 b:2|3w",
                "a:w|1|2|3w",
                &[],
            ),
            // The writer has changed one of two joined cells, one of two equal ones, or none.
            ("a:1 b:2 c:3", "a:1|2|3", "a:1 b:2 c:3|w", "a:1|2|3|w", &[]),
            ("a:1 b:1", "a:1|1", "a:1 b:w", "a:1|w", &[]),
            ("a:1 b:2", "a:1|h", "a:w b:2", "a:w|h", &[]),
            // The cells are no longer neighbours, or one of them is gone.
            (
                "a:1 b:2 c:3",
                "a:1|2|3",
                "a:1 b:2w w:w c:3",
                "a:1|2|3 w:w",
                &["b source 2w"],
            ),
            (
                "a:1 b:2|3",
                "a:1|2|3",
                "a:1 w:w b:2|3w",
                "a:1|2|3 w:w",
                &["b source 2|3w"],
            ),
            (
                "a:1 b:2 c:3",
                "a:1|2|3",
                "a:1 c:3w",
                "a:1|2|3",
                &["c source 3w"],
            ),
            (
                "a:1 b:2",
                "a:1|2",
                "b:w",
                "a:1|2",
                &["a deleted ", "b source w"],
            ),
            // The writer has moved away a cell that stood between them, and that the file has deleted.
            (
                "a:1 b:2 c:3|4",
                "a:1|3|4",
                "b:2 a:1 c:3|4w",
                "a:1|3|4w",
                &[],
            ),
            // Both sides have changed both cells.
            (
                "a:1 b:2|x",
                "a:1h|2h|x",
                "a:1w b:2w|x",
                "a:1h|2h|x",
                &["a source 1w", "b source 2w|x"],
            ),
            // The writer has split the cell that the other one was joined into.
            (
                "a:3| b:5|4",
                "b:3|5|4",
                "a:3|5 b:5 w:4",
                "a:3|5 b:3|5 w:4",
                &[],
            ),
            // Merged again, the text would be another one.
            (
                "a:3 b:3|1",
                "a:3|1|1",
                "a:3 b:3 w:1",
                "a:3|1|1 w:1",
                &["b source 3"],
            ),
        ]);
    }

    #[test]
    fn a_cell_whose_metadata_the_file_has_changed_is_not_joined() {
        let [base, mut file, writer] = ["a:1 b:2 c:3", "a:1 b:2 c:3", "a:1|2|3"].map(cells);
        file.set_metadata(1, &["x"], &Json::from(1)).unwrap();
        let merged = merge(&base, &file, &writer, &|_| false);
        assert_eq!(merged.document.to_bytes(), file.to_bytes());
        let cell = merged.document.cells().first();
        let theirs = Some("1".to_owned());
        let deleted = Conflict {
            cell: Some("b".into()),
            field: "deleted".into(),
            base: Some("2".into()),
            theirs: Some("2".into()),
            revision: Some(merged.document.cells()[1].revision()),
            ..Conflict::default()
        };
        let refused = Conflict {
            cell: Some("a".into()),
            field: "source".into(),
            base: theirs.clone(),
            yours: Some("1\n2\n3".into()),
            theirs,
            revision: cell.map(Cell::revision),
        };
        assert_eq!(merged.conflicts, [deleted, refused]);
    }

    #[test]
    fn the_outputs_and_metadata_of_a_cell_that_the_file_joined_are_reported() {
        let [base, file, mut writer] = ["a:1 b:2|3", "a:1|2|3", "a:1 b:2|3w"].map(cells);
        writer.set_execution(1, &ran()).unwrap();
        writer.set_metadata(1, &["x"], &Json::from(1)).unwrap();
        let merged = merge(&base, &file, &writer, &|_| true);
        assert_eq!(in_words(&merged.document), "a:1|2|3w");
        let lost = |field: &str, base: &str, yours: &str| Conflict {
            cell: Some("b".into()),
            field: field.into(),
            base: Some(base.into()),
            yours: Some(yours.into()),
            ..Conflict::default()
        };
        let want = [
            lost("metadata", "{}", "{\"x\": 1}"),
            lost("outputs", "", "stdout: w"),
        ];
        assert_eq!(merged.conflicts, want);
    }

    #[test]
    fn nothing_of_a_part_of_a_split_that_comes_is_reported() {
        let [base, file, mut writer] = ["a:1|2", "a:h|1|2", "a:1 n:2"].map(cells);
        writer.set_execution(1, &ran()).unwrap();
        let merged = merge(&base, &file, &writer, &|_| true);
        assert_eq!(merged.conflicts, []);
        assert_eq!(in_words(&merged.document), "a:h|1 n:2");
        assert_eq!(merged.document.cells()[1].outputs().count(), 1);
    }

    #[test]
    fn the_outputs_of_a_refused_join_are_reported_and_not_shown_under_the_other_text() {
        let [base, file, mut writer] = ["a:1 b:2|x", "a:1 b:2h|x", "a:1|2w|x"].map(cells);
        writer.set_execution(0, &ran()).unwrap();
        let merged = merge(&base, &file, &writer, &|_| true);
        assert_eq!(merged.document.to_bytes(), file.to_bytes());
        let reported = merged.conflicts.iter();
        let reported: Vec<_> = reported
            .map(|it| (it.field.as_str(), it.yours.as_deref()))
            .collect();
        assert_eq!(
            reported,
            [
                ("deleted", None),
                ("source", Some("1\n2w\nx")),
                ("outputs", Some("stdout: w")),
            ]
        );
    }

    #[test]
    fn the_outputs_of_a_part_of_a_split_that_does_not_come_are_reported() {
        for (base, file, writer) in [
            // The split is refused.
            ("a:1|2|3|4", "a:1|h|4", "a:1|2w n:3|4"),
            // The file has removed all lines of the part.
            ("a:1|2|3", "a:1|2", "a:1|2 n:3"),
        ] {
            let [base, file, mut writer] = [base, file, writer].map(cells);
            writer.set_execution(1, &ran()).unwrap();
            let merged = merge(&base, &file, &writer, &|_| true);
            assert_eq!(in_words(&merged.document), in_words(&file));
            let mut outputs = merged.conflicts.iter().filter(|it| it.field == "outputs");
            let lost = outputs.next().expect("a conflict");
            let lost = (lost.cell.as_deref(), lost.yours.as_deref());
            assert_eq!(lost, (Some("n"), Some("stdout: w")));
        }
    }

    #[test]
    fn a_deletion_and_a_line_of_the_deleted_cell_in_another_one_are_a_join() {
        assert_merges(&[
            // The merge succeeds: the edit is in the other cell.
            ("a:b c:x", "c:b|h|x", "a:w|b c:x", "c:w|b|h|x", &[]),
            // The merge fails: the edit is reported.
            ("a:b c:", "c:h|b|", "a:w|b c:", "c:h|b|", &["a source w|b"]),
            // The line was written by the other side, or existed before: an edit wins over a deletion.
            ("a:b c:x", "c:x", "a:w|b c:b|x", "a:w|b c:b|x", &[]),
            ("a:b c:b", "c:b|h", "a:w|b c:b", "a:w|b c:b|h", &[]),
        ]);
    }

    #[test]
    fn a_refused_split_or_join_names_the_cell_of_a_file_without_ids() {
        let base = without_ids(&["1", "2|3|4|5", "6|7"]);
        let id = base.cells()[1].id();
        let (mut split, mut joined) = (base.clone(), base.clone());
        split.split(1, 2, "n").unwrap();
        joined.join(1, 2).unwrap();
        joined.set_source(1, "2\n3\n4\n5\n6w\n7").unwrap();
        for (file, writer) in [
            (["new", "1", "2|h|5", "6|7"], split),
            (["new", "1", "2|3|4|5", "6h|7"], joined),
        ] {
            let file = without_ids(&file);
            let merged = merge(&base, &file, &writer, &|_| false);
            assert_eq!(merged.document.to_bytes(), file.to_bytes());
            let sources = merged.conflicts.iter().filter(|it| it.field == "source");
            let cells: Vec<_> = sources.map(|it| it.cell.as_deref()).collect();
            assert_eq!(cells, [Some(id)], "{}", in_words(&writer));
        }
    }

    /// The merge is the same for a file whose ids are in the ledger.
    #[test]
    fn a_join_is_the_same_one_in_a_file_without_ids() {
        let mut base = without_ids(&["", "", "b", "", ""]);
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

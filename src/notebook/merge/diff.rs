//! The differences between two versions of a notebook, cell by cell.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::Serialize;

use super::align::{align, align_edited, inverse, out_of_order};
use super::fields::{MOST_LEVELS, is_object, same};
use super::lines::differences;
use crate::notebook::document::{Cell, CellType, Document, EXECUTION_KEYS, Revision};
use crate::notebook::edit::{CellChange, ChangeKind};
use crate::notebook::json::{Json, Layout, digest, lossy, value_at};

/// One cell that is not the same in both versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CellDiff {
    /// The cell's id, in the later version if the cell is there.
    pub cell: String,
    /// The cell before; none if it is new.
    pub before: Option<CellSide>,
    /// The cell after; none if it was removed.
    pub after: Option<CellSide>,
    /// Whether its position among the cells of both versions has changed.
    pub moved: bool,
    /// The differences of the source; the whole source of a cell that only one version has.
    pub source: Vec<DiffHunk>,
    /// The differences of metadata and attachments.
    pub metadata: Vec<FieldDiff>,
    /// The outputs in short, if they differ.
    pub outputs: Option<OutputsDiff>,
}

/// A cell in one of the versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CellSide {
    /// Where it stands, from 0.
    pub index: usize,
    /// What it is.
    #[serde(rename = "type")]
    pub cell_type: CellType,
    /// Its revision.
    pub revision: Revision,
    /// The first line of its source.
    pub first_line: String,
}

/// Lines that differ, with some that do not around them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiffHunk {
    /// The number of its first line before, from 1.
    pub before: usize,
    /// The number of its first line after, from 1.
    pub after: usize,
    /// The lines.
    pub lines: Vec<DiffLine>,
}

/// One line of a difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DiffLine {
    /// In both.
    Same(String),
    /// Only before.
    Removed(String),
    /// Only after.
    Added(String),
}

/// A value of metadata that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldDiff {
    /// Its keys: `metadata.tags`.
    pub field: String,
    /// What it was, as JSON on one line; none where it was not.
    pub before: Option<String>,
    /// What it is, as JSON; none where it is not.
    pub after: Option<String>,
}

/// Outputs that differ, in short; empty where there are none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutputsDiff {
    /// What they were.
    pub before: String,
    /// What they are.
    pub after: String,
}

/// Returns the cells that differ, in the order of `after`; those that are gone follow the cell that
/// they followed. With `outputs` what running left counts too.
pub fn diff(before: &Document, after: &Document, outputs: bool) -> Vec<CellDiff> {
    let places = align(&before.cells, &after.cells, |_| false);
    let ran = if outputs { Ran::Outputs } else { Ran::Nothing };
    compared(before, after, &places, ran)
}

/// The parts of a cell's execution that are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ran {
    Nothing,
    Outputs,
    /// The count and the times too: a cell that ran may have these and no outputs.
    All,
}

fn compared(
    before: &Document,
    after: &Document,
    places: &[Option<usize>],
    ran: Ran,
) -> Vec<CellDiff> {
    let moved = out_of_order(places);
    let origins = inverse(places, after.cells.len());
    let gone_after = |from: usize| {
        let rest = places.iter().enumerate().skip(from);
        rest.take_while(|(_, place)| place.is_none())
            .map(|(index, _)| index)
    };
    let old = |index: usize| before.cells.get(index).map(|cell| (index, cell));
    let mut list = Vec::new();
    let gone = |list: &mut Vec<CellDiff>, from: usize| {
        list.extend(gone_after(from).filter_map(|index| compare(old(index), None, false, ran)));
    };
    gone(&mut list, 0);
    for (index, cell) in after.cells.iter().enumerate() {
        let origin = origins.get(index).copied().flatten();
        let is_moved = origin.is_some_and(|origin| moved.get(origin) == Some(&true));
        let was = origin.and_then(old);
        list.extend(compare(was, Some((index, cell)), is_moved, ran));
        if let Some(origin) = origin {
            gone(&mut list, origin + 1);
        }
    }
    list
}

/// Returns what differs in the notebooks' own metadata.
pub fn diff_metadata(before: &Document, after: &Document) -> Vec<FieldDiff> {
    let raw = |document: &Document| document.frame.raw("metadata").unwrap_or(b"{}").to_vec();
    fields("metadata", &raw(before), &raw(after), &[])
}

/// Returns the changes that make `after`, which was made of `before` by edits, as edits report
/// theirs: at most an edit, or new outputs, and a move for one cell.
pub fn changes(before: &Document, after: &Document) -> Vec<CellChange> {
    let places = align_edited(&before.cells, &after.cells);
    let mut list = Vec::new();
    for diff in compared(before, after, &places, Ran::All) {
        let (was, is) = (diff.before.as_ref(), diff.after.as_ref());
        let revision = |side: Option<&CellSide>| side.map(|side| side.revision);
        let Some(index) = is.or(was).map(|side| side.index) else {
            continue;
        };
        let mut report = |what| {
            list.push(CellChange {
                cell: diff.cell.clone(),
                index,
                what,
                before: revision(was),
                after: revision(is),
            });
        };
        match (was, is) {
            (None, _) => report(ChangeKind::Inserted),
            (_, None) => report(ChangeKind::Removed),
            _ if revision(was) != revision(is) => report(ChangeKind::Edited),
            _ if diff.outputs.is_some() => report(ChangeKind::Outputs),
            _ => {}
        }
        if diff.moved {
            report(ChangeKind::Moved);
        }
    }
    list
}

impl DiffHunk {
    /// Returns how many lines it has of what was, and of what is.
    pub fn lengths(&self) -> (usize, usize) {
        let count = |is: fn(&DiffLine) -> bool| self.lines.iter().filter(|line| is(line)).count();
        (
            count(|line| !matches!(line, DiffLine::Added(_))),
            count(|line| !matches!(line, DiffLine::Removed(_))),
        )
    }
}

/// Compares one cell's versions; none where they are the same.
fn compare(
    before: Option<(usize, &Cell)>,
    after: Option<(usize, &Cell)>,
    moved: bool,
    ran: Ran,
) -> Option<CellDiff> {
    if let (Some((_, before)), Some((_, after))) = (before, after)
        && !moved
        && before.text == after.text
    {
        return None;
    }
    let side = |(index, cell): (usize, &Cell)| CellSide {
        index,
        cell_type: cell.cell_type(),
        revision: cell.revision(),
        first_line: cell.first_line(60),
    };
    let text = |cell: Option<(usize, &Cell)>| {
        cell.map_or_else(Vec::new, |(_, cell)| cell.source_bytes().into_owned())
    };
    let raw = |cell: Option<(usize, &Cell)>, name| {
        let raw = cell.and_then(|(_, cell)| cell.raw(name));
        raw.unwrap_or(b"{}").to_vec()
    };
    let in_both = before.is_some() && after.is_some();
    let in_field = |name, skipped| {
        let (before, after) = (raw(before, name), raw(after, name));
        fields(name, &before, &after, skipped)
    };
    let mut metadata = in_field("metadata", &EXECUTION_KEYS);
    metadata.extend(in_field("attachments", &[]));
    let short = |cell: Option<(usize, &Cell)>| {
        cell.map_or_else(String::new, |(_, cell)| cell.outputs_line(80))
    };
    let had = |cell: Option<(usize, &Cell)>| {
        let field = |name, nothing| {
            let raw = cell.and_then(|(_, cell)| cell.raw(name));
            digest(raw.unwrap_or(nothing))
        };
        let times = || {
            let times = EXECUTION_KEYS.map(|key| cell.and_then(|(_, cell)| cell.metadata(&[key])));
            times.map(|times| times.map(|times| digest(times.bytes())))
        };
        let rest = (ran == Ran::All).then(|| (field("execution_count", &b"null"[..]), times()));
        (field("outputs", b"[]"), rest)
    };
    let id = after.or(before).map(|(_, cell)| cell.id().to_owned());
    let diff = CellDiff {
        cell: id?,
        before: before.map(side),
        after: after.map(side),
        moved,
        source: hunks(&text(before), &text(after), in_both),
        metadata,
        outputs: (ran != Ran::Nothing && had(before) != had(after)).then(|| OutputsDiff {
            before: short(before),
            after: short(after),
        }),
    };
    let revisions = [&diff.before, &diff.after].map(|side| side.as_ref().map(|it| it.revision));
    let differs = revisions[0] != revisions[1] || moved || diff.outputs.is_some();
    differs.then_some(diff)
}

/// The number of unchanged lines that are shown before and after a difference.
const AROUND: usize = 3;

/// Returns what differs between two texts.
fn hunks(before: &[u8], after: &[u8], in_both: bool) -> Vec<DiffHunk> {
    let split = |text: &[u8]| -> Vec<String> {
        if text.is_empty() && !in_both {
            return Vec::new();
        }
        let lines = text.split(|byte| *byte == b'\n');
        lines
            .map(|line| lossy(line.to_vec().into()).into_owned())
            .collect()
    };
    if in_both && before == after {
        return Vec::new();
    }
    let (old, new) = (split(before), split(after));
    let mut hunks: Vec<DiffHunk> = Vec::new();
    // Up to where the lines of `old` are in the last hunk.
    let mut shown = 0;
    let mut last: Option<(Range<usize>, Range<usize>)> = None;
    let same = |lines: &[String], range: Range<usize>| -> Vec<DiffLine> {
        let lines = lines.get(range).unwrap_or_default();
        lines.iter().cloned().map(DiffLine::Same).collect()
    };
    for (from, to) in differences(&old, &new) {
        let start = from.start.saturating_sub(AROUND);
        match hunks.last_mut() {
            Some(hunk) if last.is_some() && start <= shown + AROUND => {
                hunk.lines.extend(same(&old, shown..from.start));
            }
            other => {
                if let Some(hunk) = other {
                    let end = (shown + AROUND).min(old.len());
                    hunk.lines.extend(same(&old, shown..end));
                }
                hunks.push(DiffHunk {
                    before: start + 1,
                    after: to.start - (from.start - start) + 1,
                    lines: same(&old, start..from.start),
                });
            }
        }
        if let Some(hunk) = hunks.last_mut() {
            let gone = old.get(from.clone()).unwrap_or_default();
            let come = new.get(to.clone()).unwrap_or_default();
            hunk.lines
                .extend(gone.iter().cloned().map(DiffLine::Removed));
            hunk.lines.extend(come.iter().cloned().map(DiffLine::Added));
        }
        shown = from.end;
        last = Some((from, to));
    }
    if let Some(hunk) = hunks.last_mut() {
        let end = (shown + AROUND).min(old.len());
        hunk.lines.extend(same(&old, shown..end));
    }
    hunks
}

/// Returns the values that differ between two objects, by their keys; lists are values.
fn fields(name: &str, before: &[u8], after: &[u8], skipped: &[&str]) -> Vec<FieldDiff> {
    let mut found = Vec::new();
    let mut rest: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(path) = rest.pop() {
        let outer: Vec<&str> = path.iter().map(String::as_str).collect();
        let [was, is] = [before, after].map(|object| value_at(object, &outer));
        let keys: BTreeSet<String> = [&was, &is]
            .into_iter()
            .flatten()
            .flat_map(Json::keys)
            .collect();
        for key in keys {
            if path.is_empty() && skipped.contains(&key.as_str()) {
                continue;
            }
            let mut inner = outer.clone();
            inner.push(&key);
            let [was, is] = [before, after].map(|object| value_at(object, &inner));
            if same(&was, &is) {
                continue;
            }
            if is_object(&was) && is_object(&is) && inner.len() < MOST_LEVELS {
                rest.push(inner.into_iter().map(str::to_owned).collect());
                continue;
            }
            let text = |value: Option<Json>| {
                let line = value.map(|value| Layout::default().value(value.bytes()));
                line.map(|line| String::from_utf8_lossy(&line).into_owned())
            };
            found.push(FieldDiff {
                field: format!("{name}.{}", inner.join(".")),
                before: text(was),
                after: text(is),
            });
        }
    }
    found.sort_by(|a, b| a.field.cmp(&b.field));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::CellExecution;
    use crate::notebook::NewCell;
    use crate::notebook::tests::fixtures::cells;

    /// Each cell as `id`, what happened to it, and its lines.
    fn changes_in_words(before: &str, after: &str) -> Vec<String> {
        let list = diff(&cells(before), &cells(after), true);
        let said = list.into_iter().map(|diff| {
            let what = match (&diff.before, &diff.after) {
                (None, _) => "+",
                (_, None) => "-",
                _ if diff.moved => ">",
                _ => "~",
            };
            let lines = diff.source.iter().flat_map(|hunk| &hunk.lines);
            let lines = lines.map(|line| match line {
                DiffLine::Same(text) => format!(" {text}"),
                DiffLine::Removed(text) => format!("-{text}"),
                DiffLine::Added(text) => format!("+{text}"),
            });
            format!(
                "{what}{} {}",
                diff.cell,
                lines.collect::<Vec<_>>().join("|")
            )
        });
        said.collect()
    }

    #[test]
    fn cells_come_go_move_and_change() {
        for (before, after, want) in [
            ("a:1 b:2", "a:1 b:2", vec![]),
            ("a:1 b:2", "a:1 n:x b:2", vec!["+n +x"]),
            ("a:1 b:2 c:3", "a:1 c:3", vec!["-b -2"]),
            ("x:1 a:1", "a:1", vec!["-x -1"]),
            ("a:1 b:2 c:3", "c:3 a:1 b:2", vec![">c "]),
            ("a:1|2|3", "a:1|x|3", vec!["~a  1|-2|+x| 3"]),
            ("a:1", "", vec!["-a -1"]),
            ("", "a: b:1", vec!["+a ", "+b +1"]),
            ("a:1", "a:1|", vec!["~a  1|+"]),
            ("a:", "a:1", vec!["~a -|+1"]),
        ] {
            assert_eq!(changes_in_words(before, after), want, "{before} -> {after}");
        }
    }

    #[test]
    fn differences_have_their_surroundings_and_numbers() {
        let lines = |changed: &[usize]| {
            let line = |n: usize| match changed.contains(&n) {
                true => format!("x{n}"),
                false => n.to_string(),
            };
            format!("a:{}", (1..=20).map(line).collect::<Vec<_>>().join("|"))
        };
        let list = diff(&cells(&lines(&[])), &cells(&lines(&[5, 12, 20])), true);
        let [cell] = list.as_slice() else {
            panic!("{list:?}")
        };
        let places: Vec<_> = cell
            .source
            .iter()
            .map(|hunk| (hunk.before, hunk.after, hunk.lengths()))
            .collect();
        // Lines 2 to 15: between 5 and 12 there are six, all of them surroundings.
        assert_eq!(places, [(2, 2, (14, 14)), (17, 17, (4, 4))]);
        let two = diff(&cells(&lines(&[])), &cells(&lines(&[5, 13])), true);
        assert_eq!(two[0].source.len(), 2);
        assert_eq!(two[0].source[1].lengths(), (7, 7));
        let grown = diff(
            &cells("a:1|2|3|4|5|6|7|8|9"),
            &cells("a:0|1|2|3|4|5|6|7|8|x"),
            true,
        );
        let places: Vec<_> = grown[0]
            .source
            .iter()
            .map(|hunk| (hunk.before, hunk.after, hunk.lengths()))
            .collect();
        assert_eq!(places, [(1, 1, (3, 4)), (6, 7, (4, 4))]);
    }

    #[test]
    fn metadata_types_and_outputs_are_told_apart() {
        let before = cells("a:1 b:2");
        let mut after = before.clone();
        let value = |text| Json::parse(text).unwrap();
        after.set_metadata(0, &["tags"], &value("[1]")).unwrap();
        after.set_metadata(0, &["deep", "x"], &value("1")).unwrap();
        after.set_metadata(0, &["execution"], &value("{}")).unwrap();
        let list = diff(&before, &after, true);
        let field = |field: &str, before: Option<&str>, after: Option<&str>| FieldDiff {
            field: field.into(),
            before: before.map(str::to_owned),
            after: after.map(str::to_owned),
        };
        assert_eq!(list.len(), 1);
        assert_eq!(
            list[0].metadata,
            [
                field("metadata.deep", None, Some("{\"x\": 1}")),
                field("metadata.tags", None, Some("[1]"))
            ]
        );
        let mut deeper = after.clone();
        deeper.set_metadata(0, &["deep", "x"], &value("2")).unwrap();
        assert_eq!(
            diff(&after, &deeper, true)[0].metadata,
            [field("metadata.deep.x", Some("1"), Some("2"))]
        );
        let mut ran = before.clone();
        let execution = CellExecution {
            outputs: vec![value(
                r#"{"output_type":"stream","name":"stdout","text":"hi"}"#,
            )],
            execution_count: Some(1),
            times: None,
        };
        ran.set_execution(1, &execution).unwrap();
        assert_eq!(diff(&before, &ran, false), []);
        let list = diff(&before, &ran, true);
        let outputs = list[0].outputs.clone().unwrap();
        assert_eq!(
            (outputs.before.as_str(), outputs.after.as_str()),
            ("", "stdout: hi")
        );
        let mut text = before.clone();
        text.set_type(0, CellType::Markdown).unwrap();
        let list = diff(&before, &text, true);
        let types = [&list[0].before, &list[0].after].map(|side| side.as_ref().unwrap().cell_type);
        assert_eq!(types, [CellType::Code, CellType::Markdown]);
        assert_eq!(list[0].source, []);
        let mut named = before.clone();
        named
            .set_notebook_metadata(&["kernelspec", "name"], &value("\"x\""))
            .unwrap();
        assert_eq!(
            diff_metadata(&before, &named),
            [field(
                "metadata.kernelspec",
                None,
                Some("{\"name\": \"x\"}")
            )]
        );
    }

    #[test]
    fn differences_are_reported_as_edits_are() {
        let before = cells("a:1 b:2 c:3");
        let mut after = before.clone();
        let new = NewCell {
            id: "n".into(),
            cell_type: CellType::Code,
            source: "x".into(),
            metadata: None,
        };
        let inserted = after.insert(0, &new).unwrap();
        let removed = after.remove(2).unwrap();
        let edited = after.set_source(2, "4").unwrap();
        let list = changes(&before, &after);
        let removed = CellChange {
            index: 1,
            ..removed
        };
        assert_eq!(list, [inserted, removed, edited]);
        let mut moved = before.clone();
        moved.set_source(2, "x").unwrap();
        moved.move_cell(2, 0).unwrap();
        let kinds: Vec<_> = changes(&before, &moved)
            .iter()
            .map(|it| (it.what, it.index))
            .collect();
        assert_eq!(kinds, [(ChangeKind::Edited, 0), (ChangeKind::Moved, 0)]);
    }
}

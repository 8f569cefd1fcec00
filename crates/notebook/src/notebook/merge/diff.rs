//! The differences between two versions of a notebook, cell by cell.

use serde::Serialize;
use similar::{ChangeTag, DiffOp, group_diff_ops};

use super::align::{align, align_edited, inverse, out_of_order};
use super::fields::{MOST_LEVELS, for_each_field, is_object, same};
use super::lines::differences;
use crate::notebook::document::{Cell, CellType, Document, EXECUTION_KEYS, Revision};
use crate::notebook::edit::{CellChange, ChangeKind};
use crate::notebook::json::{Json, Layout, digest, lossy};

/// A cell that differs between two versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CellSide {
    /// Its position, from 0.
    pub index: usize,
    /// Its type.
    #[serde(rename = "type")]
    pub cell_type: CellType,
    /// Its revision.
    pub revision: Revision,
    /// The first line of its source.
    pub first_line: String,
}

/// Lines that differ, with some that do not around them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum DiffLine {
    /// A line of both texts.
    Same(String),
    /// A line of the old text only.
    Removed(String),
    /// A line of the new text only.
    Added(String),
}

/// A value of metadata that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FieldDiff {
    /// Its keys: `metadata.tags`.
    pub field: String,
    /// The value before, as JSON on one line; none if it was missing.
    pub before: Option<String>,
    /// The value after, as JSON on one line; none if it is missing.
    pub after: Option<String>,
}

/// Outputs that differ, in short; empty where there are none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputsDiff {
    /// The outputs before.
    pub before: String,
    /// The outputs after.
    pub after: String,
}

/// Returns the cells that differ, in the order of `after`; a removed cell comes after its former
/// predecessor. `outputs` says whether outputs are compared too.
pub fn diff(before: &Document, after: &Document, outputs: bool) -> Vec<CellDiff> {
    let places = align(&before.cells, &after.cells, |_| false);
    let ran = if outputs {
        ComparedExecution::Outputs
    } else {
        ComparedExecution::Nothing
    };
    compared(before, after, &places, ran)
}

/// The parts of a cell's execution that are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ComparedExecution {
    Nothing,
    Outputs,
    /// The count and the times too: a cell may have these after a run without outputs.
    All,
}

fn compared(
    before: &Document,
    after: &Document,
    places: &[Option<usize>],
    ran: ComparedExecution,
) -> Vec<CellDiff> {
    let moved = out_of_order(places);
    let origins = inverse(places, after.cells.len());
    let removed_after = |from: usize| {
        let rest = places.iter().enumerate().skip(from);
        rest.take_while(|(_, place)| place.is_none())
            .map(|(index, _)| index)
    };
    let old = |index: usize| before.cells.get(index).map(|cell| (index, cell));
    let mut list = Vec::new();
    let add_removed = |list: &mut Vec<CellDiff>, from: usize| {
        list.extend(removed_after(from).filter_map(|index| compare(old(index), None, false, ran)));
    };
    add_removed(&mut list, 0);
    for (index, cell) in after.cells.iter().enumerate() {
        let origin = origins.get(index).copied().flatten();
        let is_moved = origin.is_some_and(|origin| moved.get(origin) == Some(&true));
        let was = origin.and_then(old);
        list.extend(compare(was, Some((index, cell)), is_moved, ran));
        if let Some(origin) = origin {
            add_removed(&mut list, origin + 1);
        }
    }
    list
}

/// Returns the differences of the notebooks' own metadata.
pub fn diff_metadata(before: &Document, after: &Document) -> Vec<FieldDiff> {
    let raw = |document: &Document| document.frame.raw("metadata").unwrap_or(b"{}").to_vec();
    fields("metadata", &raw(before), &raw(after), &[])
}

/// Returns the changes between `before` and `after`, which was made from it by edits, in the form in which
/// edits report them: for each cell at most an edit, or new outputs, and a move.
pub fn changes(before: &Document, after: &Document) -> Vec<CellChange> {
    let places = align_edited(&before.cells, &after.cells);
    let mut list = Vec::new();
    for diff in compared(before, after, &places, ComparedExecution::All) {
        let (was, is) = (diff.before.as_ref(), diff.after.as_ref());
        let revision = |side: Option<&CellSide>| side.map(|side| side.revision);
        let Some(index) = is.or(was).map(|side| side.index) else {
            continue;
        };
        let mut report = |kind| {
            list.push(CellChange {
                cell: diff.cell.clone(),
                index,
                kind,
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

impl DiffLine {
    /// Returns the line's text.
    pub fn text(&self) -> &str {
        match self {
            Self::Same(text) | Self::Removed(text) | Self::Added(text) => text,
        }
    }
}

/// Returns the lines that differ between two texts, without the lines around them.
pub fn changed_lines(before: &str, after: &str) -> Vec<DiffLine> {
    let hunks = hunks(before.as_bytes(), after.as_bytes(), true, 0).into_iter();
    hunks.flat_map(|hunk| hunk.lines).collect()
}

/// Returns the differences of two texts of a cell, with a few lines around each; the whole text where there is only one.
pub fn diff_sources(before: Option<&str>, after: Option<&str>) -> Vec<DiffHunk> {
    let in_both = before.is_some() && after.is_some();
    let bytes = |text: Option<&str>| text.unwrap_or_default().as_bytes().to_vec();
    hunks(&bytes(before), &bytes(after), in_both, AROUND)
}

impl DiffHunk {
    /// Returns how many lines of the earlier and of the later text the hunk covers.
    pub fn lengths(&self) -> (usize, usize) {
        let count = |is: fn(&DiffLine) -> bool| self.lines.iter().filter(|line| is(line)).count();
        (
            count(|line| !matches!(line, DiffLine::Added(_))),
            count(|line| !matches!(line, DiffLine::Removed(_))),
        )
    }
}

/// Compares two versions of a cell; `None` if they are equal.
fn compare(
    before: Option<(usize, &Cell)>,
    after: Option<(usize, &Cell)>,
    moved: bool,
    ran: ComparedExecution,
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
    let outputs_key = |cell: Option<(usize, &Cell)>| {
        let field = |name, nothing| {
            let raw = cell.and_then(|(_, cell)| cell.raw(name));
            digest(raw.unwrap_or(nothing))
        };
        let times = || {
            let times = EXECUTION_KEYS.map(|key| cell.and_then(|(_, cell)| cell.metadata(&[key])));
            times.map(|times| times.map(|times| digest(times.bytes())))
        };
        let rest = (ran == ComparedExecution::All)
            .then(|| (field("execution_count", &b"null"[..]), times()));
        (field("outputs", b"[]"), rest)
    };
    let id = after.or(before).map(|(_, cell)| cell.id().to_owned());
    let diff = CellDiff {
        cell: id?,
        before: before.map(side),
        after: after.map(side),
        moved,
        source: hunks(&text(before), &text(after), in_both, AROUND),
        metadata,
        outputs: (ran != ComparedExecution::Nothing && outputs_key(before) != outputs_key(after))
            .then(|| OutputsDiff {
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

/// Returns the differences of two texts, with `around` unchanged lines before and after each.
fn hunks(before: &[u8], after: &[u8], in_both: bool, around: usize) -> Vec<DiffHunk> {
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
    let (mut old_index, mut new_index) = (0, 0);
    let mut ops = Vec::new();
    for (from, to) in differences(&old, &new) {
        ops.push(DiffOp::Equal {
            old_index,
            new_index,
            len: from.start - old_index,
        });
        ops.push(DiffOp::Replace {
            old_index: from.start,
            old_len: from.len(),
            new_index: to.start,
            new_len: to.len(),
        });
        (old_index, new_index) = (from.end, to.end);
    }
    ops.push(DiffOp::Equal {
        old_index,
        new_index,
        len: old.len() - old_index,
    });
    let hunk = |ops: Vec<DiffOp>| {
        let first = ops.first()?;
        let lines = ops.iter().flat_map(|op| op.iter_slices(&old[..], &new[..]));
        let lines = lines.flat_map(|(tag, lines)| {
            let line = match tag {
                ChangeTag::Equal => DiffLine::Same,
                ChangeTag::Delete => DiffLine::Removed,
                ChangeTag::Insert => DiffLine::Added,
            };
            lines.iter().cloned().map(line)
        });
        Some(DiffHunk {
            before: first.old_range().start + 1,
            after: first.new_range().start + 1,
            lines: lines.collect(),
        })
    };
    let groups = group_diff_ops(ops, around);
    groups.into_iter().filter_map(hunk).collect()
}

/// Returns the values that differ between two objects, by their paths of keys; lists are compared as a
/// whole.
fn fields(name: &str, before: &[u8], after: &[u8], skipped: &[&str]) -> Vec<FieldDiff> {
    let mut found = Vec::new();
    for_each_field([before, after], skipped, |path, [was, is]| {
        if same(&was, &is) {
            return false;
        }
        if path.len() < MOST_LEVELS && is_object(&was) && is_object(&is) {
            return true;
        }
        let text = |value: Option<Json>| {
            let line = value.map(|value| Layout::default().value(value.bytes()));
            line.map(|line| String::from_utf8_lossy(&line).into_owned())
        };
        found.push(FieldDiff {
            field: format!("{name}.{}", path.join(".")),
            before: text(was),
            after: text(is),
        });
        false
    });
    found.sort_by(|a, b| a.field.cmp(&b.field));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::CellExecution;
    use crate::notebook::NewCell;
    use crate::notebook::tests::fixtures::cells;

    /// Returns each changed cell as text: `id`, the kinds of change, and its lines.
    fn changes_in_words(before: &str, after: &str) -> Vec<String> {
        let list = diff(&cells(before), &cells(after), true);
        let texts = list.into_iter().map(|diff| {
            let kind = match (&diff.before, &diff.after) {
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
                "{kind}{} {}",
                diff.cell,
                lines.collect::<Vec<_>>().join("|")
            )
        });
        texts.collect()
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
        // Lines 2 to 15: the six lines between 5 and 12 are all context.
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
    fn metadata_types_and_outputs_are_distinguished() {
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
            .map(|it| (it.kind, it.index))
            .collect();
        assert_eq!(kinds, [(ChangeKind::Edited, 0), (ChangeKind::Moved, 0)]);
    }
}

//! The three-way merge of one cell, which keeps the bytes of the file's cell.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::fields::{merge_objects, same};
use super::lines::merged;
use crate::notebook::document::{Cell, CellType, Style};
use crate::notebook::edit::Conflict;
use crate::notebook::json::{Json, Layout, Object, Span, decode, digest, lossy};

/// The fields that have merge rules of their own.
const KNOWN: [&str; 7] = [
    "attachments",
    "cell_type",
    "execution_count",
    "id",
    "metadata",
    "outputs",
    "source",
];

/// The decision about the source of a cell that was split or joined.
#[derive(Debug)]
pub(super) enum SourceMerge {
    /// The merged source.
    Merged(Vec<u8>),
    /// The file's source stays, and so do its outputs, count and times.
    Kept,
}

/// Returns the file's cell with the writer's changes since `base`; without a base, both sides inserted the
/// cell. `source` is the decision about a cell that was split or joined.
pub(super) fn merge_cell(
    base: Option<&Cell>,
    file: &Cell,
    writer: &Cell,
    source: Option<&SourceMerge>,
    style: &Style,
    runs: &dyn Fn(&str) -> bool,
    conflicts: &mut Vec<Conflict>,
) -> Cell {
    let mut new = file.clone();
    let layout = file.object.layout(&file.text, &style.cell);
    // If the cell has no id in the file, it gets the id that the writer has added.
    if !file.own_id
        && writer.own_id
        && base.is_none_or(|base| !base.own_id)
        && let Some(id) = writer.raw("id")
    {
        new.set("id", id, &layout);
    }
    let same = file.text == writer.text || base.is_some_and(|base| base.text == writer.text);
    if same && source.is_none() {
        return new;
    }
    let mut merge = MergeCell {
        base,
        file,
        writer,
        new,
        layout,
        lost: Vec::new(),
    };
    merge.cell_type();
    match source {
        Some(SourceMerge::Merged(source)) => merge.new = with_source(&merge.new, source, style),
        Some(SourceMerge::Kept) => {}
        None => merge.source(style.lists),
    }
    merge.objects();
    merge.others();
    match source {
        Some(SourceMerge::Kept) => {
            let lost = base.and_then(|base| outputs_lost(base, writer));
            merge.lost.extend(lost);
        }
        _ => merge.execution(runs(file.id()) || runs(writer.id())),
    }
    let id = name_in_merged(base, file).to_owned();
    conflicts.extend(merge.lost.into_iter().map(|conflict| Conflict {
        cell: Some(id.clone()),
        ..conflict
    }));
    merge.new
}

/// Returns the name of a cell of the file in the merged notebook. If the file has no id for it, it keeps
/// its name from the base: the stand-in for its position in the file may be the name of another cell.
pub(super) fn name_in_merged<'a>(base: Option<&'a Cell>, file: &'a Cell) -> &'a str {
    match base {
        Some(base) if !file.own_id => base.id(),
        _ => file.id(),
    }
}

/// Returns a cell with another source; an unchanged source keeps its bytes.
pub(super) fn with_source(cell: &Cell, source: &[u8], style: &Style) -> Cell {
    let mut new = cell.clone();
    let layout = new.object.layout(&new.text, &style.cell);
    new.set_source(source, &layout, style.lists);
    new
}

struct MergeCell<'a> {
    base: Option<&'a Cell>,
    file: &'a Cell,
    writer: &'a Cell,
    /// The file's cell, with the writer's changes merged so far.
    new: Cell,
    /// The layout of the cell's fields.
    layout: Layout,
    lost: Vec<Conflict>,
}

impl MergeCell<'_> {
    fn cell_type(&mut self) {
        let (base, file, writer) = (
            self.base.map(Cell::cell_type),
            self.file.cell_type(),
            self.writer.cell_type(),
        );
        if writer == file || base == Some(writer) {
            return;
        }
        // Only code cells have outputs, and only other cells have attachments.
        let would_lose = self.base.is_some_and(|base| match writer {
            CellType::Code => is_new(base, self.file, "attachments", b"{}"),
            _ => has_new_outputs(base, self.file),
        });
        if base == Some(file) && writer != CellType::Unknown && !would_lose {
            self.new.set_type(writer, &self.layout);
            return;
        }
        self.lose(
            "cell_type",
            base.map(|base| base.to_string()),
            writer.to_string(),
            file.to_string(),
        );
    }

    fn source(&mut self, lists: bool) {
        let base = self.base.map(Cell::source_bytes);
        let (file, writer) = (self.file.source_bytes(), self.writer.source_bytes());
        let source = match &base {
            _ if file == writer => return,
            Some(base) => merged(base, &file, &writer),
            None => None,
        };
        match source {
            Some(source) => self.new.set_source(&source, &self.layout, lists),
            None => {
                let base = self.base.map(|base| base.source().into_owned());
                let (yours, theirs) = (
                    self.writer.source().into_owned(),
                    self.file.source().into_owned(),
                );
                self.lose("source", base, yours, theirs);
            }
        }
    }

    /// Merges metadata and attachments by their keys.
    fn objects(&mut self) {
        for name in ["metadata", "attachments"] {
            let raw = |cell: Option<&Cell>| {
                cell.and_then(|cell| cell.raw(name))
                    .unwrap_or(b"{}")
                    .to_vec()
            };
            let three = [raw(self.base), raw(Some(self.file)), raw(Some(self.writer))];
            let [base, file, writer] = &three;
            let layout = self.layout.deeper();
            let (new, lost) = merge_objects([base, file, writer], name, &["execution"], &layout);
            if let Some(new) = new {
                self.new.set(name, &new, &self.layout);
            }
            self.lost.extend(lost);
        }
    }

    /// Merges fields that no version of the format has, each as a whole.
    fn others(&mut self) {
        let fields = |cell: &Cell| {
            let mut fields = cell.object.by_name(&cell.text);
            fields.retain(|name, _| !KNOWN.contains(&name.as_str()));
            fields
        };
        let base = self.base.map(|base| (base, fields(base)));
        let (file, writer) = (fields(self.file), fields(self.writer));
        let mut names: Vec<_> = writer.keys().collect();
        if let Some((_, base)) = &base {
            names.extend(base.keys().filter(|name| !writer.contains_key(*name)));
        }
        for name in names {
            let value = |cell: &Cell, fields: &BTreeMap<String, Span>| {
                let span = fields.get(name)?;
                Some(Json::of_valid(span.of(&cell.text)))
            };
            let base = base.as_ref().and_then(|(cell, fields)| value(cell, fields));
            let (file, writer) = (value(self.file, &file), value(self.writer, &writer));
            if same(&writer, &base) || same(&writer, &file) {
                continue;
            }
            if same(&file, &base) {
                self.set_field(name, writer.as_ref().map(Json::bytes));
            } else {
                let text = |value: Option<Json>| value.map(|value| value.text().into_owned());
                self.lost.push(Conflict {
                    field: name.clone(),
                    base: text(base),
                    yours: text(writer),
                    theirs: text(file),
                    ..Conflict::default()
                });
            }
        }
    }

    /// Takes the writer's outputs, count and times if they are of the later execution; otherwise its new
    /// outputs become a conflict.
    fn execution(&mut self, runs: bool) {
        let unit = |cell: &Cell| {
            let field = |name| digest(cell.raw(name).unwrap_or(b"null"));
            let times = cell.metadata(&["execution"]);
            let times = times.map(|times| digest(times.bytes()));
            (field("outputs"), field("execution_count"), times)
        };
        let (file, writer) = (unit(self.file), unit(self.writer));
        let base = self.base.map(unit);
        if writer == file || base.as_ref() == Some(&writer) {
            return;
        }
        let code = [self.writer, &self.new].map(|cell| cell.cell_type() == CellType::Code);
        if code != [true; 2] {
            self.lost
                .extend(self.base.and_then(|base| outputs_lost(base, self.writer)));
            return;
        }
        if base.as_ref() != Some(&file) && !runs && !is_later(self.writer, self.file) {
            let lost = self.base.and_then(|base| outputs_lost(base, self.writer));
            self.lost.extend(lost.map(|conflict| Conflict {
                theirs: Some(self.file.outputs_line(200)),
                ..conflict
            }));
            return;
        }
        for name in ["outputs", "execution_count"] {
            self.set_field(name, self.writer.raw(name));
        }
        let path = ["execution"];
        let times = self.writer.metadata(&path);
        self.new.set_metadata(&path, times.as_ref(), &self.layout);
    }

    /// Sets a field to the value in another version of the cell, or removes it.
    fn set_field(&mut self, name: &str, value: Option<&[u8]>) {
        match value {
            Some(value) => self.new.set(name, &self.layout.value(value), &self.layout),
            None => self.new.unset(name),
        }
    }

    fn lose(&mut self, field: &str, base: Option<String>, yours: String, theirs: String) {
        self.lost.push(Conflict {
            field: field.to_owned(),
            base,
            yours: Some(yours),
            theirs: Some(theirs),
            ..Conflict::default()
        });
    }
}

/// Says whether a cell has outputs that its old version did not have.
pub(super) fn has_new_outputs(old: &Cell, cell: &Cell) -> bool {
    is_new(old, cell, "outputs", b"[]")
}

/// Returns the conflict for new outputs of a cell that are not in the merged notebook.
pub(in crate::notebook) fn outputs_lost(old: &Cell, cell: &Cell) -> Option<Conflict> {
    let text = |cell: &Cell| Some(cell.outputs_line(200));
    has_new_outputs(old, cell).then(|| Conflict {
        cell: Some(cell.id().to_owned()),
        field: "outputs".into(),
        base: text(old),
        yours: text(cell),
        ..Conflict::default()
    })
}

/// Says whether a field's value is not empty and differs from the old one.
fn is_new(old: &Cell, cell: &Cell, name: &str, empty: &[u8]) -> bool {
    let meaning = |cell: &Cell| digest(cell.raw(name).unwrap_or(empty));
    let now = meaning(cell);
    now != digest(empty) && now != meaning(old)
}

/// Says whether a cell's execution is later than the other's: by the times that front ends write, else by
/// the count. A cell with outputs wins over one without, since the time of clearing is not known.
fn is_later(cell: &Cell, other: &Cell) -> bool {
    match (last_time(cell), last_time(other)) {
        (Some(time), Some(other)) if time != other => time > other,
        _ => cell.execution_count() > other.execution_count(),
    }
}

/// Returns the latest of the times that a front end wrote when the cell ran.
fn last_time(cell: &Cell) -> Option<Timestamp> {
    times(cell).into_iter().max()
}

impl Cell {
    /// Returns when the execution began whose outputs the cell shows, if a front end wrote that.
    pub fn execution_began(&self) -> Option<Timestamp> {
        times(self).into_iter().min()
    }
}

fn times(cell: &Cell) -> Vec<Timestamp> {
    let Some(times) = cell.metadata(&["execution"]) else {
        return Vec::new();
    };
    let text = times.bytes();
    let fields = Object::read(text).map(|times| times.fields);
    let times = fields.iter().flatten();
    times
        .filter_map(|field| moment(field.value().of(text)))
        .collect()
}

/// Parses a time in ISO 8601. Front ends write the dates of message headers, which are in the kernel's
/// zone, in UTC, or (before jupyter_client 5) without a zone; the latter are taken for UTC.
fn moment(raw: &[u8]) -> Option<Timestamp> {
    let text = lossy(decode(Some(raw).filter(|raw| raw.starts_with(b"\""))?));
    let without_zone = || {
        let time: DateTime = text.parse().ok()?;
        TimeZone::UTC.to_timestamp(time).ok()
    };
    text.parse().ok().or_else(without_zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_moments_whatever_their_zone() {
        let cell = |times: &str| {
            let text = format!("{{\"metadata\":{{\"execution\":{{{times}}}}}}}");
            let object = Object::read(text.as_bytes()).unwrap();
            Cell::new(bytes::Bytes::new(), text.into(), object)
        };
        for (times, last) in [
            (
                r#""a": "2026-01-01T10:00:00.5Z""#,
                Some("2026-01-01T10:00:00.5Z"),
            ),
            (
                r#""a": "2026-01-01T10:00:00+02:00""#,
                Some("2026-01-01T08:00:00Z"),
            ),
            (
                r#""a": "2026-01-01T10:00:00.123456""#,
                Some("2026-01-01T10:00:00.123456Z"),
            ),
            (
                // The later time is the smaller text.
                r#""iopub.status.busy": "2026-01-01T10:00:00+02:00", "shell.execute_reply": "2026-01-01T09:00:00Z""#,
                Some("2026-01-01T09:00:00Z"),
            ),
            (
                r#""a": 5, "b": "soon", "c": "", "d": "2026-01-01T10:00:00Z""#,
                Some("2026-01-01T10:00:00Z"),
            ),
            (r#""a": null, "b": 1202601011, "c": ["2026-01-01"]"#, None),
        ] {
            let last: Option<Timestamp> = last.map(|text| text.parse().unwrap());
            assert_eq!(last_time(&cell(times)), last, "{times}");
        }
        let ran = cell(r#""a": "2026-01-01T10:00:00Z", "b": "2026-01-01T10:00:05+02:00""#);
        let began: Timestamp = "2026-01-01T08:00:05Z".parse().unwrap();
        assert_eq!(ran.execution_began(), Some(began));
        let earlier = cell(r#""iopub.status.idle": "2026-03-29T03:30:00+02:00""#);
        let later = cell(r#""iopub.status.idle": "2026-03-29T01:45:00.000000Z""#);
        assert!(is_later(&later, &earlier) && !is_later(&earlier, &later));
    }
}

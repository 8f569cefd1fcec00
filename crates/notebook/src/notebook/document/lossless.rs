//! The lossless document: a notebook as the bytes that it was read from.

use std::collections::HashMap;

use bytes::Bytes;

use super::cell::Cell;
use super::ids;
use super::legacy;
use super::not_a_notebook::NotANotebook;
use super::revision::Revision;
use crate::notebook::json::{
    Json, JsonError, Layout, Object, Scanner, Span, TEXT_BYTES_MAX, is, value_at,
};

/// A notebook that keeps the bytes of its file except where it is edited.
///
/// The cells are parts of the text, and the rest of the file is the frame round them; an edit
/// makes new bytes for the part that it touches. Copies share the bytes.
#[derive(Clone, Debug)]
pub struct Document {
    pub(in crate::notebook) frame: Frame,
    pub(in crate::notebook) cells: Vec<Cell>,
    /// The white space between the last cell and the closing bracket.
    pub(in crate::notebook) close: Bytes,
    pub(in crate::notebook) style: Style,
    /// The whole file, if its format is read-only.
    pub(in crate::notebook) read_only: Option<Bytes>,
    pub(in crate::notebook) nbformat: (u64, u64),
}

/// The file with an empty list of cells.
#[derive(Clone, Debug)]
pub(in crate::notebook) struct Frame {
    pub text: Bytes,
    /// The positions of the top-level fields.
    pub top: Object,
    /// The position at which the cells go: that of the bracket that closes their list.
    place: usize,
}

/// The style of a file, for objects that have no fields to take a style from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::notebook) struct Style {
    /// The layout of the top-level fields.
    pub top: Layout,
    /// The layout of a cell's fields.
    pub cell: Layout,
    /// Whether the source of a cell is a list of lines.
    pub lists: bool,
}

/// The result of the single pass over a file.
#[derive(Default)]
struct ScannedNotebook {
    /// The position of the list of cells, and whether it is a list.
    cells: Option<(Span, bool)>,
    objects: Vec<Object>,
    fields: Object,
}

impl Document {
    /// Reads a notebook. Accepts all UTF-8 that Python's `json.loads(strict=False)` reads, with or without
    /// a byte-order mark, at any depth; memory is linear in the size of the text.
    ///
    /// # Errors
    /// The text is not UTF-8, not JSON, not an object with a list of cells, or has more than 4 GiB.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, NotANotebook> {
        let text = text.into();
        if let Err(error) = std::str::from_utf8(&text) {
            let at = error.valid_up_to();
            let expected = "text in UTF-8";
            return Err(NotANotebook::at(&text, at, expected));
        }
        if text.len() > TEXT_BYTES_MAX {
            let expected = "a notebook of at most 4 GiB";
            return Err(NotANotebook::at(&text, TEXT_BYTES_MAX, expected));
        }
        let mut scanner = Scanner::of_file(&text);
        let scanned = scan(&mut scanner).map_err(|fault| NotANotebook::of(&text, &fault))?;
        let ascii = scanner.escapes && text.is_ascii();
        let wrong = |at, expected| NotANotebook::at(&text, at, expected);
        let number = |name| {
            let span = scanned.fields.get(&text, name)?;
            std::str::from_utf8(span.of(&text))
                .ok()?
                .parse::<u64>()
                .ok()
        };
        // Some tools leave the version numbers out; such a file is read as format 4.
        let nbformat = (
            number("nbformat").unwrap_or(4),
            number("nbformat_minor").unwrap_or(0),
        );
        let end = scanned.fields.span.end.saturating_sub(1);
        if scanned.cells.is_none()
            && let Some(cells) = legacy::cells(&text, &scanned.fields, nbformat.0)
        {
            let expected = "a worksheet: an object with a list of cells";
            let cells = cells.map_err(|at| wrong(at, expected))?;
            let frame = Frame {
                text: text.clone(),
                top: scanned.fields,
                place: end,
            };
            let document = Self::framed(frame, cells, Bytes::new(), ascii, nbformat);
            return Ok(document.only_read(&text));
        }
        let Some((list, true)) = scanned.cells else {
            return Err(match scanned.cells {
                Some((other, _)) => wrong(other.start, "a list of cells, which begins with ["),
                None => wrong(end, "a field \"cells\": a notebook has one"),
            });
        };
        let mut at = list.start + 1;
        let mut cells = Vec::with_capacity(scanned.objects.len());
        for object in scanned.objects {
            let span = object.span;
            let before = text.slice(at..span.start);
            cells.push(Cell::new(before, text.slice(span.start..span.end), object));
            at = span.end;
        }
        let close = text.slice(at..list.end.saturating_sub(1));
        let frame = Frame::without_cells(&text, scanned.fields, list);
        let document = Self::framed(frame, cells, close, ascii, nbformat);
        Ok(match nbformat.0 {
            4 => document,
            _ => document.only_read(&text),
        })
    }

    fn framed(
        frame: Frame,
        mut cells: Vec<Cell>,
        close: Bytes,
        ascii: bool,
        nbformat: (u64, u64),
    ) -> Self {
        ids::assign(&mut cells);
        Self {
            style: Style::of(&frame, &cells, ascii),
            frame,
            cells,
            close,
            read_only: None,
            nbformat,
        }
    }

    fn only_read(self, text: &Bytes) -> Self {
        Self {
            read_only: Some(text.clone()),
            ..self
        }
    }

    /// Returns the file's bytes: those that were read, with those of the edits in them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let length = self.chunks().map(<[u8]>::len).sum();
        let mut out = Vec::with_capacity(length);
        for chunk in self.chunks() {
            out.extend_from_slice(chunk);
        }
        out
    }

    /// Returns the file's bytes in parts, so that a large one can be written without a second copy in
    /// memory.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let whole = self.read_only.iter().map(|whole| &whole[..]);
        let cells: &[Cell] = if self.read_only.is_some() {
            &[]
        } else {
            &self.cells
        };
        let frame = &self.frame;
        let parts = [frame.text.get(..frame.place), frame.text.get(frame.place..)];
        let [head, tail] = parts.map(|part| part.filter(|_| self.read_only.is_none()));
        let close = tail.map(|_| &self.close[..]);
        let cells = cells
            .iter()
            .flat_map(|cell| [&cell.before[..], &cell.text[..]]);
        whole.chain(head).chain(cells).chain(close).chain(tail)
    }

    /// Says whether another document has the same bytes. Bytes that both share in memory are not compared.
    pub fn has_same_bytes(&self, other: &Self) -> bool {
        let is_same = |one: &Bytes, other: &Bytes| {
            one.len() == other.len() && (one.as_ptr() == other.as_ptr() || one == other)
        };
        // Compare lengths first: they differ for most documents.
        let length = |document: &Self| document.chunks().map(<[u8]>::len).sum::<usize>();
        length(self) == length(other)
            && self.cells.len() == other.cells.len()
            && is_same(&self.frame.text, &other.frame.text)
            && is_same(&self.close, &other.close)
            && self.cells.iter().zip(&other.cells).all(|(one, other)| {
                is_same(&one.before, &other.before) && is_same(&one.text, &other.text)
            })
    }

    /// Returns the cells in the order of the file.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Returns the version of the file format, such as `(4, 5)`.
    pub fn nbformat(&self) -> (u64, u64) {
        self.nbformat
    }

    /// Says whether the format is read-only, as all are but format 4.
    pub fn is_read_only(&self) -> bool {
        self.read_only.is_some()
    }

    /// Returns a value of the notebook's own metadata, by its path of keys; an empty path returns all
    /// metadata.
    pub fn metadata(&self, path: &[&str]) -> Option<Json> {
        value_at(self.frame.raw("metadata")?, path)
    }

    /// Returns a string of the notebook's own metadata.
    pub fn metadata_string(&self, path: &[&str]) -> Option<String> {
        self.metadata(path)?.as_string()
    }

    /// Returns the position of the cell with this id.
    pub fn position_by_id(&self, id: &str) -> Option<usize> {
        self.cells.iter().position(|cell| cell.id() == id)
    }

    /// Returns the cell with this id.
    pub fn cell_by_id(&self, id: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.id() == id)
    }

    /// Returns the position of each cell, by its id.
    pub(in crate::notebook) fn positions_by_id(&self) -> HashMap<&str, usize> {
        (self.cells.iter().map(Cell::id)).zip(0..).collect()
    }

    /// Returns the layout for a cell as an item of the list.
    pub(in crate::notebook) fn item_layout(&self) -> Layout {
        let layout = &self.style.cell;
        Layout {
            lead: layout.close().to_owned(),
            ..layout.clone()
        }
    }

    /// Returns the bytes between two cells, including the comma.
    pub(in crate::notebook) fn between(&self) -> Bytes {
        match self.cells.as_slice() {
            [_, second, ..] => second.before.clone(),
            [first] if first.before.contains(&b'\n') => [b",", &first.before[..]].concat().into(),
            _ => self.item_layout().gap().into(),
        }
    }
}

impl Document {
    /// Returns the notebook's revision: a hash of its cells' ids and revisions, in their order.
    pub fn revision(&self) -> Revision {
        let cells = self.cells().iter();
        Revision::of_cells(cells.map(|cell| (cell.id(), cell.revision())))
    }
}

impl Frame {
    fn without_cells(text: &[u8], mut top: Object, list: Span) -> Self {
        let inside = list.start + 1..list.end.saturating_sub(1);
        let mut frame = Vec::with_capacity(text.len() - inside.len());
        frame.extend_from_slice(text.get(..inside.start).unwrap_or_default());
        frame.extend_from_slice(text.get(inside.end..).unwrap_or_default());
        let moved = |at| match at {
            at if at >= inside.end => at - inside.len(),
            at => at,
        };
        for field in &mut top.fields {
            *field = field.moved(moved);
        }
        top.span.end = moved(top.span.end);
        Self {
            text: frame.into(),
            top,
            place: inside.start,
        }
    }

    /// Returns the bytes of a top-level field's value.
    pub(in crate::notebook) fn raw(&self, name: &str) -> Option<&[u8]> {
        Some(self.top.get(&self.text, name)?.of(&self.text))
    }

    /// Returns the frame with a field set to a value that is already in the file's layout.
    pub(in crate::notebook) fn with(&self, name: &str, value: &[u8], layout: &Layout) -> Self {
        self.rewritten(self.top.set(&self.text, name, value, layout))
    }

    /// Returns a frame of new bytes, which differ from this frame's only in a value or in white space.
    pub(in crate::notebook) fn rewritten(&self, text: Vec<u8>) -> Self {
        let top = Object::scan(&mut Scanner::of_file(&text));
        let top = top.expect("a splice of a value into an object leaves an object");
        let cells = top.get(&text, "cells");
        Self {
            place: cells.map_or(0, |cells| cells.end - 1),
            top,
            text: text.into(),
        }
    }
}

impl Style {
    fn of(frame: &Frame, cells: &[Cell], ascii: bool) -> Self {
        let plain = Layout {
            ascii,
            lead: "\n ".into(),
            unit: " ".into(),
            ..Layout::default()
        };
        let mut layout = frame.top.layout(&frame.text, &plain);
        let indent = layout
            .lead
            .rsplit_once('\n')
            .map(|(_, indent)| indent.to_owned());
        layout.unit = indent.unwrap_or_default();
        let cell = match cells.iter().find(|cell| !cell.object.fields.is_empty()) {
            Some(cell) => cell.object.layout(&cell.text, &layout),
            None => layout.deeper().deeper(),
        };
        let written = cells.iter().take(100).filter_map(Cell::source_is_list);
        Self {
            top: layout,
            cell,
            lists: written
                .fold(None, |first, list| first.or(Some(list)))
                .unwrap_or(true),
        }
    }
}

fn scan(scanner: &mut Scanner<'_>) -> Result<ScannedNotebook, JsonError> {
    let mut scanned = ScannedNotebook::default();
    let text = scanner.text();
    if scanner.next() != Some(b'{') {
        return scanner.fault("a notebook, which begins with {");
    }
    let mut fields = Vec::new();
    let span = scanner.object(|scanner, key| {
        let cells = is(key.of(text), "cells");
        let value = if cells && scanner.next() == Some(b'[') {
            scanned.objects.clear();
            // Most notebooks have fewer cells; a few have many more.
            scanned.objects.reserve(1024);
            let list = scanner.array(|scanner| {
                if scanner.next() != Some(b'{') {
                    return scanner.fault("a cell, which begins with {");
                }
                scanned.objects.push(Object::scan(scanner)?);
                Ok(())
            })?;
            scanned.cells = Some((list, true));
            list
        } else {
            let value = scanner.value()?;
            if cells {
                scanned.cells = Some((value, false));
            }
            value
        };
        fields.push(crate::notebook::json::Field::new(key, value));
        Ok(())
    })?;
    scanned.fields = Object { span, fields };
    scanner.end()?;
    Ok(scanned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::ChangeKind;
    use crate::notebook::DocumentEditError;
    use crate::notebook::NewCell;
    use crate::notebook::new_notebook;

    fn open(text: impl Into<Bytes>) -> Document {
        Document::parse(text).unwrap()
    }

    fn text(document: &Document) -> String {
        String::from_utf8(document.to_bytes()).unwrap()
    }

    fn cell(id: &str, cell_type: &str, source: &str) -> NewCell {
        NewCell {
            id: id.into(),
            cell_type: cell_type.parse().unwrap(),
            source: source.into(),
            metadata: None,
        }
    }

    #[test]
    fn a_new_notebooks_cells_are_written_as_jupyter_writes_them() {
        let empty = new_notebook("python3", "Python 3", "python");
        let mut document = open(empty.clone());
        document
            .insert(0, &cell("a", "code", "x = 'é'\nx"))
            .unwrap();
        document
            .insert(1, &cell("b", "markdown", "# Title"))
            .unwrap();
        document.insert(2, &cell("c", "code", "")).unwrap();
        let cells = " \"cells\": [
  {
   \"cell_type\": \"code\",
   \"execution_count\": null,
   \"id\": \"a\",
   \"metadata\": {},
   \"outputs\": [],
   \"source\": [
    \"x = 'é'\\n\",
    \"x\"
   ]
  },
  {
   \"cell_type\": \"markdown\",
   \"id\": \"b\",
   \"metadata\": {},
   \"source\": [
    \"# Title\"
   ]
  },
  {
   \"cell_type\": \"code\",
   \"execution_count\": null,
   \"id\": \"c\",
   \"metadata\": {},
   \"outputs\": [],
   \"source\": []
  }
 ],";
        assert_eq!(text(&document), empty.replace(" \"cells\": [],", cells));
        for _ in 0..3 {
            document.remove(0).unwrap();
        }
        assert_eq!(text(&document), empty);
    }

    #[test]
    fn cells_keep_the_files_style() {
        let file = "{\"cells\":[{\"cell_type\":\"raw\",\"id\":\"a\",\"metadata\":{},\"source\":\"\\u00e9\"}],\"nbformat\":4,\"nbformat_minor\":5}";
        let mut document = open(file);
        document.insert(0, &cell("b", "raw", "ü\n1")).unwrap();
        let new =
            "[{\"cell_type\":\"raw\",\"id\":\"b\",\"metadata\":{},\"source\":\"\\u00fc\\n1\"},{";
        assert_eq!(text(&document), file.replace("[{", new));
        let file = "{\r\n\t\"cells\": [],\r\n\t\"nbformat\": 4,\r\n\t\"nbformat_minor\": 5\r\n}";
        let mut document = open(file);
        document.insert(0, &cell("b", "raw", "")).unwrap();
        let new = "[\r\n\t\t{\r\n\t\t\t\"cell_type\": \"raw\",\r\n\t\t\t\"id\": \"b\",\r\n\t\t\t\"metadata\": {},\r\n\t\t\t\"source\": []\r\n\t\t}\r\n\t]";
        assert_eq!(text(&document), file.replace("[]", new));
    }

    #[test]
    fn an_edit_writes_no_ids_and_keeps_the_format() {
        for minor in [2, 4, 5] {
            let file = format!(
                "{{\"cells\": [{{\"source\": \"x\"}}, {{\"id\": \"same\"}}, {{\"id\": \"same\"}}, {{\"id\": 5}}], \"nbformat\": 4, \"nbformat_minor\": {minor}}}"
            );
            let mut document = open(file.clone());
            let ids: Vec<_> = document
                .cells()
                .iter()
                .map(|cell| cell.id().to_owned())
                .collect();
            assert_eq!(ids[1], "same");
            let unique: std::collections::HashSet<_> = ids.iter().collect();
            assert_eq!(unique.len(), 4);
            assert_eq!(
                document.set_source(0, "x").unwrap().kind,
                ChangeKind::Nothing
            );
            assert_eq!(text(&document), file);
            document.set_source(0, "y").unwrap();
            let edited = file.replace("\"x\"", "\"y\"");
            assert_eq!(text(&document), edited);
            document.move_cell(0, 3).unwrap();
            document.remove(1).unwrap();
            let rest = "{\"cells\": [{\"id\": \"same\"}, {\"id\": 5}, {\"source\": \"y\"}],";
            assert!(text(&document).starts_with(rest), "{}", text(&document));
            assert_eq!(document.nbformat(), (4, minor));
            // A new cell has an id if the format has ids.
            document.insert(0, &cell("new", "raw", "")).unwrap();
            assert_eq!(text(&document).contains("\"id\": \"new\""), minor == 5);
            assert_eq!(document.cells()[0].id(), "new");
            assert_eq!(document.cells()[3].id(), ids[0]);
        }
    }

    #[test]
    fn format_3_is_read_only() {
        let file = r#"{"worksheets": [{"cells": [{"cell_type": "heading", "source": ["T"]}]}, {}, {"cells": [
            {"cell_type": "code", "input": "1 + 1", "prompt_number": 7, "outputs": [{"output_type": "pyout", "text": "2"}]}]}],
            "metadata": {"name": "old"}, "nbformat": 3, "nbformat_minor": 0}"#;
        let mut document = open(file);
        assert_eq!(document.nbformat(), (3, 0));
        assert_eq!(document.metadata_string(&["name"]).as_deref(), Some("old"));
        let cells = document.cells().iter();
        let cells: Vec<_> = cells
            .map(|cell| {
                (
                    cell.source().into_owned(),
                    cell.execution_count(),
                    cell.outputs_line(80),
                )
            })
            .collect();
        let want = [
            ("T".into(), None, String::new()),
            ("1 + 1".into(), Some(7), "2".into()),
        ];
        assert_eq!(cells, want);
        assert_eq!(document.remove(0), Err(DocumentEditError::ReadOnly(3)));
        assert_eq!(
            document.set_notebook_metadata(&["a"], &Json::from(1)),
            Err(DocumentEditError::ReadOnly(3))
        );
        assert_eq!(text(&document), file);
        assert!(open("{\"cells\": [], \"nbformat\": 5}").is_read_only());
        assert!(open("{\"nbformat\": 3}").is_read_only());
        assert!(Document::parse("{\"worksheets\": [1], \"nbformat\": 3}").is_err());
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        let file = "{\"cells\": [{}], \"cells\": [{\"source\": \"a\", \"source\": \"b\", \"id\": \"x\"}], \"nbformat_minor\": 5}";
        let mut document = open(file);
        assert_eq!(document.cells()[0].source(), "b");
        document.set_source(0, "c").unwrap();
        assert_eq!(text(&document), file.replace("\"b\"", "\"c\""));
        assert!(Document::parse("{\"cells\": [], \"cells\": 3}").is_err());
    }

    #[test]
    fn depth_and_number_cost_neither_stack_nor_time() {
        let deep = format!("{}1{}", "[{\"a\":".repeat(100_000), "}]".repeat(100_000));
        let cells = vec!["{}"; 20_000].join(",");
        let file = format!(
            "{{\"cells\":[{cells},{{\"metadata\":{{\"d\":{deep}}},\"source\":[]}}],\"metadata\":{{\"d\":{deep}}}}}"
        );
        let mut document = open(file.clone());
        assert_eq!(text(&document), file);
        document.revision();
        let last = document.cells().len() - 1;
        document.set_source(last, "x").unwrap();
        document.set_metadata(last, &["a"], &Json::from(1)).unwrap();
        document
            .set_notebook_metadata(&["a"], &Json::parse(&deep).unwrap())
            .unwrap();
        assert_eq!(open(document.to_bytes()).cells().len(), last + 1);
    }

    #[test]
    fn half_a_surrogate_pair_outlives_an_edit_beside_it() {
        let file =
            "{\"cells\": [{\"id\": \"a\", \"source\": \"x \\ud83d y\"}], \"nbformat_minor\": 5}";
        let mut document = open(file);
        document.replace(0, "y", "z", false).unwrap();
        assert_eq!(text(&document), file.replace('y', "z"));
        document.replace(0, "x", "é", false).unwrap();
        assert!(text(&document).contains("\"\\u00e9 \\ud83d z\""));
    }
}

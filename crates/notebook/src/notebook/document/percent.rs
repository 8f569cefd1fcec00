//! Cells as plain text in the percent format of Jupytext: a line `# %%` begins a code cell, and
//! `# %% [markdown]` a text cell, whose lines are comments.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::cell::{Cell, CellType};
use crate::notebook::json::Json;

/// A cell of a plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainCell {
    /// Its id, if the text has one.
    pub id: Option<String>,
    /// Its type.
    pub cell_type: CellType,
    /// Its source.
    pub source: String,
    /// Its metadata, an object; none if the text has none.
    pub metadata: Option<Json>,
}

/// Why a plain text is not a list of cells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct PlainTextError {
    /// The line, from 1.
    pub line: usize,
    /// The fault.
    pub reason: String,
}

/// Reads cells from a plain text. Text before the first marker is a code cell.
///
/// # Errors
/// A marker has an unknown type or a value that is not JSON.
pub fn read_percent(text: &str) -> Result<Vec<PlainCell>, PlainTextError> {
    let mut cells: Vec<(PlainCell, Vec<&str>)> = Vec::new();
    let lines = text.lines().enumerate().skip(header_lines(text));
    for (at, line) in lines {
        if let Some(rest) = marker(line) {
            let cell = read_marker(rest).map_err(|reason| PlainTextError {
                line: at + 1,
                reason,
            })?;
            cells.push((cell, Vec::new()));
        } else if let Some((_, lines)) = cells.last_mut() {
            lines.push(line);
        } else if !line.trim().is_empty() {
            cells.push((PlainCell::code(), vec![line]));
        }
    }
    let cells = cells.into_iter().map(|(cell, lines)| PlainCell {
        source: source(&lines, cell.cell_type),
        ..cell
    });
    Ok(cells.collect())
}

/// Writes cells as plain text, each with its id.
pub fn write_percent<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> String {
    let mut text = String::new();
    for cell in cells {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str("# %%");
        if cell.cell_type() != CellType::Code {
            let _ = write!(text, " [{}]", cell.cell_type());
        }
        let _ = write!(text, " id={}", Value::from(cell.id()));
        // Jupyter writes tags over several lines, and a marker has one.
        let tags = cell.metadata(&["tags"]);
        let tags = tags.and_then(|tags| serde_json::from_slice::<Value>(tags.bytes()).ok());
        if let Some(tags) = tags {
            let _ = write!(text, " tags={tags}");
        }
        text.push('\n');
        let source = cell.source();
        match cell.cell_type() {
            CellType::Code if source.is_empty() => {}
            CellType::Code => {
                let _ = writeln!(text, "{source}");
            }
            _ => source.split('\n').for_each(|line| {
                let space = if line.is_empty() { "" } else { " " };
                let _ = writeln!(text, "#{space}{line}");
            }),
        }
    }
    text
}

impl PlainCell {
    fn code() -> Self {
        Self {
            id: None,
            cell_type: CellType::Code,
            source: String::new(),
            metadata: None,
        }
    }
}

/// Returns how many lines Jupytext's own header has: lines of comments between two `# ---`.
fn header_lines(text: &str) -> usize {
    let mut lines = text.lines();
    if lines.next() != Some("# ---") {
        return 0;
    }
    lines
        .position(|line| line == "# ---")
        .map_or(0, |at| at + 2)
}

/// Returns what follows the marker of a line that begins a cell.
fn marker(line: &str) -> Option<&str> {
    let rest = line.strip_prefix('#')?.trim_start_matches(' ');
    let rest = rest.strip_prefix("%%")?;
    let ends = rest.is_empty() || rest.starts_with([' ', '[']);
    ends.then_some(rest)
}

fn read_marker(rest: &str) -> Result<PlainCell, String> {
    let mut cell = PlainCell::code();
    let (mut metadata, mut title) = (Map::new(), Vec::new());
    let mut rest = rest.trim();
    while !rest.is_empty() {
        if let Some((name, after)) = rest.strip_prefix('[').and_then(|it| it.split_once(']')) {
            cell.cell_type = match name {
                "md" => CellType::Markdown,
                name => name.parse().map_err(|_| {
                    format!("[{name}] is no type of cell: [markdown], [raw], or none for code")
                })?,
            };
            rest = after.trim_start();
            continue;
        }
        let word = rest.split_whitespace().next().unwrap_or(rest);
        let Some((key, _)) = word.split_once('=') else {
            title.push(word);
            rest = rest.get(word.len()..).unwrap_or_default().trim_start();
            continue;
        };
        let after = rest.get(key.len() + 1..).unwrap_or_default();
        let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
        let value = match values.next() {
            Some(Ok(value)) => value,
            _ => return Err(format!("{key}= needs a JSON value, as in id=\"3f2c\"")),
        };
        rest = after
            .get(values.byte_offset()..)
            .unwrap_or_default()
            .trim_start();
        match (key, value) {
            ("id", Value::String(id)) => cell.id = Some(id),
            (key, value) => drop(metadata.insert(key.to_owned(), value)),
        }
    }
    if !title.is_empty() {
        metadata.insert("title".to_owned(), Value::from(title.join(" ")));
    }
    if !metadata.is_empty() {
        let text = Value::Object(metadata).to_string();
        cell.metadata = Json::parse(&text).ok();
    }
    Ok(cell)
}

/// Returns a cell's source from its lines, without empty lines around it and without the comment signs of a
/// text cell.
fn source(lines: &[&str], cell_type: CellType) -> String {
    let is_empty = |line: &&str| line.trim().is_empty();
    let from = lines.iter().position(|line| !is_empty(line));
    let to = lines.iter().rposition(|line| !is_empty(line));
    let lines = match (from, to) {
        (Some(from), Some(to)) => lines.get(from..=to).unwrap_or_default(),
        _ => &[],
    };
    let is_comment = |line: &&str| is_empty(line) || line.starts_with('#');
    if cell_type == CellType::Code || !lines.iter().all(is_comment) {
        return lines.join("\n");
    }
    let bare = |line: &&str| {
        let line = line.strip_prefix('#').unwrap_or(line);
        line.strip_prefix(' ').unwrap_or(line).to_owned()
    };
    lines.iter().map(bare).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::Document;

    fn read(text: &str) -> Vec<(CellType, String)> {
        let cells = read_percent(text).unwrap().into_iter();
        cells.map(|cell| (cell.cell_type, cell.source)).collect()
    }

    #[test]
    fn markers_begin_cells_and_text_cells_are_comments() {
        use CellType::{Code, Markdown, Raw};
        let text = "x = 0\n\n# %%\n\nx = 1\n# a comment\n\ny = 2\n\n# %% [markdown]\n# # Title\n#\n# text\n\
                    #%%[raw]\nplain # text\n# %% [md]\n# %%\n";
        let want = [
            (Code, "x = 0"),
            (Code, "x = 1\n# a comment\n\ny = 2"),
            (Markdown, "# Title\n\ntext"),
            (Raw, "plain # text"),
            (Markdown, ""),
            (Code, ""),
        ];
        assert_eq!(read(text), want.map(|(kind, text)| (kind, text.to_owned())));
        assert_eq!(
            read("# %% [markdown]\n# Title\nnot a comment")[0].1,
            "# Title\nnot a comment"
        );
        assert_eq!(
            read("# ---\n# jupyter: x\n# ---\n\n# %%\n1"),
            [(Code, "1".to_owned())]
        );
        assert_eq!(read("# %%timeit\n1"), [(Code, "# %%timeit\n1".to_owned())]);
        assert_eq!(read("\n \n"), []);
    }

    #[test]
    fn a_marker_has_an_id_metadata_and_a_title() {
        let [cell] =
            &read_percent(r#"# %% The end [raw] id="ab-1" tags=["a b", "c"] n=1"#).unwrap()[..]
        else {
            panic!()
        };
        assert_eq!(
            (cell.id.as_deref(), cell.cell_type),
            (Some("ab-1"), CellType::Raw)
        );
        let metadata: Value =
            serde_json::from_str(&cell.metadata.as_ref().unwrap().text()).unwrap();
        let want = serde_json::json!({"n": 1, "tags": ["a b", "c"], "title": "The end"});
        assert_eq!(metadata, want);
        for (text, line, word) in [
            ("# %% [markdwon]", 1, "[markdwon]"),
            ("1\n# %% id=3f2c", 2, "id="),
            ("# %% tags=", 1, "tags="),
        ] {
            let error = read_percent(text).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.reason.contains(word), "{error}");
        }
    }

    #[test]
    fn a_marker_is_one_line_however_the_file_writes_the_tags() {
        let text = "{\"cells\": [{\"cell_type\": \"code\", \"id\": \"a\", \"metadata\": {\n  \"tags\": [\n   \"x y\",\n   \"z\"\n  ]\n }, \"source\": \"1\"}], \"nbformat_minor\": 5}";
        let document = Document::parse(text).unwrap();
        let written = write_percent(document.cells());
        assert_eq!(written, "# %% id=\"a\" tags=[\"x y\",\"z\"]\n1\n");
        let again = read_percent(&written).unwrap();
        let tags = again[0].metadata.as_ref().unwrap().text().into_owned();
        assert_eq!(tags, r#"{"tags":["x y","z"]}"#);
    }

    #[test]
    fn written_percent_text_is_read_unchanged() {
        let text = r##"{"cells": [
            {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# Title\n", "\n", "text"]},
            {"cell_type": "code", "id": "b\"c", "metadata": {"tags": ["x"]}, "execution_count": 1,
             "outputs": [], "source": "x = 1\n\n\n# y"},
            {"cell_type": "raw", "id": "d", "metadata": {}, "source": "r"},
            {"cell_type": "code", "id": "e", "metadata": {}, "execution_count": null, "outputs": [], "source": []}
        ], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}"##;
        let document = Document::parse(text.as_bytes().to_vec()).unwrap();
        let written = write_percent(document.cells());
        assert!(
            written.starts_with(
                "# %% [markdown] id=\"a\"\n# # Title\n#\n# text\n\n# %% id=\"b\\\"c\" tags=["
            ),
            "{written}"
        );
        let again = read_percent(&written).unwrap();
        assert_eq!(again.len(), document.cells().len());
        for (plain, cell) in again.iter().zip(document.cells()) {
            assert_eq!(plain.id.as_deref(), Some(cell.id()));
            assert_eq!(plain.cell_type, cell.cell_type());
            assert_eq!(plain.source, cell.source());
        }
    }
}

//! Cells as plain text in the percent format of Jupytext: a line `# %%` begins a code cell, and
//! `# %% [markdown]` a text cell, whose lines are comments.
//!
//! What [`write_percent`] writes, [`read_percent`] reads as the same cells. A source that Jupytext would read as something
//! else ends with a line of its own, which the marker names: `# %% id="3f2c" end="# end"`. What other dialects mean is
//! refused where it is not read as Jupytext reads it.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::cell::{Cell, CellType};
use super::dialect;
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
/// A marker has an unknown type or a value that is not JSON, or the text is in a dialect that is not read.
pub fn read_percent(text: &str) -> Result<Vec<PlainCell>, PlainTextError> {
    let all: Vec<&str> = text.split('\n').collect();
    let refuse = |at: usize, reason: String| PlainTextError {
        line: at + 1,
        reason,
    };
    let is_jupytext = dialect::header(&all).map_err(|(at, reason)| refuse(at, reason))?;
    let mut at = is_jupytext.unwrap_or_else(|| dialect::lines_of_a_script(&all));
    let is_marked = all.iter().any(|line| marker(line).is_some());
    let mut cells = Vec::new();
    while at < all.len() {
        let mut cell = PlainCell::code();
        let mut end = None;
        let begins = all.get(at).and_then(|line| marker(line));
        if let Some(rest) = begins {
            (cell, end) = read_marker(rest).map_err(|reason| refuse(at, reason))?;
            at += 1;
        }
        let rest = all.get(at..).unwrap_or_default();
        if let Some(end) = end {
            let length = rest
                .iter()
                .position(|line| line.trim_end_matches('\r') == end);
            let Some(length) = length else {
                return Err(refuse(at - 1, format!("no line {end:?} ends this cell")));
            };
            // An editor may have given each line a carriage return.
            let is_crlf = all.get(at - 1).is_some_and(|line| line.ends_with('\r'));
            let line = |line: &&str| match is_crlf {
                true => line.strip_suffix('\r').unwrap_or(line).to_owned(),
                false => (*line).to_owned(),
            };
            let lines: Vec<_> = rest.iter().take(length).map(line).collect();
            cell.source = match cell.cell_type {
                CellType::Code => lines.join("\n"),
                _ => uncommented(&lines),
            };
            cells.push(cell);
            at += length + 1;
            while all.get(at).is_some_and(|line| line.trim().is_empty()) {
                at += 1;
            }
            if all.get(at).is_some_and(|line| marker(line).is_none()) {
                return Err(refuse(at, format!("a marker has to follow {end:?}")));
            }
            continue;
        }
        let length = rest.iter().position(|line| marker(line).is_some());
        let lines: Vec<_> = rest.iter().take(length.unwrap_or(rest.len())).collect();
        let lines: Vec<_> = lines
            .iter()
            .map(|line| line.trim_end_matches('\r'))
            .collect();
        let dialect = dialect::Dialect {
            is_code: cell.cell_type == CellType::Code,
            is_jupytext: is_jupytext.is_some(),
            is_marked,
        };
        dialect
            .check(&lines, length.is_some())
            .map_err(|(line, reason)| refuse(at + line, reason))?;
        cell.source = source(&lines, cell.cell_type);
        if begins.is_some() || !cell.source.is_empty() {
            cells.push(cell);
        }
        at += lines.len();
    }
    Ok(cells)
}

/// Writes cells as plain text, each with its id.
pub fn write_percent<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> String {
    let mut text = String::new();
    for cell in cells {
        if !text.is_empty() {
            text.push('\n');
        }
        let mut marker = "# %%".to_owned();
        if cell.cell_type() != CellType::Code {
            let _ = write!(marker, " [{}]", cell.cell_type());
        }
        let _ = write!(marker, " id={}", Value::from(cell.id()));
        // Jupyter writes tags over several lines, and a marker has one.
        let tags = cell.metadata(&["tags"]);
        let tags = tags.and_then(|tags| serde_json::from_slice::<Value>(tags.bytes()).ok());
        if let Some(tags) = tags {
            let _ = write!(marker, " tags={tags}");
        }
        let source = cell.source();
        let mut body = String::new();
        match cell.cell_type() {
            CellType::Code if source.is_empty() => {}
            CellType::Code => {
                let _ = writeln!(body, "{source}");
            }
            _ => source.split('\n').for_each(|line| {
                let space = if line.is_empty() { "" } else { " " };
                let _ = writeln!(body, "#{space}{line}");
            }),
        }
        // Read with a cell behind it, as it may stand in the text.
        let again = read_percent(&format!("{marker}\n{body}\n# %%"));
        let is_read = again.is_ok_and(|again| match again.as_slice() {
            [again, _] => again.source == source,
            _ => false,
        });
        if is_read {
            let _ = write!(text, "{marker}\n{body}");
        } else {
            let end = free_line(&body);
            let body = if body.is_empty() { "\n" } else { &body };
            let _ = writeln!(
                text,
                "{marker} end={}\n{body}{end}",
                Value::from(end.as_str())
            );
        }
    }
    text
}

/// Returns a comment that no line of a text is.
fn free_line(text: &str) -> String {
    let is_free = |end: &String| text.lines().all(|line| line != end);
    let ends = (2..).map(|n: usize| format!("# end {n}"));
    let mut ends = std::iter::once("# end".to_owned()).chain(ends);
    ends.find(is_free).unwrap_or_default()
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

/// Returns what follows the marker of a line that begins a cell.
fn marker(line: &str) -> Option<&str> {
    let rest = line.strip_prefix('#')?.trim_start_matches(' ');
    let rest = rest.strip_prefix("%%")?;
    let ends = rest.trim_end().is_empty() || rest.starts_with([' ', '\t', '[']);
    ends.then_some(rest)
}

/// Reads what follows the marker of a cell: the cell without its source, and the line that ends it.
fn read_marker(rest: &str) -> Result<(PlainCell, Option<String>), String> {
    let (mut cell, mut end) = (PlainCell::code(), None);
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
        if rest.starts_with('{') {
            let Ok(Value::Object(more)) = serde_json::from_str(rest) else {
                return Err(format!("{rest} is no JSON object"));
            };
            metadata.extend(more);
            break;
        }
        let word = rest.split_whitespace().next().unwrap_or(rest);
        let Some((key, _)) = word.split_once('=') else {
            if !metadata.is_empty()
                || cell.id.is_some()
                || word.starts_with('.')
                || word.contains('{')
            {
                return Err(format!(
                    "{word} is neither a title, which comes first, nor a key with a value"
                ));
            }
            title.push(word);
            rest = rest.get(word.len()..).unwrap_or_default().trim_start();
            continue;
        };
        if key.is_empty() {
            return Err("a title has no =, and a key stands directly before it".to_owned());
        }
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
            ("end", Value::String(line)) => end = Some(line),
            (key, value) => drop(metadata.insert(key.to_owned(), value)),
        }
    }
    if !title.is_empty() {
        metadata.insert("title".to_owned(), Value::from(title.join(" ")));
    }
    if let Some(key) = dialect::KEYS
        .into_iter()
        .find(|key| metadata.contains_key(*key))
    {
        return Err(format!("{key} changes what the lines of the cell mean"));
    }
    if !metadata.is_empty() {
        let text = Value::Object(metadata).to_string();
        cell.metadata = Json::parse(&text).ok();
    }
    Ok((cell, end))
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
    if cell_type == CellType::Code || !lines.iter().any(|line| line.starts_with('#')) {
        return lines.join("\n");
    }
    uncommented(lines)
}

/// Returns lines of a text cell without their comment signs.
fn uncommented(lines: &[impl AsRef<str>]) -> String {
    let bare = |line| {
        let line: &str = AsRef::as_ref(line);
        let line = line.strip_prefix('#').unwrap_or(line);
        line.strip_prefix(' ').unwrap_or(line)
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
        assert_eq!(read("# %% [markdown]\nplain\ntext")[0].1, "plain\ntext");
        assert_eq!(
            read("# ---\n# jupyter:\n#   x: 1\n# ---\n\n# %%\n1"),
            [(Code, "1".to_owned())]
        );
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

    /// Writes and reads notebooks of sources; returns those that are read as something else.
    fn changed(notebooks: &[Vec<(&str, String)>]) -> Vec<String> {
        let mut changed = Vec::new();
        for cells in notebooks {
            let cell = |(nth, (kind, source)): (usize, &(&str, String))| serde_json::json!({"cell_type": kind, "id": format!("k{nth}"), "metadata": {}, "source": source});
            let cells: Vec<_> = cells.iter().enumerate().map(cell).collect();
            let text = serde_json::json!({"cells": cells, "nbformat": 4, "nbformat_minor": 5});
            let document = Document::parse(text.to_string()).unwrap();
            let written = write_percent(document.cells());
            // A text file ends with a newline, which `nb insert` leaves out.
            let again = read_percent(written.strip_suffix('\n').unwrap_or(&written));
            let again = again.map(|cells| {
                let one = |cell: PlainCell| (cell.id, cell.cell_type, cell.source);
                cells.into_iter().map(one).collect::<Vec<_>>()
            });
            let cell = |cell: &Cell| {
                (
                    Some(cell.id().to_owned()),
                    cell.cell_type(),
                    cell.source().to_string(),
                )
            };
            if again != Ok(document.cells().iter().map(cell).collect()) {
                changed.push(format!("{written}\n-> {again:?}"));
            }
        }
        changed
    }

    #[test]
    fn any_cells_are_read_as_they_were_written() {
        const LINES: [&str; 36] = [
            "",
            "",
            " ",
            "x = 1",
            "# a comment",
            "# %%",
            "# %% [markdown]",
            "#%%",
            "%% note",
            "%% == States ==",
            "    # %%",
            "\"\"\"",
            "D = \"\"\"",
            "'''",
            "it's",
            "```mermaid",
            "```",
            "~~~",
            "%%bash",
            "# %matplotlib inline",
            "# !ls",
            "!ls",
            "x\r",
            "\r",
            "\u{feff}",
            "# end",
            "# end 2",
            "# ---",
            "#",
            "# ",
            "#text",
            "# In[3]:",
            "# +",
            "\u{2028}é",
            "\\",
            "# %%% x",
        ];
        let mut state = 7_u64;
        let mut below = |end: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % end
        };
        let mut notebook = || {
            let cell = |below: &mut dyn FnMut(usize) -> usize| {
                let kind = ["code", "code", "markdown", "raw"][below(4)];
                let lines: Vec<_> = (0..below(6)).map(|_| LINES[below(LINES.len())]).collect();
                (kind, lines.join("\n"))
            };
            (0..=below(5)).map(|_| cell(&mut below)).collect::<Vec<_>>()
        };
        let notebooks: Vec<_> = (0..500).map(|_| notebook()).collect();
        assert_eq!(changed(&notebooks), Vec::<String>::new());
    }

    #[test]
    fn a_cell_that_has_the_text_of_a_marker_names_the_line_that_ends_it() {
        let text = r##"{"cells": [{"cell_type": "code", "id": "a", "metadata": {}, "source": "D = '''\n# %%\n# end\n'''"}]}"##;
        let written = write_percent(Document::parse(text).unwrap().cells());
        let source = "D = '''\n# %%\n# end\n'''";
        assert_eq!(
            written,
            format!("# %% id=\"a\" end=\"# end 2\"\n{source}\n# end 2\n")
        );
        let crlf = read_percent(&written.replace('\n', "\r\n")).unwrap();
        assert_eq!(crlf[0].source, source);
        for (text, line) in [
            ("# %% end=\"# end\"\n1", 1),
            ("# %% end=\"# end\"\n1\n# end\n2", 4),
        ] {
            assert_eq!(read_percent(text).unwrap_err().line, line, "{text}");
        }
    }

    #[test]
    fn what_another_dialect_means_is_read_as_jupytext_reads_it_or_refused() {
        const HEADER: &str =
            "# ---\n# jupyter:\n#   jupytext:\n#       format_name: percent\n# ---\n\n";
        for text in [
            // The languages of cells, and magics.
            "# %% language=\"bash\"\n# ls",
            "# %% [markdown] active=\"ipynb\"\nx",
            "# %%\n# %matplotlib inline\nx = 1",
            "# %%\nif x:\n    # !ls\n    pass",
            "# %%\n# files = !ls",
            "# %%\n# %%timeit\nf()",
            &format!("{HEADER}# %%\n# ls -l"),
            &format!("{HEADER}# %%\n# len?"),
            // Text cells between quotes.
            "# %% [markdown]\n\"\"\"\n# Title\n\"\"\"",
            "# %% [markdown]\nr'''text'''",
            "# %% [markdown]\n# Title\nnot a comment",
            // Titles, and words behind keys.
            "# %% == States ==\n1",
            "# %% loss = 3\n1",
            "# %% a={b}\n1",
            "# %% x {y}\n1",
            "# %% tags=[\"a\"] slow\n1",
            "# %% .hide\n1",
            // Other markers.
            "# %%\n1\n# %%% part\n2",
            "# %%\n1\n  # %%\n2",
            "# %%\n1\n# <codecell>\n2",
            "# In[3]:\n\n2",
            "// %%\nlet x = 1;",
            "-- %%\nselect 1",
            "%% [markdown]\ntext",
            "# +\nx = 1\n# -",
            "# + tags=[\"a\"]\nx = 1",
            "```python\nx = 1\n```",
            // Markers within a string and a fenced block.
            "# %%\nx = \"\"\"\n# %%\n\"\"\"",
            "# %% [markdown]\n# ```mermaid\n# %% note\n# ```",
            // Headers.
            "# ---\n# jupyter:\n#   jupytext:\n#       format_name: light\n# ---\n# %%\n1",
            "# ---\n# title: A\n# jupyter:\n#   x: 1\n# ---\n# %%\n1",
        ] {
            let found = read_percent(text);
            assert!(found.is_err(), "{text}\n-> {found:?}");
        }
        let shebang = format!("#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\n{HEADER}# %%\n1");
        assert_eq!(read(&shebang), [(CellType::Code, "1".to_owned())]);
        let kaggle =
            "# %% [code] {\"jupyter\": {\"outputs_hidden\": true}}\nx = 'it # is' # it's\n";
        let [cell] = &read_percent(kaggle).unwrap()[..] else {
            panic!()
        };
        let metadata = cell.metadata.as_ref().unwrap().text();
        assert_eq!(metadata, r#"{"jupyter":{"outputs_hidden":true}}"#);
        assert_eq!(cell.source, "x = 'it # is' # it's");
    }
}

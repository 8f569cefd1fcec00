//! `nb cells`: the cells of a notebook, one line each.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::fault::Fault;
use super::which::{Which, places};
use super::{Context, columns, print};
use crate::notebook::{CellType, Document, Revision};
use crate::ops::page::Page;
use crate::ops::running::running;

/// How much of a cell's first line is shown where no terminal's width says it.
const FIRST_LINE: usize = 80;

/// How much of its outputs is.
const OUTPUTS: usize = 60;

/// List the cells, one line each
///
/// A line has the index, the id and the revision (ID@REV; as much of the id as other commands need),
/// the type, the execution count, the beginning of the source, and what the outputs say in short.
/// After the first line stands the number of lines where there are more. --json has the whole ids.
#[derive(Args, Debug)]
#[command(override_usage = "nb cells [OPTIONS] [NOTEBOOK] [CELL]...", after_help = EXAMPLES)]
pub(super) struct Cells {
    /// The notebook, and the cells if not all: an index (3, -1), an id, In[12], a range (2..5, 2..=5)
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    words: Vec<String>,
    #[command(flatten)]
    which: Which,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  nb cells train.ipynb
  nb cells train.ipynb 10..20
  nb cells --json | jq -r '.cells[] | select(.state == \"error\") | .id'";

/// What the list says of a cell.
#[derive(Debug, Serialize)]
struct Row<'a> {
    index: usize,
    id: &'a str,
    #[serde(skip)]
    short: &'a str,
    #[serde(rename = "type")]
    cell_type: CellType,
    execution_count: Option<u64>,
    /// `running`, or `error` where its outputs have one.
    state: Option<&'static str>,
    first_line: String,
    lines: usize,
    outputs: usize,
    outputs_in_short: String,
    revision: Revision,
}

impl Cells {
    /// Runs the command.
    pub(super) async fn run(mut self, context: &Context) -> Result<ExitCode, Fault> {
        let page = context.page(&mut self.words, "nb cells").await?;
        let selectors = self.which.selectors(&self.words)?;
        let document = page.read()?;
        let places = match selectors.as_slice() {
            [] => (0..document.cells().len()).collect(),
            selectors => places(&document, selectors)?,
        };
        let width = columns::of_terminal().filter(|_| !self.json);
        let rows = rows(&page, &document, &places, width);
        let _ = if self.json {
            let mut answer = about(&page, &document);
            answer["cells"] = json!(rows);
            context.answer(answer)
        } else {
            let mut lines = vec![head(&page, &document, rows.len())];
            lines.extend(texts(&rows, width));
            print::line(&lines.join("\n"))
        };
        Ok(ExitCode::SUCCESS)
    }
}

fn rows<'a>(
    page: &Page,
    document: &'a Document,
    places: &[usize],
    width: Option<usize>,
) -> Vec<Row<'a>> {
    let short = document.short_ids();
    let runs = running(page).and_then(|running| running.cell);
    // A wide terminal shows more; that a narrow one shows less is done to the whole line.
    let more = |least: usize| width.map_or(least, |width| width.max(least));
    let (first_line, outputs) = (more(FIRST_LINE), more(OUTPUTS));
    let rows = places.iter().filter_map(|index| {
        let cell = document.cells().get(*index)?;
        let glance = cell.glance(outputs);
        let state = match runs.as_deref() {
            Some(id) if id == cell.id() => Some("running"),
            _ => glance.failed.then_some("error"),
        };
        Some(Row {
            index: *index,
            id: cell.id(),
            short: short.get(*index)?,
            cell_type: cell.cell_type(),
            execution_count: cell.execution_count(),
            state,
            first_line: cell.first_line(first_line),
            lines: cell.source().lines().count(),
            outputs: glance.count,
            outputs_in_short: glance.text,
            revision: cell.revision(),
        })
    });
    rows.collect()
}

/// Returns the rows as lines of at most `width` columns.
fn texts(rows: &[Row<'_>], width: Option<usize>) -> Vec<String> {
    let columns: Vec<_> = rows.iter().map(Row::columns).collect();
    let lines = columns::lines(&columns).into_iter().zip(rows);
    let lines = lines.map(|(mut line, row)| {
        let room = width.map(|width| width.saturating_sub(line.width()));
        line.push_str(&row.says(room));
        line.truncate(line.trim_end().len());
        match width {
            Some(width) => columns::cut(&line, width),
            None => line,
        }
    });
    lines.collect()
}

impl Row<'_> {
    fn columns(&self) -> [String; 5] {
        let count = match (self.cell_type, self.execution_count) {
            (_, Some(count)) => format!("In[{count}]"),
            (CellType::Code, None) => "In[ ]".to_owned(),
            _ => String::new(),
        };
        [
            self.index.to_string(),
            format!("{}@{}", self.short, self.revision),
            self.cell_type.to_string(),
            count,
            self.state.unwrap_or_default().to_owned(),
        ]
    }

    /// Returns what its source and its outputs say; where there is too little room for both, the
    /// outputs have a third of it.
    fn says(&self, room: Option<usize>) -> String {
        let lines = match self.lines {
            0 | 1 => String::new(),
            lines => format!(" ({lines} lines)"),
        };
        let arrow = match self.outputs_in_short.as_str() {
            "" => String::new(),
            outputs => format!(" → {outputs}"),
        };
        let room =
            room.map(|room| room.saturating_sub(lines.width() + arrow.width().min(room / 3)));
        let first_line = match room {
            Some(room) => columns::cut(&self.first_line, room),
            None => self.first_line.clone(),
        };
        format!("{first_line}{lines}{arrow}")
    }
}

/// Returns what an answer in JSON says of the notebook itself.
pub(super) fn about(page: &Page, document: &Document) -> Value {
    let (major, minor) = document.nbformat();
    json!({
        "notebook": page.key,
        "path": page.real,
        "revision": document.revision(),
        "nbformat": [major, minor],
        "read_only": document.is_read_only(),
        "kernelspec": document.metadata_string(&["kernelspec", "name"]),
        "cell_count": document.cells().len(),
    })
}

fn head(page: &Page, document: &Document, shown: usize) -> String {
    let count = document.cells().len();
    let cells = match (count, shown) {
        (1, _) => "1 cell".to_owned(),
        (count, shown) if shown < count => format!("{shown} of {count} cells"),
        (count, _) => format!("{count} cells"),
    };
    let mut parts = vec![cells, format!("revision {}", document.revision())];
    parts.extend(document.metadata_string(&["kernelspec", "name"]));
    if document.is_read_only() {
        parts.push(format!("format {}, read only", document.nbformat().0));
    }
    format!("{}: {}", page.key, parts.join(" · "))
}

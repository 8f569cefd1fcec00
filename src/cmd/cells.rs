//! `nb cells`: the cells of a notebook, one line each.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::columns::{self, Widths};
use super::fault::{Fault, Kind};
use super::which::{Which, places};
use super::{Context, print};
use crate::notebook::{Cell, CellType, Change, Document, Revision, first_line};
use crate::ops::editing::history::{self, Step, steps};
use crate::ops::editing::page::Page;
use crate::ops::editing::running::running;
use crate::ops::editing::view;
use crate::ops::executions::stale::stale;

/// How much of a cell's first line is shown where no terminal's width says it.
const FIRST_LINE: usize = 80;

/// How much of its outputs is.
const OUTPUTS: usize = 60;

/// How much is printed at a time, about: the whole of a long list is never in memory.
const PART: usize = 16 << 10;

/// List the cells, one line each
///
/// A line has the index, the id and the revision (ID@REV; as much of the id as other commands need),
/// the type, the execution count, the beginning of the source, and what the outputs say in short.
/// After the first line stands the number of lines where there are more. `running`, `error` and `stale`
/// stand after the count: stale outputs are of an earlier source of the cell. --json has the whole ids.
#[derive(Args, Debug)]
#[command(override_usage = "nb cells [OPTIONS] [NOTEBOOK] [CELL]...", after_help = EXAMPLES)]
pub(super) struct Cells {
    /// The notebook, and the cells if not all: an index (3, -1), an id, In[12], a range (2..5, 2..=5)
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    words: Vec<String>,
    #[command(flatten)]
    which: Which,
    /// Only the cells that are new, edited, moved or removed since this revision of the notebook;
    /// running a cell is no change
    #[arg(long, value_name = "REV", conflicts_with_all = ["ids", "indexes"])]
    since: Option<Revision>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  nb cells train.ipynb
  nb cells train.ipynb 10..20
  nb cells --since 8c1f09a2b3
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
    /// `running`; `stale` where its outputs are of an earlier source; `error` where they have one.
    state: Option<&'static str>,
    first_line: String,
    /// Whether that is all of it.
    #[serde(skip)]
    is_whole: bool,
    lines: usize,
    outputs: usize,
    outputs_in_short: String,
    revision: Revision,
    /// What was done to it since the revision that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<Change>,
}

/// What the list says of a cell that is there no more.
#[derive(Debug, Serialize)]
struct Gone {
    id: String,
    /// Where it stood.
    index: usize,
    revision: Option<Revision>,
    /// Where its source is kept.
    first_line: Option<String>,
}

impl Cells {
    /// Runs the command.
    pub(super) async fn run(mut self, context: &Context) -> Result<ExitCode, Fault> {
        let page = context.page(&mut self.words, "nb cells").await?;
        let selectors = self.which.selectors(&self.words)?;
        let view = view::open(&page, &context.by)?;
        let document = &view.document;
        let since = match self.since {
            Some(revision) => Some(since(&page, document, revision, selectors.is_empty())?),
            None => None,
        };
        let places = match (&since, selectors.as_slice()) {
            (Some(steps), _) => kept(steps),
            (None, []) => (0..document.cells().len()).collect(),
            (None, selectors) => places(document, selectors)?,
        };
        let width = columns::of_terminal().filter(|_| !self.json);
        let mut rows = rows(&page, document, &places, width);
        let steps = since.as_deref().unwrap_or_default();
        for row in &mut rows {
            let own = steps.iter().filter(|step| step.cell == row.id);
            row.changes = own.map(|step| step.what).collect();
        }
        let gone = gone(&page, steps, width.unwrap_or(FIRST_LINE));
        let _ = if self.json {
            let mut answer = about(&page, document);
            answer["cells"] = json!(rows);
            if since.is_some() {
                answer["removed"] = json!(gone);
            }
            context.answer(answer)
        } else {
            let mut text = head(&page, document, rows.len(), self.since);
            text.push('\n');
            let mut done = Ok(());
            say(&rows, width, |line| {
                text.push_str(line);
                text.push('\n');
                if text.len() >= PART && done.is_ok() {
                    done = print::raw(text.as_bytes());
                    text.clear();
                }
            });
            for gone in &gone {
                text.push_str(&gone.text());
                text.push('\n');
            }
            done.and_then(|()| print::raw(text.as_bytes()))
        };
        for row in &rows {
            // Where a line holds the whole source it is no secret any more.
            if let Some(cell) = document.cells().get(row.index).filter(|_| row.is_whole) {
                view.shown(cell);
            }
        }
        view.remember();
        // The process ends: giving back every cell's memory takes as long as reading them.
        std::mem::forget(rows);
        std::mem::forget(view);
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns what was done to the cells since a revision of the notebook.
fn since(
    page: &Page,
    document: &Document,
    revision: Revision,
    is_alone: bool,
) -> Result<Vec<Step>, Fault> {
    if !is_alone {
        let text = "--since lists what has changed, whichever cells that are";
        return Err(Fault::new(Kind::Usage, text));
    }
    let now = steps::manifest(document);
    if steps::revision(&now) == revision {
        return Ok(Vec::new());
    }
    let then = history::manifest_at(page, revision).ok_or_else(|| {
        let text = format!("nothing is known of revision {revision} of {}", page.key);
        Fault::new(Kind::Failed, text)
            .hint("a notebook's revision is on the first line of nb cells, and in every answer")
    })?;
    Ok(steps::between(&then, &now))
}

/// Returns the places of the cells that are still there.
fn kept(steps: &[Step]) -> Vec<usize> {
    let there = steps.iter().filter(|step| step.what != Change::Removed);
    let mut places: Vec<_> = there.map(|step| step.index).collect();
    places.sort_unstable();
    places.dedup();
    places
}

fn gone(page: &Page, steps: &[Step], limit: usize) -> Vec<Gone> {
    let gone = steps.iter().filter(|step| step.what == Change::Removed);
    let gone = gone.map(|step| {
        let source = step
            .before
            .and_then(|before| history::version_source(page, before));
        Gone {
            id: step.cell.clone(),
            index: step.index,
            revision: step.before,
            first_line: source.map(|source| first_line(&source, limit)),
        }
    });
    gone.collect()
}

impl Gone {
    fn text(&self) -> String {
        let revision = self.revision.map(|revision| format!("@{revision}"));
        let revision = revision.unwrap_or_default();
        let first_line = self.first_line.as_deref().unwrap_or_default();
        format!("-  {}{revision}  removed  {first_line}", self.id)
    }
}

fn rows<'a>(
    page: &Page,
    document: &'a Document,
    places: &[usize],
    width: Option<usize>,
) -> Vec<Row<'a>> {
    let short = document.short_ids();
    let runs = running(page).and_then(|runs| runs.cell);
    let stale = stale(page, document, places);
    // A wide terminal shows more; that a narrow one shows less is done to the whole line.
    let more = |least: usize| width.map_or(least, |width| width.max(least));
    let (most, outputs) = (more(FIRST_LINE), more(OUTPUTS));
    let mut rows = Vec::with_capacity(places.len());
    rows.extend(places.iter().filter_map(|index| {
        let cell = document.cells().get(*index)?;
        let glance = cell.glance(outputs);
        let source = cell.source();
        let line = first_line(&source, most);
        Some(Row {
            index: *index,
            id: cell.id(),
            short: short.get(*index)?,
            cell_type: cell.cell_type(),
            execution_count: cell.execution_count(),
            state: state(cell, glance.failed, stale.contains(index), runs.as_deref()),
            is_whole: line == *source,
            first_line: line,
            lines: source.lines().count(),
            outputs: glance.count,
            outputs_in_short: glance.text,
            revision: cell.revision(),
            changes: Vec::new(),
        })
    }));
    rows
}

/// Returns what is known of a cell's last execution; `runs` is the cell that runs.
pub(super) fn state(
    cell: &Cell,
    failed: bool,
    stale: bool,
    runs: Option<&str>,
) -> Option<&'static str> {
    match runs {
        Some(id) if id == cell.id() => Some("running"),
        // Neither its error nor its values are what the source gives now.
        _ if stale => Some("stale"),
        _ => failed.then_some("error"),
    }
}

/// Says the rows, a line of at most `width` columns each.
fn say(rows: &[Row<'_>], width: Option<usize>, mut print: impl FnMut(&str)) {
    let widths: Widths<6> = Widths::of(rows, Row::width);
    let mut line = String::new();
    for row in rows {
        line.clear();
        widths.line(row, Row::column, &mut line);
        let room = width.map(|width| width.saturating_sub(columns::width(&line)));
        row.say(room, &mut line);
        let line = line.trim_end();
        match width {
            Some(width) => print(&columns::cut(line, width)),
            None => print(line),
        }
    }
}

impl Row<'_> {
    /// Appends what stands in one of the columns before its text.
    fn column(&self, column: usize, out: &mut String) {
        match (column, self.execution_count) {
            (0, _) => number(self.index as u64, out),
            (1, _) => {
                out.push_str(self.short);
                out.push('@');
                out.extend(self.revision.digits().map(char::from));
            }
            (2, _) => {
                for (at, change) in self.changes.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    out.push_str(word(*change));
                }
            }
            (3, _) => out.push_str(self.cell_type.name()),
            (4, Some(count)) => {
                out.push_str("In[");
                number(count, out);
                out.push(']');
            }
            (4, None) if self.cell_type == CellType::Code => out.push_str("In[ ]"),
            (5, _) => out.push_str(self.state.unwrap_or_default()),
            _ => {}
        }
    }

    /// Returns how wide that is; of what every row has, without writing it.
    fn width(&self, column: usize) -> usize {
        match (column, self.execution_count) {
            (0, _) => digits(self.index as u64),
            (1, _) => columns::width(self.short) + 1 + self.revision.digits().len(),
            (3, _) => self.cell_type.name().len(),
            (4, Some(count)) => digits(count) + 4,
            _ => {
                let mut text = String::new();
                self.column(column, &mut text);
                columns::width(&text)
            }
        }
    }

    /// Appends what its source and its outputs say; where there is too little room for both, the
    /// outputs have a third of it.
    fn say(&self, room: Option<usize>, out: &mut String) {
        let lines = match self.lines {
            0 | 1 => String::new(),
            lines => format!(" ({lines} lines)"),
        };
        let arrow = if self.outputs_in_short.is_empty() {
            ""
        } else {
            " → "
        };
        match room {
            Some(room) => {
                let outputs = columns::width(arrow) + columns::width(&self.outputs_in_short);
                let others = columns::width(&lines) + outputs.min(room / 3);
                out.push_str(&columns::cut(&self.first_line, room.saturating_sub(others)));
            }
            None => out.push_str(&self.first_line),
        }
        for part in [&lines, arrow, &self.outputs_in_short] {
            out.push_str(part);
        }
    }
}

/// Returns how many decimal digits a number has.
fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or_default() as usize + 1
}

/// Appends a number.
fn number(number: u64, out: &mut String) {
    // Writing into a string does not fail.
    let _ = write!(out, "{number}");
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Nothing => "",
        Change::Inserted => "new",
        Change::Edited => "edited",
        Change::Moved => "moved",
        Change::Outputs => "cleared",
        Change::Removed => "removed",
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

fn head(page: &Page, document: &Document, shown: usize, since: Option<Revision>) -> String {
    let count = document.cells().len();
    let cells = match (count, shown, since) {
        (_, _, Some(since)) => {
            format!("{shown} of {count} cells new, edited or moved since {since}")
        }
        (1, 1, _) => "1 cell".to_owned(),
        (count, shown, _) if shown < count => format!("{shown} of {count} cells"),
        (count, ..) => format!("{count} cells"),
    };
    let mut parts = vec![cells, format!("revision {}", document.revision())];
    parts.extend(document.metadata_string(&["kernelspec", "name"]));
    if document.is_read_only() {
        parts.push(format!("format {}, read only", document.nbformat().0));
    }
    format!("{}: {}", page.key, parts.join(" · "))
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;

    fn row(first_line: &str, lines: usize, outputs: &str) -> Row<'static> {
        Row {
            index: 7,
            id: "3f2c9a1e",
            short: "3f2c",
            cell_type: CellType::Code,
            execution_count: Some(3),
            state: None,
            first_line: first_line.to_owned(),
            is_whole: false,
            lines,
            outputs: 1,
            outputs_in_short: outputs.to_owned(),
            revision: "0123456789".parse().unwrap(),
            changes: Vec::new(),
        }
    }

    fn said(rows: &[Row<'_>], width: usize) -> Vec<String> {
        let mut lines = Vec::new();
        say(rows, Some(width), |line| lines.push(line.to_owned()));
        lines
    }

    #[test]
    fn a_row_knows_how_wide_its_columns_are() {
        let mut rows = Vec::new();
        for count in [None, Some(0), Some(9), Some(10), Some(u64::MAX)] {
            let mut row = row("x", 1, "");
            row.execution_count = count;
            row.index = count.unwrap_or_default() as usize;
            rows.push(row);
        }
        rows[1].short = "日本";
        rows[2].state = Some("stale");
        rows[3].changes = vec![Change::Edited, Change::Moved];
        rows[4].cell_type = CellType::Markdown;
        for row in rows {
            for column in 0..6 {
                let mut text = String::new();
                row.column(column, &mut text);
                assert_eq!(row.width(column), text.width(), "{text:?}");
            }
        }
    }

    #[test]
    fn a_line_fits_the_terminal_and_shows_some_of_everything() {
        let long = "x = '".to_owned() + &"日".repeat(100);
        let rows = [
            row(&long, 3, &"out ".repeat(30)),
            row("y", 1, ""),
            row("z", 1, "1"),
        ];
        for width in [40, 60, 80, 200] {
            let texts = said(&rows, width);
            assert!(
                texts.iter().all(|text| text.width() <= width),
                "{width}: {texts:#?}"
            );
        }
        let texts = said(&rows, 80);
        assert!(
            texts[0].contains("x = '日") && texts[0].contains("(3 lines) → out "),
            "{texts:#?}"
        );
        assert!(
            texts[1].ends_with("In[3]  y") && texts[2].ends_with("z → 1"),
            "{texts:#?}"
        );
    }
}

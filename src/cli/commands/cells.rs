//! `nb cells`: the cells of a notebook, one line each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::args::cells::{Which, places};
use crate::cli::args::first_notebook;
use crate::cli::commands::{Command, Group};
use crate::cli::render::columns::{self, Widths};
use crate::cli::render::print;
use crate::editing::history::{self, steps};
use crate::editing::page::Page;
use crate::editing::running::running;
use crate::editing::view;
use crate::execution::stale::stale;
use crate::notebook::{Cell, CellType, ChangeKind, Document, Revision, first_line};
use crate::project::event::CellStep;

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
pub(crate) struct Cells {
    /// The notebook, and the cells if not all: an index (3, -1), an id, In[12], a range (2..5, 2..=5)
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    which: Which,
    /// Only the cells that are new, edited, moved or removed since this revision of the notebook;
    /// running a cell is no change
    #[arg(long, value_name = "REV", conflicts_with_all = ["ids", "indexes"])]
    since: Option<Revision>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  nb cells train.ipynb
  nb cells train.ipynb 10..20
  nb cells --since 8c1f09a2b3
  nb cells --json | jq -r '.cells[] | select(.state == \"error\") | .id'";

/// What the list says of some cells. The texts of all rows are one: memory of its own for each costs more
/// than reading the cells.
#[derive(Debug, Default)]
struct Rows<'a> {
    rows: Vec<Row<'a>>,
    texts: String,
    /// What was done to which cell, by its index, since the revision that was asked for.
    changes: BTreeMap<usize, Vec<ChangeKind>>,
}

/// What it says of one.
#[derive(Debug)]
struct Row<'a> {
    cell: &'a Cell,
    index: usize,
    short: &'a str,
    execution_count: Option<u64>,
    /// `running`; `stale` where its outputs are of an earlier source; `error` where they have one.
    state: Option<&'static str>,
    /// Where its first line begins among the texts, where that ends, and where what its outputs say in
    /// short does.
    texts: [usize; 3],
    /// Whether its first line is its whole source.
    is_whole: bool,
    lines: usize,
    outputs: usize,
    cell_type: CellType,
}

/// A row as programs read it.
#[derive(Debug, Serialize)]
struct Told<'a> {
    index: usize,
    id: &'a str,
    #[serde(rename = "type")]
    cell_type: CellType,
    execution_count: Option<u64>,
    state: Option<&'static str>,
    first_line: &'a str,
    lines: usize,
    outputs: usize,
    outputs_in_short: &'a str,
    revision: Revision,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    changes: &'a [ChangeKind],
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

impl Command for Cells {
    const NAME: &'static str = "cells";
    const ALIASES: &'static [&'static str] = &["list", "ls"];
    const GROUP: Group = Group::Notebook;
    const IS_FIRST: bool = true;

    fn notebook(&self) -> Option<PathBuf> {
        first_notebook(&self.words)
    }

    fn json(&self) -> bool {
        self.json
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let page = context.page(&mut self.words).await?;
        let selectors = self.which.selectors(&self.words)?;
        let view = view::open(&page, context.by())?;
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
        for row in rows.rows.iter().filter(|_| !steps.is_empty()) {
            let own = steps.iter().filter(|step| step.cell == row.cell.id());
            let what = own.map(|step| step.what).collect();
            rows.changes.insert(row.index, what);
        }
        let gone = gone(&page, steps, width.unwrap_or(FIRST_LINE));
        let _ = if self.json {
            let mut answer = about(&page, document);
            answer["cells"] = rows.rows.iter().map(|row| json!(rows.told(row))).collect();
            if since.is_some() {
                answer["removed"] = json!(gone);
            }
            context.answer(&answer)
        } else {
            let mut text = head(&page, document, rows.rows.len(), self.since);
            text.push('\n');
            let mut done = Ok(());
            rows.say(width, |line| {
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
        for row in rows.rows.iter().filter(|row| row.is_whole) {
            // Where a line holds the whole source it is no secret any more.
            view.shown(row.cell);
        }
        view.remember();
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns what was done to the cells since a revision of the notebook.
fn since(
    page: &Page,
    document: &Document,
    revision: Revision,
    is_alone: bool,
) -> Result<Vec<CellStep>, Problem> {
    if !is_alone {
        let text = "--since lists what has changed, whichever cells that are";
        return Err(Problem::new(ProblemKind::Usage, text));
    }
    let now = steps::manifest(document);
    if steps::revision(&now) == revision {
        return Ok(Vec::new());
    }
    let then = history::manifest_at(page, revision).ok_or_else(|| {
        let text = format!("nothing is known of revision {revision} of {}", page.key);
        Problem::new(ProblemKind::Failed, text)
            .hint("a notebook's revision is on the first line of nb cells, and in every answer")
    })?;
    Ok(steps::between(&then, &now))
}

/// Returns the places of the cells that are still there.
fn kept(steps: &[CellStep]) -> Vec<usize> {
    let there = steps.iter().filter(|step| step.what != ChangeKind::Removed);
    let mut places: Vec<_> = there.map(|step| step.index).collect();
    places.sort_unstable();
    places.dedup();
    places
}

fn gone(page: &Page, steps: &[CellStep], limit: usize) -> Vec<Gone> {
    let gone = steps.iter().filter(|step| step.what == ChangeKind::Removed);
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
) -> Rows<'a> {
    let short = document.short_ids();
    let runs = running(page).and_then(|runs| runs.cell);
    let stale = stale(page, document, places);
    // A wide terminal shows more; that a narrow one shows less is done to the whole line.
    let more = |least: usize| width.map_or(least, |width| width.max(least));
    let (most, outputs) = (more(FIRST_LINE), more(OUTPUTS));
    // What is not needed of it stays untouched.
    let mut texts = String::with_capacity(places.len() * 2 * FIRST_LINE);
    let mut rows = Vec::with_capacity(places.len());
    rows.extend(places.iter().filter_map(|index| {
        let cell = document.cells().get(*index)?;
        let glance = cell.outputs_summary(outputs);
        let source = cell.source();
        let line = first_line(&source, most);
        let start = texts.len();
        texts.push_str(&line);
        let between = texts.len();
        texts.push_str(&glance.text);
        Some(Row {
            cell,
            index: *index,
            short: short.get(*index)?,
            execution_count: cell.execution_count(),
            state: state(cell, glance.failed, stale.contains(index), runs.as_deref()),
            texts: [start, between, texts.len()],
            is_whole: line == *source,
            lines: source.lines().count(),
            outputs: glance.count,
            cell_type: cell.cell_type(),
        })
    }));
    Rows {
        rows,
        texts,
        changes: BTreeMap::new(),
    }
}

/// Returns what is known of a cell's last execution; `runs` is the cell that runs.
pub(crate) fn state(
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

impl Rows<'_> {
    /// Returns a row's first line, and what its outputs say in short.
    fn texts(&self, row: &Row<'_>) -> [&str; 2] {
        let [start, between, end] = row.texts;
        [start..between, between..end].map(|part| self.texts.get(part).unwrap_or_default())
    }

    fn changes(&self, row: &Row<'_>) -> &[ChangeKind] {
        self.changes.get(&row.index).map_or(&[], Vec::as_slice)
    }

    fn told<'a>(&'a self, row: &'a Row<'_>) -> Told<'a> {
        let [first_line, outputs_in_short] = self.texts(row);
        Told {
            index: row.index,
            id: row.cell.id(),
            cell_type: row.cell_type,
            execution_count: row.execution_count,
            state: row.state,
            first_line,
            lines: row.lines,
            outputs: row.outputs,
            outputs_in_short,
            revision: row.cell.revision(),
            changes: self.changes(row),
        }
    }

    /// Says the rows, a line of at most `width` columns each.
    fn say(&self, width: Option<usize>, mut print: impl FnMut(&str)) {
        let column =
            |row: &Row<'_>, column, out: &mut _| row.column(column, self.changes(row), out);
        let width_of = |row: &Row<'_>, column| row.width(column, self.changes(row));
        let widths: Widths<6> = Widths::of(&self.rows, width_of);
        let mut line = String::new();
        for row in &self.rows {
            line.clear();
            widths.line(row, column, &mut line);
            let room = width.map(|width| width.saturating_sub(columns::width(&line)));
            row.say(self.texts(row), room, &mut line);
            let line = line.trim_end();
            match width {
                Some(width) => print(&columns::cut(line, width)),
                None => print(line),
            }
        }
    }
}

impl Row<'_> {
    /// Appends what stands in one of the columns before its text.
    fn column(&self, column: usize, changes: &[ChangeKind], out: &mut String) {
        match (column, self.execution_count) {
            (0, _) => number(self.index as u64, out),
            (1, _) => {
                out.push_str(self.short);
                out.push('@');
                out.extend(self.cell.revision().digits().map(char::from));
            }
            (2, _) => {
                for (at, change) in changes.iter().enumerate() {
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
    fn width(&self, column: usize, changes: &[ChangeKind]) -> usize {
        match (column, self.execution_count) {
            (0, _) => digits(self.index as u64),
            (1, _) => columns::width(self.short) + 1 + self.cell.revision().digits().len(),
            (3, _) => self.cell_type.name().len(),
            (4, Some(count)) => digits(count) + 4,
            _ => {
                let mut text = String::new();
                self.column(column, changes, &mut text);
                columns::width(&text)
            }
        }
    }

    /// Appends what its source and its outputs say; where there is too little room for both, the
    /// outputs have a third of it.
    fn say(&self, texts: [&str; 2], room: Option<usize>, out: &mut String) {
        let [first_line, outputs_in_short] = texts;
        let lines = match self.lines {
            0 | 1 => String::new(),
            lines => format!(" ({lines} lines)"),
        };
        let arrow = if outputs_in_short.is_empty() {
            ""
        } else {
            " → "
        };
        match room {
            Some(room) => {
                let outputs = columns::width(arrow) + columns::width(outputs_in_short);
                let others = columns::width(&lines) + outputs.min(room / 3);
                out.push_str(&columns::cut(first_line, room.saturating_sub(others)));
            }
            None => out.push_str(first_line),
        }
        for part in [&lines, arrow, outputs_in_short] {
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

fn word(change: ChangeKind) -> &'static str {
    match change {
        ChangeKind::Nothing => "",
        ChangeKind::Inserted => "new",
        ChangeKind::Edited => "edited",
        ChangeKind::Moved => "moved",
        ChangeKind::Outputs => "cleared",
        ChangeKind::Removed => "removed",
    }
}

/// Returns what an answer in JSON says of the notebook itself.
pub(crate) fn about(page: &Page, document: &Document) -> Value {
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

    /// A notebook with one cell of code.
    fn one_cell() -> Document {
        let text = r#"{"cells": [{"cell_type": "code", "id": "3f2c9a1e", "execution_count": 3}]}"#;
        Document::parse(text).unwrap()
    }

    fn row<'a>(document: &'a Document, rows: &mut Rows<'a>, first_line: &str, outputs: &str) {
        let start = rows.texts.len();
        rows.texts.push_str(first_line);
        let between = rows.texts.len();
        rows.texts.push_str(outputs);
        rows.rows.push(Row {
            cell: &document.cells()[0],
            index: rows.rows.len(),
            short: "3f2c",
            execution_count: Some(3),
            state: None,
            texts: [start, between, rows.texts.len()],
            is_whole: false,
            lines: if rows.rows.is_empty() { 3 } else { 1 },
            outputs: 1,
            cell_type: CellType::Code,
        });
    }

    fn said(rows: &Rows<'_>, width: usize) -> Vec<String> {
        let mut lines = Vec::new();
        rows.say(Some(width), |line| lines.push(line.to_owned()));
        lines
    }

    #[test]
    fn a_row_knows_how_wide_its_columns_are() {
        let document = one_cell();
        let mut all = Rows::default();
        for count in [None, Some(0), Some(9), Some(10), Some(u64::MAX)] {
            row(&document, &mut all, "x", "");
            let row = all.rows.last_mut().unwrap();
            row.execution_count = count;
            row.index = count.unwrap_or_default() as usize;
        }
        all.rows[1].short = "日本";
        all.rows[2].state = Some("stale");
        all.rows[4].cell_type = CellType::Markdown;
        for row in &all.rows {
            for changes in [&[][..], &[ChangeKind::Edited, ChangeKind::Moved]] {
                for column in 0..6 {
                    let mut text = String::new();
                    row.column(column, changes, &mut text);
                    assert_eq!(row.width(column, changes), text.width(), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn a_line_fits_the_terminal_and_shows_some_of_everything() {
        let long = "x = '".to_owned() + &"日".repeat(100);
        let document = one_cell();
        let mut rows = Rows::default();
        row(&document, &mut rows, &long, &"out ".repeat(30));
        row(&document, &mut rows, "y", "");
        row(&document, &mut rows, "z", "1");
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

//! What differs between two versions of a notebook, as text.

use crate::api::DiffAnswer;
use crate::notebook::{CellDiff, DiffHunk, DiffLine, FieldDiff};

/// The kinds of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffPart {
    /// The name of a version.
    Title,
    /// A cell that differs.
    Cell,
    /// The place of changed lines.
    Place,
    /// A line of the earlier version only.
    Removed,
    /// A line of the later version only.
    Added,
    /// A line of both.
    Plain,
}

/// Returns what was not compared, and whether nothing differs.
pub fn note(answer: &DiffAnswer) -> Vec<String> {
    let (key, before) = (&answer.notebook, &answer.before);
    let mut notes = Vec::new();
    if !before.unknown.is_empty() {
        let unknown = listed(&before.unknown);
        notes.push(format!("not compared: {unknown} ({})", before.why_unknown));
    }
    if answer.cells.is_empty() && answer.metadata.is_empty() {
        notes.push(format!("{key}: no cell differs from {}", before.name));
    }
    notes
}

/// Returns the lines of a patch, each as `paint` returns it; none if nothing differs.
pub fn lines(answer: &DiffAnswer, paint: impl Fn(DiffPart, String) -> String) -> Vec<String> {
    if answer.cells.is_empty() && answer.metadata.is_empty() {
        return Vec::new();
    }
    let key = &answer.notebook;
    let before = format!("--- {key} · {}", answer.before.name);
    let after = format!("+++ {key} · revision {}", answer.revision);
    let mut lines = vec![
        paint(DiffPart::Title, before),
        paint(DiffPart::Title, after),
    ];
    let metadata = answer.metadata.iter();
    lines.extend(metadata.map(|it| paint(DiffPart::Plain, format!("notebook {}", field(it)))));
    for cell in &answer.cells {
        lines.push(paint(DiffPart::Cell, head(cell)));
        let details = details(cell).into_iter();
        lines.extend(details.map(|line| paint(DiffPart::Plain, line)));
        for hunk in &cell.source {
            // If one side lacks the cell, the line numbers would say nothing.
            if cell.before.is_some() && cell.after.is_some() {
                lines.push(paint(DiffPart::Place, place(hunk)));
            }
            lines.extend(hunk.lines.iter().map(|line| match line {
                DiffLine::Same(text) => paint(DiffPart::Plain, format!(" {text}")),
                DiffLine::Removed(text) => paint(DiffPart::Removed, format!("-{text}")),
                DiffLine::Added(text) => paint(DiffPart::Added, format!("+{text}")),
            }));
        }
    }
    lines
}

/// Returns a line for each difference other than the source.
fn details(cell: &CellDiff) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(before), Some(after)) = (&cell.before, &cell.after)
        && before.cell_type != after.cell_type
    {
        let (before, after) = (before.cell_type, after.cell_type);
        lines.push(format!("  type: {before} → {after}"));
    }
    if cell.before.is_some() && cell.after.is_some() {
        lines.extend(cell.metadata.iter().map(|it| format!("  {}", field(it))));
    }
    if let Some(outputs) = &cell.outputs {
        let short = |text: &str| match text {
            "" => "none".to_owned(),
            text => text.to_owned(),
        };
        let (before, after) = (short(&outputs.before), short(&outputs.after));
        lines.push(match (&cell.before, &cell.after) {
            (None, _) => format!("  outputs: {after}"),
            (_, None) => format!("  outputs: {before}"),
            _ => format!("  outputs: {before} → {after}"),
        });
    }
    lines
}

/// Returns the line above a cell's differences.
fn head(cell: &CellDiff) -> String {
    let mut parts = Vec::new();
    match (&cell.before, &cell.after) {
        (None, _) => parts.push("new".to_owned()),
        (_, None) => parts.push("gone".to_owned()),
        (Some(before), Some(after)) => {
            if before.revision != after.revision {
                parts.push(format!("{} → {}", before.revision, after.revision));
            }
            if cell.moved {
                parts.push(format!("moved from {}", before.index));
            }
            if before.revision == after.revision && cell.outputs.is_some() {
                parts.push("outputs".to_owned());
            }
        }
    }
    let side = cell.after.as_ref().or(cell.before.as_ref());
    let (index, line) = side.map_or((0, ""), |side| (side.index, side.first_line.as_str()));
    let index = match cell.after {
        Some(_) => format!("cell {index}"),
        None => format!("was cell {index}"),
    };
    let line = match line {
        "" => String::new(),
        line => format!(" · {line}"),
    };
    format!("{} ({index}) · {}{line}", cell.cell, parts.join(", "))
}

fn place(hunk: &DiffHunk) -> String {
    let (before, after) = hunk.lengths();
    // In a patch, an empty range has the number of the line before it.
    let start = |at: usize, length: usize| if length == 0 { at - 1 } else { at };
    format!(
        "@@ -{},{before} +{},{after} @@",
        start(hunk.before, before),
        start(hunk.after, after)
    )
}

fn field(it: &FieldDiff) -> String {
    const CHARS_MAX: usize = 200;
    let text = |value: &Option<String>| match value {
        None => "none".to_owned(),
        Some(text) if text.chars().count() > CHARS_MAX => {
            text.chars().take(CHARS_MAX).chain("…".chars()).collect()
        }
        Some(text) => text.clone(),
    };
    format!("{}: {} → {}", it.field, text(&it.before), text(&it.after))
}

fn listed(ids: &[String]) -> String {
    const IDS_MAX: usize = 5;
    let shown = ids.iter().take(IDS_MAX).map(String::as_str);
    let shown = shown.collect::<Vec<_>>().join(", ");
    match ids.len() {
        1 => format!("cell {shown}"),
        count if count > IDS_MAX => format!("{count} cells ({shown}, …)"),
        count => format!("{count} cells ({shown})"),
    }
}

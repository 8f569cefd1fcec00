//! Whether notebooks give what they show, as text.

use std::time::Duration;

use crate::api::readable::ShortTraceback;
use crate::api::time::took;
use crate::api::{
    CellVerdict, ShownDifference, VerifiedCell, VerifiedNotebook, VerifyAnswer, VerifyOutcome,
};
use crate::notebook::{DiffLine, is_media, visible};
use crate::text::{Part, count, problem};

/// How much of an answer is shown.
#[derive(Clone, Copy, Debug)]
pub struct VerifyRoom {
    /// How many cells have lines of their own.
    pub cells: usize,
    /// How many lines of a difference or a traceback.
    pub lines: usize,
    /// How many characters of a line.
    pub width: usize,
    /// How many reasons for a cell.
    pub reasons: usize,
}

/// Returns the answer as text.
pub fn parts(answer: &VerifyAnswer, room: VerifyRoom) -> Vec<Part> {
    let mut parts = Vec::new();
    for outcome in &answer.notebooks {
        match outcome {
            VerifyOutcome::Done(notebook) => add_notebook(notebook, room, &mut parts),
            VerifyOutcome::Failed { error, notebook } => {
                let mut lines = problem::lines(error).into_iter();
                let first = lines.next().map(|line| format!("{notebook}: {line}"));
                parts.extend(first.map(Part::Own));
                parts.extend(lines.map(|line| Part::Own(line.to_string())));
            }
        }
    }
    parts
}

fn add_notebook(notebook: &VerifiedNotebook, room: VerifyRoom, parts: &mut Vec<Part>) {
    let shown = notebook.cells.iter().filter(|cell| {
        cell.verdict.is_difference() || cell.verdict == CellVerdict::Fails || !cell.notes.is_empty()
    });
    let shown: Vec<_> = shown.collect();
    // Where texts of others stand, the lines of nb have their mark.
    let line = match shown.is_empty() {
        true => Part::Row,
        false => Part::Own,
    };
    parts.push(line(head(notebook)));
    for cell in shown.iter().take(room.cells) {
        add_cell(cell, room, parts);
    }
    let more = shown.len().saturating_sub(room.cells);
    if more > 0 {
        parts.push(Part::Own(format!("{} more", count(more, "cell"))));
    }
    let mut notes = notebook
        .notes
        .iter()
        .map(|note| line(format!("note: {note}")));
    parts.extend(notes.by_ref().take(room.lines));
}

/// Returns the line about a notebook.
fn head(notebook: &VerifiedNotebook) -> String {
    let cells = &notebook.cells;
    let of = |verdicts: &[CellVerdict]| -> Vec<&VerifiedCell> {
        cells
            .iter()
            .filter(|cell| verdicts.contains(&cell.verdict))
            .collect()
    };
    let (same, all) = (of(&[CellVerdict::Same]).len(), count(cells.len(), "cell"));
    let mut phrases = vec![match same == cells.len() {
        true => format!("all of {all} give what they show"),
        false => format!("{same} of {all} give what they show"),
    }];
    let differing = of(&[CellVerdict::Differs, CellVerdict::NothingNow]);
    let differ = if differing.len() == 1 {
        "differs"
    } else {
        "differ"
    };
    for (some, phrase) in [
        (differing, differ),
        (of(&[CellVerdict::Fails]), "failed"),
        (of(&[CellVerdict::NotComparable]), "not comparable"),
        (of(&[CellVerdict::Skipped]), "skipped"),
        (of(&[CellVerdict::NotRun]), "not run"),
    ] {
        let names: Vec<_> = some
            .iter()
            .take(MOST_NAMED)
            .map(|cell| name(cell))
            .collect();
        let more = some.len() - names.len();
        let dots = if more > 0 { ", …" } else { "" };
        if !some.is_empty() {
            phrases.push(format!(
                "{} {phrase} ({}{dots})",
                some.len(),
                names.join(", ")
            ));
        }
    }
    let time = took(Duration::from_millis(notebook.took_ms));
    format!("{}: {} · {time}", notebook.notebook, phrases.join(", "))
}

/// How many cells a phrase names.
const MOST_NAMED: usize = 4;

/// Returns the name of a cell: its index and its short id.
fn name(cell: &VerifiedCell) -> String {
    format!("{} · {}", cell.index, cell.short_id)
}

fn add_cell(cell: &VerifiedCell, room: VerifyRoom, parts: &mut Vec<Part>) {
    let verdict = match (cell.verdict, &cell.difference) {
        (CellVerdict::NothingNow, _) => "prints nothing now".to_owned(),
        (CellVerdict::Fails, _) => "fails".to_owned(),
        (CellVerdict::Differs, Some(difference)) => differs(difference),
        (CellVerdict::NotComparable, _) => "not comparable".to_owned(),
        _ => "runs".to_owned(),
    };
    let line: String = cell.first_line.chars().take(room.width).collect();
    parts.push(Part::Own(format!("{} · {line}: {verdict}", name(cell))));
    let texts = match (&cell.difference, &cell.error) {
        (Some(difference), _) => difference.lines.iter().map(diff_line).collect(),
        (None, Some(error)) => {
            let short = ShortTraceback {
                more: "nb verify --json has all",
            };
            let traceback = short.of(&error.traceback);
            let whole = format!("{}: {}", error.ename, error.evalue);
            let all: Vec<_> = match traceback.trim() {
                "" => whole.lines().map(str::to_owned).collect(),
                text => text.lines().map(str::to_owned).collect(),
            };
            // The end of a traceback says most.
            all.split_at(all.len().saturating_sub(room.lines))
                .1
                .to_vec()
        }
        (None, None) => Vec::new(),
    };
    let more = cell
        .difference
        .as_ref()
        .map_or(0, |difference| difference.more);
    let more = more + texts.len().saturating_sub(room.lines);
    let shown = texts
        .iter()
        .take(room.lines)
        .map(|text| shortened(text, room.width));
    let shown: Vec<_> = shown.collect();
    if !shown.is_empty() {
        parts.push(Part::Others(visible(&shown.join("\n")).into_owned()));
    }
    if more > 0 {
        parts.push(Part::Own(format!("… {} more", count(more, "line"))));
    }
    for why in cell.why.iter().take(room.reasons) {
        parts.push(Part::Own(format!("why: {}", why.text)));
    }
    for note in cell.notes.iter().take(room.reasons) {
        parts.push(Part::Own(format!("note: {note}")));
    }
}

/// Returns how the outputs of a cell differ, in words.
fn differs(difference: &ShownDifference) -> String {
    let is_image = |form: &&String| is_media(form);
    match difference.forms.as_slice() {
        [] => "differs".to_owned(),
        forms if forms.iter().all(|form| is_image(&form)) => {
            let kinds = forms.iter().all(|form| form.starts_with("image/"));
            let kind = if kinds { "image" } else { "file" };
            format!("another {kind} ({})", forms.join(", "))
        }
        forms => format!("differs in {}", forms.join(", ")),
    }
}

fn diff_line(line: &DiffLine) -> String {
    match line {
        DiffLine::Same(text) => format!(" {text}"),
        DiffLine::Removed(text) => format!("-{text}"),
        DiffLine::Added(text) => format!("+{text}"),
    }
}

fn shortened(text: &str, width: usize) -> String {
    match text.char_indices().nth(width) {
        Some((at, _)) => text.split_at(at).0.to_owned() + "…",
        None => text.to_owned(),
    }
}

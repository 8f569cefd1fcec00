//! A notebook's graph, and a plan to run its cells, as text.

use crate::api::{Doubts, GraphAnswer, GraphRow, NameRead, PlanAnswer, PlannedRow};
use crate::text::count;

/// How many names are in a line.
const MOST_NAMES: usize = 20;

/// Returns the graph as text: a line for each cell, and below it what is known of it.
pub(crate) fn text(answer: &GraphAnswer) -> String {
    let cells = count(answer.cells.len(), "code cell");
    let stale = answer.cells.iter().filter(|cell| cell.stale.is_some());
    let stale = match answer.kernel_has_run {
        true => format!("{} stale", stale.count()),
        false => "the kernel has run nothing".to_owned(),
    };
    let mut text = format!("{}: {cells} · {stale}\n", answer.notebook.notebook);
    for cell in &answer.cells {
        push_cell(cell, answer, &mut text);
    }
    for advice in &answer.advice {
        text.push_str(&format!("advice: {advice}\n"));
    }
    text
}

fn push_cell(cell: &GraphRow, answer: &GraphAnswer, text: &mut String) {
    text.push_str(&format!("{}  {}  ", cell.index, cell.short_id));
    if let Some(stale) = cell.stale.as_ref().filter(|_| answer.kernel_has_run) {
        text.push_str(&format!("stale ({})  ", stale.text));
    }
    text.push_str(cell.first_line.trim_end());
    text.push('\n');
    let reads = cell.reads.iter().map(read_text);
    let parts = [
        ("reads", reads.collect::<Vec<_>>()),
        ("writes", cell.writes.clone()),
        ("changes", cell.changes.clone()),
        ("deletes", cell.deletes.clone()),
    ];
    let parts = parts.iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<_> = parts
        .map(|(what, names)| format!("{what} {}", names_text(names)))
        .collect();
    if !parts.is_empty() {
        text.push_str(&format!("     {}\n", parts.join(" · ")));
    }
    let undefined = cell.undefined.iter();
    let undefined = undefined.map(|it| (it.line, format!("{} has no value", it.name)));
    let unknown = cell.unknown.iter().map(|it| (it.line, it.text.clone()));
    let problem = cell.problem.iter();
    let problem = problem.map(|it| (it.line, format!("not understood: {}", it.text)));
    for (line, message) in problem.chain(undefined).chain(unknown) {
        text.push_str(&format!("     line {line}: {message}\n"));
    }
}

fn read_text(read: &NameRead) -> String {
    match read.short_from.as_slice() {
        [] => read.name.clone(),
        from => format!("{} ({})", read.name, from.join(", ")),
    }
}

fn names_text(names: &[String]) -> String {
    let shown = names.get(..MOST_NAMES.min(names.len())).unwrap_or_default();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns a plan as text.
pub(crate) fn plan(answer: &PlanAnswer) -> String {
    let notebook = &answer.notebook.notebook;
    let mut text = match answer.plan.len() {
        0 => format!("{notebook}: there is nothing to run\n"),
        cells => format!("{notebook}: {} would run\n", count(cells, "cell")),
    };
    for cell in &answer.plan {
        push_planned(cell, &mut text);
    }
    if answer.doubts.any_name_is_doubtful {
        text.push_str(&format!("{ANY}\n"));
    }
    for name in &answer.doubts.doubtful {
        text.push_str(&format!(
            "{} may be another value: {}\n",
            name.name, name.why
        ));
    }
    text
}

/// The text for a plan in which any value may be another.
const ANY: &str =
    "any value may be another than after Restart & Run All: code ran whose effect is not known";

/// Returns what is not certain after a run of the stale cells, in one line, if there is anything.
pub(crate) fn doubts(doubts: &Doubts) -> Option<String> {
    let names = doubts.doubtful.iter().map(|it| it.name.clone());
    match names.collect::<Vec<_>>().as_slice() {
        _ if doubts.any_name_is_doubtful => Some(ANY.to_owned()),
        [] => None,
        names => Some(format!(
            "perhaps not as after Restart & Run All: {}; nb exec --stale --plan says why",
            names_text(names)
        )),
    }
}

fn push_planned(cell: &PlannedRow, text: &mut String) {
    let line = cell.first_line.trim_end();
    text.push_str(&format!(
        "{}  {}  {line}  ← {}\n",
        cell.index, cell.short_id, cell.why
    ));
}

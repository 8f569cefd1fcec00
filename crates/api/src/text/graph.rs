//! A notebook's graph, and a plan to run its cells, as text.

use crate::api::{Doubts, GraphAnswer, GraphRow, NameRead, PlanAnswer, PlannedRow};
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::text::count;

/// How many names are in a line.
const MOST_NAMES: usize = 20;

/// Returns the graph as lines: one for each cell, and below it what is known of it.
pub fn lines(answer: &GraphAnswer) -> Vec<String> {
    let cells = count(answer.cells.len(), "code cell");
    let stale = answer.cells.iter().filter(|cell| cell.stale.is_some());
    let stale = match answer.kernel_has_run {
        true => format!("{} stale", stale.count()),
        false => "the kernel has run nothing".to_owned(),
    };
    let mut lines = vec![format!("{}: {cells} · {stale}", answer.notebook.notebook)];
    for cell in &answer.cells {
        push_cell(cell, answer, &mut lines);
    }
    let advice = answer.advice.iter();
    lines.extend(advice.map(|advice| format!("advice: {advice}")));
    lines
}

fn push_cell(cell: &GraphRow, answer: &GraphAnswer, lines: &mut Vec<String>) {
    let mut row = format!("{}  {}  ", cell.index, cell.short_id);
    if let Some(stale) = cell.stale.as_ref().filter(|_| answer.kernel_has_run) {
        row.push_str(&format!("stale ({})  ", stale.text));
    }
    row.push_str(cell.first_line.trim_end());
    lines.push(row);
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
        lines.push(format!("     {}", parts.join(" · ")));
    }
    let undefined = cell.undefined.iter();
    let undefined = undefined.map(|it| (it.line, format!("{} has no value", it.name)));
    let unknown = cell.unknown.iter().map(|it| (it.line, it.text.clone()));
    let problem = cell.problem.iter();
    let problem = problem.map(|it| (it.line, format!("not understood: {}", it.text)));
    for (line, message) in problem.chain(undefined).chain(unknown) {
        lines.push(format!("     line {line}: {message}"));
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

/// Returns a plan as lines.
pub fn plan(answer: &PlanAnswer) -> Vec<String> {
    let notebook = &answer.notebook.notebook;
    let by_kernel = match answer.by_kernel {
        true => ", by what the kernel said of earlier runs",
        false => "",
    };
    let mut lines = vec![match answer.plan.len() {
        0 => format!("{notebook}: there is nothing to run{by_kernel}"),
        cells => format!("{notebook}: {} would run{by_kernel}", count(cells, "cell")),
    }];
    lines.extend(answer.plan.iter().map(planned));
    if answer.doubts.any_name_is_doubtful {
        lines.push(ANY.to_owned());
    }
    let doubtful = answer.doubts.doubtful.iter();
    lines.extend(doubtful.map(|it| format!("{} may be another value: {}", it.name, it.why)));
    let cells = answer.doubts.doubtful_cells.iter();
    lines.extend(cells.map(|it| {
        let why = it.why.as_deref();
        let why = why.unwrap_or("reads what such a cell gives");
        format!("cell {} may give other values: it {why}", it.index)
    }));
    lines
}

/// The text for a plan in which any value may be another.
const ANY: &str =
    "any value may be another than after Restart & Run All: code ran whose effect is not known";

/// Returns what is not certain after a run of the stale cells, in one line, if there is anything.
pub fn doubts(doubts: &Doubts) -> Option<Hint> {
    let names = doubts.doubtful.iter().map(|it| it.name.clone());
    let cells = doubts.doubtful_cells.iter();
    let cells = cells.filter_map(|it| Some(format!("cell {} {}", it.index, it.why.as_ref()?)));
    let names = cells.chain(names);
    match names.collect::<Vec<_>>().as_slice() {
        _ if doubts.any_name_is_doubtful => Some(ANY.into()),
        [] => None,
        names => Some(hint![
            format!(
                "perhaps not as after Restart & Run All: {}; ",
                names_text(names)
            ),
            nb(Verb::Exec).option("--stale").option("--plan"),
            " says why"
        ]),
    }
}

fn planned(cell: &PlannedRow) -> String {
    let line = cell.first_line.trim_end();
    format!("{}  {}  {line}  ← {}", cell.index, cell.short_id, cell.why)
}

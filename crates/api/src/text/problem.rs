//! Problems as text, with the conflicts of a refused edit.

use crate::api::problem::{Problem, RefusedEdit};
use crate::editing::conflict_summary::ConflictSummary;
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::notebook::DiffLine;

/// How many conflicts are listed.
const CONFLICTS_MAX: usize = 3;

/// Returns a problem as lines.
pub fn lines(problem: &Problem) -> Vec<Hint> {
    let mut lines = vec![problem.message.clone().into()];
    let written = problem.lines.iter();
    lines.extend(written.map(|line| Hint::from(format!("  | {line}"))));
    lines.extend(conflicts(&problem.conflicts));
    let hints = problem.hints.iter();
    lines.extend(hints.map(|hint| hint!["hint: ", hint.clone()]));
    lines
}

/// Returns the conflicts of a refusal as lines: of each cell what others changed.
fn conflicts(conflicts: &[RefusedEdit]) -> Vec<Hint> {
    let shown = conflicts.iter().take(CONFLICTS_MAX).flat_map(block);
    let mut lines: Vec<_> = shown.collect();
    match conflicts.len().saturating_sub(CONFLICTS_MAX) {
        0 => {}
        1 => lines.push("and one more cell".into()),
        more => lines.push(format!("and {more} more cells").into()),
    }
    lines
}

fn block(refused: &RefusedEdit) -> Vec<Hint> {
    let conflict = &refused.conflict;
    let cell = conflict.cell.as_deref();
    let subject = cell.map_or_else(|| "the notebook".to_owned(), |cell| format!("cell {cell}"));
    let revision = conflict.revision.map(|it| format!(" · revision {it}"));
    let unsaved = if refused.unsaved {
        " · not saved yet"
    } else {
        ""
    };
    let (field, revision) = (&conflict.field, revision.unwrap_or_default());
    let mut lines = vec![format!("{subject} · {field}{revision}{unsaved}").into()];
    if conflict.theirs.is_none() {
        lines.push("  removed".into());
    }
    lines.extend(changed(&refused.changed, cell));
    if let Some(lost) = &refused.lost {
        lines.push("  not in the notebook:".into());
        lines.extend(changed(lost, None));
    }
    lines
}

/// Returns changed lines, and how to look at those that are left out.
fn changed(summary: &ConflictSummary, cell: Option<&str>) -> Vec<Hint> {
    let lines = summary.lines.iter().map(|line| match line {
        DiffLine::Same(text) => format!("    {text}"),
        DiffLine::Removed(text) => format!("  - {text}"),
        DiffLine::Added(text) => format!("  + {text}"),
    });
    let mut lines: Vec<_> = lines.map(Hint::from).collect();
    if summary.left_out > 0 {
        let s = if summary.left_out == 1 { "" } else { "s" };
        let line = Hint::from(format!("  … {} more changed line{s}", summary.left_out));
        lines.push(match cell {
            Some(cell) => hint![line, ": ", nb(Verb::Cell).word(cell)],
            None => line,
        });
    }
    lines
}

//! Conflicts of an edit, as people read them.

use std::path::Path;

use crate::api::problem::{Problem, RefusedEdit};
use crate::editing::conflict_summary::ConflictSummary;
use crate::kernel::shell::quote;
use crate::notebook::DiffLine;

/// The longest command that a hint repeats, in characters.
const LONG_COMMAND: usize = 120;

/// How many conflicts are listed.
const MOST: usize = 3;

/// Returns the conflicts of a refusal as lines: of each cell what others changed.
pub(crate) fn lines(conflicts: &[RefusedEdit]) -> Vec<String> {
    let shown = conflicts.iter().take(MOST).flat_map(block);
    let mut lines: Vec<_> = shown.collect();
    match conflicts.len().saturating_sub(MOST) {
        0 => {}
        1 => lines.push("and one more cell".to_owned()),
        more => lines.push(format!("and {more} more cells")),
    }
    lines
}

fn block(refused: &RefusedEdit) -> Vec<String> {
    let conflict = &refused.conflict;
    let cell = conflict.cell.as_deref();
    let what = cell.map_or_else(|| "the notebook".to_owned(), |cell| format!("cell {cell}"));
    let revision = conflict.revision.map(|it| format!(" · revision {it}"));
    let unsaved = if refused.unsaved {
        " · not saved yet"
    } else {
        ""
    };
    let (field, revision) = (&conflict.field, revision.unwrap_or_default());
    let mut lines = vec![format!("{what} · {field}{revision}{unsaved}")];
    if conflict.theirs.is_none() {
        lines.push("  removed".to_owned());
    }
    lines.extend(changed(&refused.changed, cell));
    if let Some(lost) = &refused.lost {
        lines.push("  not in the notebook:".to_owned());
        lines.extend(changed(lost, None));
    }
    lines
}

/// Returns changed lines, and how to look at those that are left out.
fn changed(summary: &ConflictSummary, cell: Option<&str>) -> Vec<String> {
    let lines = summary.lines.iter().map(|line| match line {
        DiffLine::Same(text) => format!("    {text}"),
        DiffLine::Removed(text) => format!("  - {text}"),
        DiffLine::Added(text) => format!("  + {text}"),
    });
    let mut lines: Vec<_> = lines.collect();
    if summary.left_out > 0 {
        let s = if summary.left_out == 1 { "" } else { "s" };
        let look = cell.map_or_else(String::new, |cell| format!(": nb cell {cell}"));
        lines.push(format!(
            "  … {} more changed line{s}{look}",
            summary.left_out
        ));
    }
    lines
}

/// Returns a text as indented lines.
pub(crate) fn indented(text: &str) -> Vec<String> {
    text.split('\n')
        .map(|line| format!("    | {line}"))
        .collect()
}

/// Adds hints to a problem with conflicts: how to repeat `command`, now that its writer has seen the
/// present cells.
pub(crate) fn with_repeat(problem: Problem, command: &str) -> Problem {
    let (only_if, is_unsaved) = match problem.conflicts.as_slice() {
        [] => return problem,
        [only] if matches!(command, "edit" | "rm") && !only.unsaved => {
            (only.conflict.revision, false)
        }
        all => (None, all.iter().any(|it| it.unsaved)),
    };
    let only_if = only_if.map(|revision| format!(" --if-rev {revision}"));
    let typed = typed(command, &only_if.unwrap_or_default());
    let hint = match is_unsaved {
        true => format!("ask for it to be saved or reverted there, then repeat: {typed}"),
        false => format!("if it still holds, repeat it: {typed}"),
    };
    problem.hint(hint).hint("--force writes without a check")
}

/// Returns the command as it was typed, with `option` added and an earlier `--if-rev` removed.
fn typed(command: &str, option: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let given = std::env::args_os().skip(1);
    let mut given = given.map(|word| word.to_string_lossy().into_owned());
    let mut named = false;
    while let Some(word) = given.next() {
        match word.as_str() {
            "--if-rev" => drop(given.next()),
            word if word.starts_with("--if-rev=") => {}
            word if word == command && !named => {
                named = true;
                words.push(format!("{word}{option}"));
            }
            word => words.push(quote(Path::new(word))),
        }
    }
    let typed = format!("nb {}", words.join(" "));
    match named && typed.chars().count() <= LONG_COMMAND {
        true => typed,
        false => format!("nb {command}{option} …"),
    }
}

//! How to repeat an edit that was refused.

use std::path::Path;

use crate::api::problem::Problem;
use crate::kernel::shell::quote;

/// The longest command that a hint repeats, in characters.
const LONG_COMMAND: usize = 120;

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

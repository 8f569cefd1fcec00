//! How to repeat an edit that was refused.

use crate::api::problem::Problem;
use crate::hint;
use crate::hint::shell::quote_word;
use crate::hint::{Command, Verb, nb};

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
    let typed = typed(command, only_if.as_deref().unwrap_or_default());
    let hint = match (is_unsaved, not_whole(&problem)) {
        (true, _) => hint![
            "ask for it to be saved or reverted there, then repeat: ",
            typed
        ],
        // With `--if-rev` the command works even if the writer has not seen the whole cell.
        (false, Some(cells)) if only_if.is_none() => {
            let look = cells.into_iter().fold(nb(Verb::Cell), Command::word);
            hint![
                "look first: ",
                look,
                "; if it still holds, repeat it: ",
                typed
            ]
        }
        (false, _) => hint!["if it still holds, repeat it: ", typed],
    };
    problem.hint(hint).hint("--force writes without a check")
}

/// Returns the cells of which a problem shows only a part, if there are any.
fn not_whole(problem: &Problem) -> Option<Vec<&str>> {
    let left_out = problem
        .conflicts
        .iter()
        .filter(|it| it.changed.left_out > 0);
    let cells: Vec<_> = left_out
        .filter_map(|it| it.conflict.cell.as_deref())
        .collect();
    (!cells.is_empty()).then_some(cells)
}

/// Returns the command as it was typed, with `option` added and an earlier `--if-rev` removed.
fn typed(command: &str, option: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let arguments = std::env::args_os().skip(1);
    let mut arguments = arguments.map(|word| word.to_string_lossy().into_owned());
    let mut named = false;
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "--if-rev" => drop(arguments.next()),
            word if word.starts_with("--if-rev=") => {}
            word if word == command && !named => {
                named = true;
                words.push(format!("{word}{option}"));
            }
            word => words.push(quote_word(word.as_ref())),
        }
    }
    let typed = format!("nb {}", words.join(" "));
    match named && typed.chars().count() <= LONG_COMMAND {
        true => typed,
        false => format!("nb {command}{option} …"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::problem::ProblemKind;
    use crate::notebook::Conflict;

    #[test]
    fn who_sees_only_a_part_of_a_text_is_told_how_to_see_all_of_it() {
        let hint = |theirs: &str| {
            let conflict = Conflict {
                cell: Some("3f2c".to_owned()),
                theirs: Some(theirs.to_owned()),
                ..Conflict::default()
            };
            let problem = Problem::new(ProblemKind::Conflict, "x");
            let problem = with_repeat(problem.with_conflicts(&[conflict], false), "apply");
            problem.hints[0].to_string()
        };
        assert_eq!(hint("x"), "if it still holds, repeat it: nb apply …");
        assert_eq!(
            hint(&"x\n".repeat(200)),
            "look first: nb cell 3f2c; if it still holds, repeat it: nb apply …"
        );
    }
}

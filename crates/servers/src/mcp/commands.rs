//! Hints name commands of `nb`; a client reads the tools that do the same.

use std::sync::LazyLock;

use regex::Regex;

use crate::api::problem::Problem;
use crate::text;

/// Commands, each with the tool that does the same.
const TOOLS: [(&str, &str); 20] = [
    ("apply", "apply_edits"),
    ("cell", "read_cell"),
    ("cells", "get_notebook_state"),
    ("diff", "history diff"),
    ("edit", "update_cell"),
    ("exec", "run_cell"),
    ("insert", "create_cell"),
    ("interrupt", "kernel interrupt"),
    ("log", "history log"),
    ("open", "open_notebook"),
    ("reply", "answer_input"),
    ("restart", "kernel restart"),
    ("restore", "history restore"),
    ("rm", "delete_cell"),
    ("run", "run_cell"),
    ("shutdown", "kernel shutdown"),
    ("status", "kernel status"),
    ("undo", "history undo"),
    ("vars", "variables"),
    ("wait", "get_run_status"),
];

/// Options of these commands, each with the tool's argument: one that ends with a colon has the next word as its
/// value, and an empty one is left out.
const ARGUMENTS: [(&str, &str, &str); 20] = [
    ("apply", "--force", "force: true"),
    ("cell", "--source-only", ""),
    ("cell", "--output", "with a greater limit, output"),
    ("cell", "-c", ""),
    ("edit", "--force", "force: true"),
    ("exec", "--all", "all: true"),
    ("exec", "--stale", "stale: true"),
    ("interrupt", "--force", "force: true"),
    ("open", "--kernel", "kernel:"),
    ("open", "--kernel-of", "kernel_of:"),
    ("open", "--python", "python:"),
    ("open", "--server", "server:"),
    ("reply", "-", ""),
    ("restart", "--force", "force: true"),
    ("rm", "--force", "force: true"),
    ("shutdown", "--force", "force: true"),
    ("undo", "--force", "force: true"),
    ("vars", "--all", ""),
    ("wait", "--all", "all: true"),
    ("wait", "--stream", ""),
];

/// Other texts, each with what a client reads in its place.
const PHRASES: [(&str, &str); 8] = [
    ("--all replaces it", "replace_all: true replaces it"),
    ("--all, --from, --to or --replay", "all"),
    ("--force", "force: true"),
    ("--kernel NAME or --python PATH", "kernel or python"),
    ("--kernel ", "kernel: "),
    ("--python PATH", "python"),
    ("; --all lists functions and modules too", ""),
    ("; --limit 0 lists all", ""),
];

/// A sentence about a command that no tool does, and what a client reads in its place.
const LISTS_JOBS: (&str, &str) = (
    "nb jobs lists them",
    "the answer that began it has its run_id",
);

/// A command up to the end of its sentence, with what joins it to the command before it.
static COMMAND: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?<join>(?:&&|\|) )?\bnb (?<word>[a-z]+)\b(?<rest>[^;,()|&·\n]*)").ok()
});

/// Returns a text in which commands are the tools that do the same, where there is one. Of several commands in a row
/// those are left out that no tool does.
pub(super) fn as_tools(text: &str) -> String {
    let Some(command) = &*COMMAND else {
        return text.to_owned();
    };
    let text = &text.replace(LISTS_JOBS.0, LISTS_JOBS.1);
    let mut rewritten = String::with_capacity(text.len());
    let mut end = 0;
    for found in command.captures_iter(text) {
        let (Some(whole), Some(rest)) = (found.get(0), found.name("rest")) else {
            continue;
        };
        rewritten.push_str(&with_phrases(&text[end..whole.start()]));
        end = whole.end();
        let join = found.name("join").map_or("", |join| join.as_str());
        match (call(&found["word"], rest.as_str()), join) {
            (Some(call), join) => rewritten.extend([join, &call]),
            (None, "") => rewritten.push_str(whole.as_str()),
            (None, _) => {
                rewritten.truncate(rewritten.trim_end().len());
                let blanks = rest.as_str().trim_end().len();
                rewritten.push_str(&rest.as_str()[blanks..]);
            }
        }
    }
    rewritten.push_str(&with_phrases(&text[end..]));
    rewritten
}

/// Returns a problem as lines, in which commands are tools.
pub(super) fn problem_lines(problem: &Problem) -> Vec<String> {
    let mut problem = problem.clone();
    problem.message = as_tools(&problem.message);
    for hint in &mut problem.hints {
        *hint = as_tools(hint);
    }
    let lines = text::problem::lines(&problem).into_iter();
    // The other lines below a message are of cells and kernels.
    let lines = lines.map(|line| match line.starts_with("  … ") {
        true => as_tools(&line),
        false => line,
    });
    lines.collect()
}

/// Returns the call of a tool that does the same as a command; none if no tool does.
fn call(word: &str, rest: &str) -> Option<String> {
    let (_, tool) = TOOLS.iter().find(|(command, _)| *command == word)?;
    // An argument of a tool is a text.
    let rest = rest.replace(" - < FILE", "");
    let mut call = (*tool).to_owned();
    // The blanks stay as they are.
    for next in rest.split_inclusive(' ') {
        let option = next.trim_end();
        if !option.starts_with('-') || option.parse::<i64>().is_ok() {
            call.push_str(next);
            continue;
        }
        let of_it = |(command, name, _): &&(&str, &str, &str)| *command == word && *name == option;
        let (.., argument) = ARGUMENTS.iter().find(of_it)?;
        if !argument.is_empty() {
            call.push_str(argument);
            call.push_str(&next[option.len()..]);
        }
    }
    Some(call)
}

fn with_phrases(text: &str) -> String {
    let mut text = text.to_owned();
    for (phrase, replacement) in PHRASES {
        text = text.replace(phrase, replacement);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::as_tools;

    #[test]
    fn a_hint_names_tools() {
        for (hint, expected) in [
            ("nb open a.ipynb", "open_notebook a.ipynb"),
            (
                "next: nb wait 7f3a | nb interrupt 7f3a",
                "next: get_run_status 7f3a | kernel interrupt 7f3a",
            ),
            (
                "ask them first; to insist: nb restart --force a.ipynb",
                "ask them first; to insist: kernel restart force: true a.ipynb",
            ),
            ("nb doctor", "nb doctor"),
            ("nb open a.ipynb --own", "nb open a.ipynb --own"),
            ("nb exec --all", "run_cell all: true"),
            (
                "nb open a.ipynb --kernel-of b.ipynb",
                "open_notebook a.ipynb kernel_of: b.ipynb",
            ),
            (
                "next: nb wait 7f3a | nb interrupt 7f3a | nb run --peek CODE",
                "next: get_run_status 7f3a | kernel interrupt 7f3a",
            ),
            (
                "said nothing; nb wait 7f3a --all --stream shows all",
                "said nothing; get_run_status 7f3a all: true shows all",
            ),
            (
                "nb open a.ipynb && nb exec a.ipynb --replay",
                "open_notebook a.ipynb",
            ),
            (
                "next: nb reply 7f3a - < FILE | nb interrupt 7f3a",
                "next: answer_input 7f3a | kernel interrupt 7f3a",
            ),
            (
                "nb cell -c 3f2c --source-only shows its text",
                "read_cell 3f2c shows its text",
            ),
            ("nb vars --all lists the names", "variables lists the names"),
            (
                "--all replaces it wherever it is",
                "replace_all: true replaces it wherever it is",
            ),
            (
                "nb cell -1 (or nb cell 3f2c)",
                "read_cell -1 (or read_cell 3f2c)",
            ),
            ("the nbformat", "the nbformat"),
            (
                "to take it back over that: nb undo a.ipynb 7f3a --force",
                "to take it back over that: history undo a.ipynb 7f3a force: true",
            ),
            (
                "nb jobs lists them",
                "the answer that began it has its run_id",
            ),
            (
                "by themselves and by --all, --from, --to or --replay",
                "by themselves and by all",
            ),
            (
                "name another with --python PATH",
                "name another with python",
            ),
            (
                "another kernel can be named with --kernel NAME or --python PATH",
                "another kernel can be named with kernel or python",
            ),
        ] {
            assert_eq!(as_tools(hint), expected);
        }
    }
}

//! Hints name commands of `nb`; a client reads the tools that do the same.

use crate::api::problem::{self, Problem};
use crate::hint::shell::quote;
use crate::hint::{Command, Hint, HintPart, OptionName, Verb, Word};
use crate::text;

/// Returns the tool that does the same as a command, if there is one.
fn tool(verb: Verb) -> Option<&'static str> {
    Some(match verb {
        Verb::Apply => "apply_edits",
        Verb::Cell => "read_cell",
        Verb::Cells => "get_notebook_state",
        Verb::Diff => "history diff",
        Verb::Edit => "update_cell",
        Verb::Exec | Verb::Run => "run_cell",
        Verb::Insert => "create_cell",
        Verb::Interrupt => "kernel interrupt",
        Verb::Log => "history log",
        Verb::Open => "open_notebook",
        Verb::Reply => "answer_input",
        Verb::Restart => "kernel restart",
        Verb::Restore => "history restore",
        Verb::Rm => "delete_cell",
        Verb::Shutdown => "kernel shutdown",
        Verb::Status => "kernel status",
        Verb::Undo => "history undo",
        Verb::Vars => "variables",
        Verb::Wait => "get_run_status",
        Verb::Graph | Verb::Jobs | Verb::Kernels | Verb::Move | Verb::Mv | Verb::Search => {
            return None;
        }
    })
}

/// Options of commands, each with the tool's argument: one that ends with a colon has the next word as its value, and
/// an empty one is left out.
const ARGUMENTS: [(Verb, &str, &str); 19] = [
    (Verb::Apply, "--force", "force: true"),
    (Verb::Cell, "--source-only", ""),
    (Verb::Cell, "-c", ""),
    (Verb::Edit, "--all", "replace_all: true"),
    (Verb::Edit, "--force", "force: true"),
    (Verb::Exec, "--all", "all: true"),
    (Verb::Exec, "--stale", "stale: true"),
    (Verb::Interrupt, "--force", "force: true"),
    (Verb::Open, "--kernel", "kernel:"),
    (Verb::Open, "--kernel-of", "kernel_of:"),
    (Verb::Open, "--python", "python:"),
    (Verb::Open, "--server", "server:"),
    (Verb::Restart, "--force", "force: true"),
    (Verb::Rm, "--force", "force: true"),
    (Verb::Shutdown, "--force", "force: true"),
    (Verb::Undo, "--force", "force: true"),
    (Verb::Vars, "--all", ""),
    (Verb::Wait, "--all", "all: true"),
    (Verb::Wait, "--stream", ""),
];

/// Returns a hint in which commands are the tools that do the same, where there is one. Of several commands in a row
/// those are left out that no tool does.
pub(super) fn as_tools(hint: &Hint) -> String {
    if *hint == problem::lists_jobs() {
        return "the answer that began it has its run_id".to_owned();
    }
    let mut text = String::new();
    let mut joint = None;
    for part in hint.parts() {
        let shown = match part {
            HintPart::Joint(next) => {
                joint = Some(next);
                continue;
            }
            HintPart::Command(command) => match call(command) {
                None if joint.take().is_some() => continue,
                call => call.unwrap_or_else(|| command.to_string()),
            },
            HintPart::Text(text) => text.to_string(),
            HintPart::Option(option) => argument_of(option),
            HintPart::Path(path) => quote(path),
        };
        text.push_str(joint.take().map_or("", |joint| joint.text()));
        text.push_str(&shown);
    }
    text
}

/// Returns a problem as lines, in which commands are tools.
pub(super) fn problem_lines(problem: &Problem) -> Vec<String> {
    let problem = problem.clone().worded(as_tools);
    let lines = text::problem::lines(&problem);
    lines.iter().map(as_tools).collect()
}

/// Returns the call of a tool that does the same as a command; none if no tool does.
fn call(command: &Command) -> Option<String> {
    let mut call = tool(command.verb)?.to_owned();
    for word in &command.words {
        let word = match word {
            Word::Option(name) => argument(command.verb, name)?.to_owned(),
            // An argument of a tool is a text.
            Word::Stdin(_) => String::new(),
            word => word.to_string(),
        };
        if !word.is_empty() {
            call = call + " " + &word;
        }
    }
    Some(call)
}

/// Returns the argument of a tool that is a command's option; none if there is none.
fn argument(verb: Verb, name: &str) -> Option<&'static str> {
    let mut arguments = ARGUMENTS.iter();
    let found = arguments.find(|(command, option, _)| *command == verb && *option == name);
    found.map(|(.., argument)| *argument)
}

/// Returns the name of the argument that is an option.
fn argument_of(option: &OptionName) -> String {
    match argument(option.verb, option.name) {
        Some(argument) => argument.trim_end_matches(':').to_owned(),
        None => option.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::hint;
    use crate::hint::Joint::{And, Or};
    use crate::hint::{nb, option};

    #[test]
    fn a_hint_names_tools() {
        let notebook = Path::new("a.ipynb");
        let open = || nb(Verb::Open).notebook(notebook);
        let wait = || nb(Verb::Wait).job("7f3a");
        let interrupt = || nb(Verb::Interrupt).job("7f3a");
        let restart = nb(Verb::Restart).option("--force").notebook(notebook);
        let undo = nb(Verb::Undo)
            .notebook(notebook)
            .word("7f3a")
            .option("--force");
        for (hint, expected) in [
            (open().into(), "open_notebook a.ipynb"),
            (
                hint!["next: ", wait(), Or, interrupt()],
                "next: get_run_status 7f3a | kernel interrupt 7f3a",
            ),
            (
                hint!["ask them first; to insist: ", restart],
                "ask them first; to insist: kernel restart force: true a.ipynb",
            ),
            (nb(Verb::Graph).into(), "nb graph"),
            (open().option("--own").into(), "nb open a.ipynb --own"),
            (nb(Verb::Exec).option("--all").into(), "run_cell all: true"),
            (
                open()
                    .option("--kernel-of")
                    .word(Path::new("b.ipynb"))
                    .into(),
                "open_notebook a.ipynb kernel_of: b.ipynb",
            ),
            (
                hint![
                    "next: ",
                    wait(),
                    Or,
                    interrupt(),
                    Or,
                    nb(Verb::Run).option("--peek").word("CODE")
                ],
                "next: get_run_status 7f3a | kernel interrupt 7f3a",
            ),
            (
                hint![
                    "said nothing; ",
                    wait().option("--all").option("--stream"),
                    " shows all"
                ],
                "said nothing; get_run_status 7f3a all: true shows all",
            ),
            (
                hint![
                    open(),
                    And,
                    nb(Verb::Exec).notebook(notebook).option("--replay")
                ],
                "open_notebook a.ipynb",
            ),
            (
                hint![
                    "next: ",
                    nb(Verb::Reply).job("7f3a").stdin("FILE"),
                    Or,
                    interrupt()
                ],
                "next: answer_input 7f3a | kernel interrupt 7f3a",
            ),
            (
                hint![
                    nb(Verb::Cell)
                        .option("-c")
                        .word("3f2c")
                        .option("--source-only"),
                    " shows its text"
                ],
                "read_cell 3f2c shows its text",
            ),
            (
                hint![nb(Verb::Vars).option("--all"), " lists the names"],
                "variables lists the names",
            ),
            (
                hint![option(Verb::Edit, "--all"), " replaces it wherever it is"],
                "replace_all: true replaces it wherever it is",
            ),
            (
                hint![
                    nb(Verb::Cell).word("-1"),
                    " (or ",
                    nb(Verb::Cell).word("3f2c"),
                    ")"
                ],
                "read_cell -1 (or read_cell 3f2c)",
            ),
            ("the nbformat".into(), "the nbformat"),
            (
                hint!["to take it back over that: ", undo],
                "to take it back over that: history undo a.ipynb 7f3a force: true",
            ),
            (
                problem::lists_jobs(),
                "the answer that began it has its run_id",
            ),
            (
                hint![
                    "name another with ",
                    option(Verb::Open, "--python").value("PATH")
                ],
                "name another with python",
            ),
            (
                hint![
                    "another kernel can be named with ",
                    option(Verb::Open, "--kernel").value("NAME"),
                    " or ",
                    option(Verb::Open, "--python").value("PATH")
                ],
                "another kernel can be named with kernel or python",
            ),
            (
                hint![
                    nb(Verb::Shutdown).notebook(notebook),
                    And,
                    "mv ",
                    notebook,
                    " FOLDER"
                ],
                "kernel shutdown a.ipynb && mv a.ipynb FOLDER",
            ),
        ] {
            assert_eq!(as_tools(&hint), expected);
        }
    }
}

//! Hints name commands of `nb`; a client reads the tools that do the same.

use std::sync::LazyLock;

use regex::{Captures, Regex};

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

static COMMAND: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\bnb ([a-z]+)\b").ok());

/// Returns a text in which commands are the tools that do the same, where there is one.
pub(super) fn as_tools(text: &str) -> String {
    let Some(command) = &*COMMAND else {
        return text.to_owned();
    };
    let text = command.replace_all(text, |found: &Captures<'_>| {
        let word = found.get(1).map_or("", |word| word.as_str());
        let tool = TOOLS.iter().find(|(command, _)| *command == word);
        tool.map_or_else(|| found[0].to_owned(), |(_, tool)| (*tool).to_owned())
    });
    text.replace("--force", "force: true")
}

#[cfg(test)]
mod tests {
    use super::as_tools;

    #[test]
    fn a_hint_names_tools() {
        for (hint, told) in [
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
            ("the nbformat", "the nbformat"),
        ] {
            assert_eq!(as_tools(hint), told);
        }
    }
}

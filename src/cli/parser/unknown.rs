//! Words that are no command: which command the user probably wants.

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::commands::COMMANDS;

/// Words that people and agents type for what other commands do, and how it is done.
const ELSEWHERE: [(&str, &str); 37] = [
    ("version", "nb --version"),
    (
        "init begin use use-notebook open-notebook",
        "nb open NOTEBOOK.ipynb",
    ),
    (
        "attach connect",
        "nb open NOTEBOOK.ipynb --attach CONNECTION_FILE",
    ),
    (
        "share join-kernel",
        "nb open NEW.ipynb --kernel-of OTHER.ipynb",
    ),
    ("sandbox", "nb open --sandbox"),
    (
        "kernel kernel-list",
        "nb kernels lists what can be started; nb status shows what runs",
    ),
    ("who whoami where", "nb status"),
    ("break", "nb interrupt"),
    (
        "reset",
        "nb restart starts a new kernel; nb clear removes outputs; nb undo takes edits back",
    ),
    (
        "quit exit end stop-kernel",
        "nb shutdown ends the kernel; nb interrupt ends what it runs",
    ),
    ("check diagnose", "nb doctor"),
    (
        "clean cleanup prune",
        "nb gc frees disk space; nb clear removes outputs",
    ),
    ("notebook get-cells", "nb cells"),
    (
        "get print show-cell get-cell",
        "nb cell CELL | nb run 'print(x)'",
    ),
    ("new-cell append-cell", "nb insert SOURCE"),
    (
        "append",
        "nb insert SOURCE adds a cell; nb edit CELL --append SOURCE adds lines",
    ),
    ("set write modify overwrite set-cell", "nb edit CELL SOURCE"),
    ("del rm-cell", "nb rm CELL"),
    ("reorder", "nb move CELL --after CELL"),
    ("sub substitute", "nb replace OLD NEW"),
    ("concat", "nb join CELL CELL"),
    ("changes compare", "nb diff"),
    ("batch patch", "nb apply -"),
    (
        "convert nbconvert html pdf to-py py percent",
        "nb export prints plain text; jupyter nbconvert makes other formats",
    ),
    (
        "recover checkpoint versions",
        "nb log CELL lists the versions of a cell; nb restore CELL@REVISION",
    ),
    ("flush sync", "nb save"),
    ("lint tidy", "nb fmt"),
    (
        "run-all execute-all runall run-cells execute-cells exec-cell",
        "nb exec --all | nb exec CELL",
    ),
    ("python execute-code run-code code", "nb run CODE"),
    ("inspect dir locals", "nb vars | nb run 'x?'"),
    ("job attach-job", "nb jobs | nb wait JOB"),
    ("input respond", "nb reply JOB TEXT"),
    ("journal", "nb log"),
    (
        "tag tags metadata meta",
        "nb edit CELL --meta tags='[\"draft\"]'",
    ),
    ("agents skill", "nb agent install PROGRAM"),
    ("mcp-server", "nb mcp"),
    (
        "install pip setup",
        "nb open --install installs ipykernel; nb serve installs the kernelspec for front ends",
    ),
];

/// How many letters may be wrong in a command.
const WRONG: usize = 2;

/// Makes the problem of a word that is no command.
pub(super) fn unknown(word: &str) -> Problem {
    let problem = Problem::new(ProblemKind::Usage, format!("there is no command {word:?}"));
    match suggestion(word) {
        Some(hint) => problem.hint(hint),
        None => problem.hint("nb help all lists the commands"),
    }
}

/// Returns what a word is likely to mean.
fn suggestion(word: &str) -> Option<String> {
    let plain = word.to_lowercase().replace('_', "-");
    let has = |words: &str| words.split_whitespace().any(|it| it == plain);
    if let Some((_, hint)) = ELSEWHERE.iter().find(|(words, _)| has(words)) {
        return Some((*hint).to_owned());
    }
    let names = COMMANDS.iter().flat_map(|entry| {
        let names = entry.aliases.split_whitespace().chain([entry.name]);
        names.map(|name| (name, entry.name))
    });
    let distances =
        names.map(|(name, command)| (strsim::damerau_levenshtein(name, &plain), name, command));
    let (distance, name, command) = distances.min()?;
    (distance <= WRONG && distance * 2 < name.len()).then(|| format!("nb {command}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_type_leads_to_the_command_that_is_meant() {
        let typed = include_str!("typed.txt");
        let parser = crate::cli::parser::parser();
        let mut count = 0;
        for line in typed.lines().filter(|line| !line.starts_with('#')) {
            let (words, command) = line.split_once(':').unwrap_or_else(|| panic!("{line}"));
            let command = command.trim();
            for word in words.split_whitespace() {
                count += 1;
                let found = parser.find_subcommand(word).map(clap::Command::get_name);
                match found {
                    Some(found) => assert_eq!(found, command, "nb {word}"),
                    None => {
                        let hint =
                            suggestion(word).unwrap_or_else(|| panic!("nb {word} means nothing"));
                        assert!(hint.contains(&format!("nb {command}")), "nb {word}: {hint}");
                    }
                }
            }
        }
        assert!(count >= 150, "{count}");
        for word in ["xyzzy", "a", "frobnicate", ""] {
            assert_eq!(suggestion(word), None, "{word}");
        }
    }
}

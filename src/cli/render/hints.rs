//! Completes the commands in messages, so that they work as printed: from the user's working directory, and
//! on the notebook as it was typed.
//!
//! The authors of hints write `nb cells lists the cells` or `nb open NOTEBOOK`. Only this module knows
//! which notebook that is, and how the user has spelled its path.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cli::Context;
use crate::kernel::shell::quote;

/// Commands whose first word may be a notebook.
const OF_NOTEBOOK: [&str; 23] = [
    "apply",
    "cell",
    "cells",
    "clear",
    "diff",
    "edit",
    "exec",
    "insert",
    "interrupt",
    "jobs",
    "log",
    "move",
    "open",
    "reply",
    "restart",
    "restore",
    "rm",
    "run",
    "save",
    "shutdown",
    "status",
    "undo",
    "wait",
];

/// The commands among them that take a job, which is looked up in the project of `-n`.
const OF_JOB: [&str; 3] = ["jobs", "reply", "wait"];

/// The texts that end a command within a sentence.
const ENDS: [&str; 8] = [";", ",", ")", "|", "&&", " · ", ": ", "\n"];

/// The longest command that is repeated, in characters.
const LONG: usize = 300;

/// The spelling of the notebook in the commands of messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commands {
    /// The path as the user typed it.
    typed: Option<PathBuf>,
    /// The notebook's path, once it is known.
    path: Option<PathBuf>,
    /// The notebook's path relative to the working directory.
    relative: Option<PathBuf>,
    /// Whether the notebook's project is not the one at or above the working directory.
    is_far: bool,
}

impl Context {
    /// Returns how the commands in this command's messages spell its notebook.
    pub(crate) fn commands(&self) -> Commands {
        let target = self.caller.target_notebook();
        let path = target.map(|it| it.project.notebook(&it.key));
        let relative = path.as_ref().map(|path| {
            path.strip_prefix(&self.caller.working_dir)
                .unwrap_or(path)
                .into()
        });
        let project = target
            .map(|it| &it.project)
            .or(self.caller.project.as_ref());
        let is_far = self.typed.is_some()
            && project.is_some_and(|project| {
                let own_project = crate::project::Project::find(&self.caller.working_dir);
                own_project.is_none_or(|own| own.dir() != project.dir())
            });
        Commands {
            typed: self.typed.clone(),
            path,
            relative,
            is_far,
        }
    }
}

impl Commands {
    /// Returns a message in which each command names the notebook that was typed.
    pub(crate) fn complete(&self, text: &str) -> String {
        let mut text = Cow::Borrowed(text);
        if let Some(shown) = self.typed.as_ref().or(self.relative.as_ref()) {
            let shown = quote(shown);
            text = word_replaced(&text, "NOTEBOOK.ipynb", &shown).into();
            text = word_replaced(&text, "NOTEBOOK", &shown).into();
        }
        let Some(typed) = &self.typed else {
            return text.into_owned();
        };
        let typed = quote(typed);
        if let Some(path) = &self.path {
            text = word_replaced(&text, &quote(path), &typed).into();
        }
        let mut completed = String::with_capacity(text.len() + typed.len());
        let mut rest = &*text;
        while let Some(at) = next_command(rest) {
            let (before, command) = rest.split_at(at);
            completed.push_str(before);
            let word = command["nb ".len()..]
                .split(|c: char| !c.is_ascii_lowercase())
                .next();
            let word = word.unwrap_or_default();
            let end = "nb ".len() + word.len();
            completed.push_str(&command[..end]);
            rest = &command[end..];
            completed.push_str(&self.missing(word, rest, &typed));
        }
        completed.push_str(rest);
        completed
    }

    /// Returns the words to add to a command so that it names the notebook; `rest` follows the command's
    /// first word.
    fn missing(&self, word: &str, rest: &str, typed: &str) -> String {
        let rest = rest.get(..end_of_command(rest)).unwrap_or(rest);
        let next = rest.split_whitespace().next().unwrap_or_default();
        let is_job = OF_JOB.contains(&word) || (word == "interrupt" && is_job_id(next));
        let is_of_all = matches!(word, "status" | "shutdown") && matches!(next, "--all" | "--idle");
        match () {
            () if rest.contains(".ipynb")
                || has_word(rest, typed)
                || is_of_all
                || next == "--help" =>
            {
                String::new()
            }
            () if is_job && self.is_far => format!(" -n {typed}"),
            () if is_job => String::new(),
            () => format!(" {typed}"),
        }
    }
}

/// Returns the length of the rest of a command within a sentence. Nothing within a quoted word ends it.
fn end_of_command(rest: &str) -> usize {
    let mut at = 0;
    while let Some(tail) = rest.get(at..).filter(|tail| !tail.is_empty()) {
        if ENDS.iter().any(|end| tail.starts_with(end)) {
            return at;
        }
        let quoted = tail.strip_prefix(" '").and_then(|word| word.find('\''));
        let next = tail.chars().next().map_or(1, char::len_utf8);
        at += quoted.map_or(next, |length| " '".len() + length + 1);
        // A quote within the word.
        while quoted.is_some()
            && let Some(more) = rest.get(at..).and_then(|it| it.strip_prefix("\\''"))
            && let Some(length) = more.find('\'')
        {
            at += "\\''".len() + length + 1;
        }
    }
    rest.len()
}

fn is_job_id(word: &str) -> bool {
    word.len() == 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the position of the next command that takes a notebook.
fn next_command(text: &str) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = text.get(from..)?.find("nb ") {
        let at = from + at;
        let starts_word = is_boundary(text[..at].chars().next_back());
        let rest = &text[at + "nb ".len()..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase());
        let word = &rest[..end.unwrap_or(rest.len())];
        if starts_word && OF_NOTEBOOK.contains(&word) {
            return Some(at);
        }
        from = at + "nb ".len();
    }
    None
}

/// Says whether a text has a word that is not part of a longer word.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        is_boundary(before.chars().next_back()) && is_boundary(after.chars().next())
    })
}

/// Replaces all occurrences of a word that are not part of a longer word.
fn word_replaced(text: &str, word: &str, replacement: &str) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let is_word = is_boundary(before.chars().next_back()) && is_boundary(after.chars().next());
        replaced.push_str(before);
        replaced.push_str(if is_word { replacement } else { word });
        rest = after;
    }
    replaced.push_str(rest);
    replaced
}

/// Says whether a neighbouring character separates words and paths.
fn is_boundary(neighbour: Option<char>) -> bool {
    !neighbour.is_some_and(|c| c.is_alphanumeric() || "_./-".contains(c))
}

/// Returns the command as it was typed, quoted for a shell; `otherwise` if it is too long to be repeated.
pub(crate) fn as_typed(otherwise: &str) -> String {
    typed_words(std::env::args_os().skip(1), otherwise)
}

fn typed_words(words: impl Iterator<Item = OsString>, otherwise: &str) -> String {
    let words: Vec<_> = words.map(|word| quote(Path::new(&word))).collect();
    let typed = format!("nb {}", words.join(" "));
    let fits = typed.chars().count() <= LONG && !typed.contains('\n');
    if fits { typed } else { otherwise.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(typed: Option<&str>, is_far: bool) -> Commands {
        Commands {
            typed: typed.map(PathBuf::from),
            path: Some("/p/k/f.ipynb".into()),
            relative: Some("k/f.ipynb".into()),
            is_far,
        }
    }

    #[test]
    fn each_command_names_the_notebook_as_it_was_typed() {
        let typed = commands(Some("k/f.ipynb"), false);
        for (hint, expected) in [
            (
                "nb open NOTEBOOK starts one",
                "nb open k/f.ipynb starts one",
            ),
            ("nb open NOTEBOOK.ipynb", "nb open k/f.ipynb"),
            ("nb open /p/k/f.ipynb", "nb open k/f.ipynb"),
            (
                "nb cells lists the cells",
                "nb cells k/f.ipynb lists the cells",
            ),
            (
                "nb status tells its state; nb open starts it",
                "nb status k/f.ipynb tells its state; nb open k/f.ipynb starts it",
            ),
            ("nb exec --all", "nb exec k/f.ipynb --all"),
            (
                "nb open /p/k/f.ipynb && nb exec /p/k/f.ipynb --replay",
                "nb open k/f.ipynb && nb exec k/f.ipynb --replay",
            ),
            ("next: nb wait 7f3a9c01 | nb interrupt 7f3a9c01", ""),
            ("nb undo 12ab", "nb undo k/f.ipynb 12ab"),
            ("nb status --all", ""),
            ("nb apply --help tells what may be in it", ""),
            ("nb edit g.ipynb 3 x", ""),
            ("set NB_NOTEBOOK, or nb serve", ""),
            ("a lamb runs, and nb opens it", ""),
        ] {
            let expected = if expected.is_empty() { hint } else { expected };
            assert_eq!(typed.complete(hint), expected);
        }
    }

    #[test]
    fn a_name_without_an_ending_is_not_doubled() {
        let other = |typed| Commands {
            path: None,
            relative: None,
            ..commands(Some(typed), false)
        };
        for (typed, hint) in [("g.txt", "nb open g.txt makes it"), ("0", "nb open 0")] {
            assert_eq!(other(typed).complete(hint), hint);
        }
        assert_eq!(other("0").complete("nb undo 0abc"), "nb undo 0 0abc");
    }

    #[test]
    fn a_path_is_quoted_for_a_shell() {
        let typed = commands(Some("my folder/it's.ipynb"), false);
        let hint = typed.complete("nb open NOTEBOOK starts one");
        assert_eq!(hint, r"nb open 'my folder/it'\''s.ipynb' starts one");
        let words = ["run", "x = 1", "-n", "a b.ipynb"].map(OsString::from);
        let repeated = typed_words(words.into_iter(), "nb run CODE");
        assert_eq!(repeated, "nb run 'x = 1' -n 'a b.ipynb'");
        let long = [OsString::from("run"), OsString::from("x".repeat(LONG))];
        assert_eq!(typed_words(long.into_iter(), "nb run CODE"), "nb run CODE");
    }

    #[test]
    fn a_quoted_name_ends_no_command() {
        for name in [
            "Chapter 1: intro.ipynb",
            "a, b.ipynb",
            "a; b.ipynb",
            "a | b.ipynb",
            "a (1).ipynb",
            "a && b.ipynb",
            "it's a, b.ipynb",
        ] {
            let typed = commands(Some(name), false);
            let quoted = quote(Path::new(name));
            let hint = typed.complete("nb open NOTEBOOK starts one, nb cells lists the cells");
            let want = format!("nb open {quoted} starts one, nb cells {quoted} lists the cells");
            assert_eq!(hint, want);
            assert_eq!(typed.complete(&want), want);
        }
    }

    #[test]
    fn a_job_of_another_project_is_found_by_its_notebook() {
        let far = commands(Some("../k/f.ipynb"), true);
        assert_eq!(
            far.complete("next: nb wait 7f3a9c01 | nb interrupt 7f3a9c01"),
            "next: nb wait -n ../k/f.ipynb 7f3a9c01 | nb interrupt -n ../k/f.ipynb 7f3a9c01"
        );
    }

    #[test]
    fn without_a_typed_notebook_only_its_place_is_filled() {
        let none = commands(None, false);
        assert_eq!(none.complete("nb open NOTEBOOK"), "nb open k/f.ipynb");
        assert_eq!(
            none.complete("nb cells lists the cells"),
            "nb cells lists the cells"
        );
        let unknown = Commands::default();
        assert_eq!(
            unknown.complete("nb open NOTEBOOK.ipynb"),
            "nb open NOTEBOOK.ipynb"
        );
    }
}

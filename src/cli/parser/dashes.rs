//! Texts that begin with `-`: `nb run '-x + 1'`, `nb insert '--- a ---'`.
//!
//! clap takes each word that begins with `-` as options. Before clap sees the words, a word that stands in
//! the place of a text and is no option of the command gets a [`MARK`], which
//! [`text`](crate::cli::args::dashed::text) removes again. A word is an option if it is
//! - `--name` or `--name=value`, known or not: an unknown one is an error, as it is likely to be mistyped,
//! - `-abc`, if each letter is an option of the command. What follows the letter of an option that takes a
//!   value is that value, unless it begins with a space.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};

use clap::{Arg, CommandFactory as _};

use super::Cli;
use crate::cli::args::dashed::MARK;
use crate::cli::commands::{COMMANDS, Entry};

/// The commands that take texts.
const WITH_TEXTS: [&str; 6] = ["edit", "insert", "replace", "reply", "run", "search"];

/// Marks the texts among the arguments that begin with `-`.
pub(super) fn mark(mut arguments: Vec<OsString>) -> Vec<OsString> {
    for at in texts(&arguments) {
        let mut marked = OsString::from(MARK.to_string());
        marked.push(&arguments[at]);
        arguments[at] = marked;
    }
    arguments
}

/// Returns where the texts that begin with `-` are.
fn texts(arguments: &[OsString]) -> Vec<usize> {
    let mut found = Vec::new();
    let is_dashed = |word: &OsString| dashed(word).is_some();
    if !arguments.iter().skip(1).any(is_dashed) {
        return found;
    }
    let mut command: Option<&Entry> = None;
    let mut options = Options::of(&Cli::command());
    let mut preceding = Preceding::default();
    let mut at = 1;
    while let Some(word) = arguments.get(at) {
        at += 1;
        let Some(entry) = command else {
            match word.to_str().map(|word| options.read(word)) {
                Some(Word::Option { name, values }) => {
                    preceding.options.insert(name);
                    at += values;
                }
                Some(Word::Text) => {
                    let entry = COMMANDS.iter().find(|it| it.is_called(word));
                    let Some(entry) = entry.filter(|it| WITH_TEXTS.contains(&it.name)) else {
                        return found;
                    };
                    command = Some(entry);
                    options.add(&entry.arguments());
                }
                Some(Word::Unknown) | None => return found,
            }
            continue;
        };
        match word.to_str().map_or(Word::Text, |word| options.read(word)) {
            Word::Option { name, values } => {
                preceding.options.insert(name);
                at += values;
            }
            Word::Text => {
                if dashed(word).is_some() && preceding.wants_text(entry.name) {
                    found.push(at - 1);
                }
                preceding.words.push(word.to_string_lossy().into_owned());
            }
            Word::Unknown => break,
        }
    }
    found
}

/// Returns a word that begins with `-` and is more than that.
fn dashed(word: &OsStr) -> Option<&str> {
    word.to_str()
        .filter(|word| word.len() > 1 && word.starts_with('-'))
}

/// What a word is.
enum Word {
    /// An option, and how many of the next words are its values.
    Option { name: String, values: usize },
    /// No option.
    Text,
    /// An option that does not exist, or `--`: clap is to read the rest alone.
    Unknown,
}

/// The options of a command.
struct Options {
    all: Vec<Arg>,
}

impl Options {
    fn of(command: &clap::Command) -> Self {
        let help = Arg::new("help").short('h').long("help");
        let help = help.action(clap::ArgAction::Help);
        let mut options = Self { all: vec![help] };
        options.add(command);
        options
    }

    fn add(&mut self, command: &clap::Command) {
        self.all.extend(command.get_arguments().cloned());
    }

    fn read(&self, word: &str) -> Word {
        let Some(rest) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            return Word::Text;
        };
        let Some(long) = rest.strip_prefix('-') else {
            return self.short(rest);
        };
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !name.is_empty() && (name.starts_with('-') || !name.bytes().all(is_name)) {
            return Word::Text;
        }
        let is_it = |arg: &&Arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(name) || aliases.contains(&name)
        };
        match self.all.iter().find(is_it) {
            Some(arg) => option(arg, value.is_some()),
            None => Word::Unknown,
        }
    }

    /// Reads the letters after a single `-`.
    fn short(&self, letters: &str) -> Word {
        let mut last = None;
        for (at, letter) in letters.char_indices() {
            let is_it = |arg: &&Arg| {
                let aliases = arg.get_all_short_aliases().unwrap_or_default();
                arg.get_short() == Some(letter) || aliases.contains(&letter)
            };
            let Some(arg) = self.all.iter().find(is_it) else {
                return Word::Text;
            };
            let value = &letters[at + letter.len_utf8()..];
            if arg.get_action().takes_values() {
                return match value.starts_with(char::is_whitespace) {
                    true => Word::Text,
                    false => option(arg, !value.is_empty()),
                };
            }
            last = Some(arg);
        }
        last.map_or(Word::Text, |arg| option(arg, true))
    }
}

/// Returns an option whose value may be in the same word.
fn option(arg: &Arg, has_value: bool) -> Word {
    let values = match arg.get_action().takes_values() {
        true => arg.get_num_args().map_or(1, |range| range.min_values()),
        false => 0,
    };
    Word::Option {
        name: arg.get_id().to_string(),
        values: if has_value { 0 } else { values },
    }
}

/// What stands before a word.
#[derive(Default)]
struct Preceding {
    words: Vec<String>,
    /// The ids of the options.
    options: HashSet<String>,
}

impl Preceding {
    /// Says whether the next word of a command is a text.
    fn wants_text(&self, command: &str) -> bool {
        let has = |names: &[&str]| names.iter().any(|name| self.options.contains(*name));
        let is_notebook = |word: &&String| word.ends_with(".ipynb");
        let notebooks = self.words.iter().take_while(is_notebook).count();
        let notebooks = match command {
            "reply" => 0,
            "search" => notebooks,
            _ => notebooks.min(1),
        };
        match (command, &self.words[notebooks..]) {
            ("run" | "search", []) | ("replace" | "reply", [] | [_]) => true,
            ("edit", words) => {
                let cell = usize::from(!has(&["ids", "indexes"]));
                words.len() == cell && !has(&["source", "file", "replace"])
            }
            ("insert", []) => !has(&["source", "file"]),
            ("insert", [index]) => index.parse::<i64>().is_ok() && !has(&["source", "file"]),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::parser;
    use super::*;

    /// Returns the words of a command as its parser gives them, or clap's error.
    fn read(line: &[&str]) -> Result<Vec<String>, clap::Error> {
        let arguments = ["nb"].iter().chain(line).map(OsString::from).collect();
        let matches = parser().try_get_matches_from(mark(arguments))?;
        let (_, own) = matches.subcommand().unwrap();
        let mut words = Vec::new();
        for id in ["words", "job", "text"] {
            if let Ok(Some(found)) = own.try_get_many::<String>(id) {
                words.extend(found.cloned());
            }
        }
        Ok(words)
    }

    #[test]
    fn a_word_in_the_place_of_a_text_is_the_text_unless_it_is_an_option() {
        for (line, want) in [
            (&["run", "-x + 1"][..], &["-x + 1"][..]),
            (&["run", "-1"], &["-1"]),
            (&["run", "-n + 1"], &["-n + 1"]),
            (&["run", "--- a ---"], &["--- a ---"]),
            (&["run", "--x == 1", "--json"], &["--x == 1"]),
            (&["run", "--json", "-df['a']"], &["-df['a']"]),
            (&["run", "-d", "-f(1)"], &["-f(1)"]),
            (&["run", "a.ipynb", "-x"], &["a.ipynb", "-x"]),
            (&["run", "-n", "a.ipynb", "-x"], &["-x"]),
            (&["run", "--", "-x", "--json"], &["-x", "--json"]),
            (&["run", "-"], &["-"]),
            (&["eval", "-x"], &["-x"]),
            (&["-n", "a.ipynb", "run", "-x"], &["-x"]),
            (&["edit", "3f2c", "-1"], &["3f2c", "-1"]),
            (&["edit", "-1", "-1"], &["-1", "-1"]),
            (
                &["edit", "a.ipynb", "3", "-x", "-y"],
                &["a.ipynb", "3", "-y"],
            ),
            (&["edit", "3", "--append", "- a\n- b"], &["3", "- a\n- b"]),
            (&["edit", "-i", "3", "- a"], &["- a"]),
            (&["edit", "3", "--replace", "-1", "-2"], &["3"]),
            (&["edit", "3", "-s", "-x"], &["3"]),
            (&["insert", "--- a ---", "-t", "markdown"], &["--- a ---"]),
            (&["insert", "-x", "-x + 1"], &["-x + 1"]),
            (&["insert", "-1", "- a"], &["-1", "- a"]),
            (&["insert", "0", "-1"], &["0", "-1"]),
            (&["reply", "1a2b", "-1"], &["1a2b", "-1"]),
            (&["reply", "-1"], &["-1"]),
            (&["reply", "1a2b", "-n"], &["1a2b"]),
            (&["replace", "-1", "-2"], &["-1", "-2"]),
            (&["replace", "- a", "* a", "-1"], &["- a", "* a", "-1"]),
            (&["search", "-> None", "-i"], &["-> None"]),
            (
                &["search", "a.ipynb", "b.ipynb", "-x"],
                &["a.ipynb", "b.ipynb", "-x"],
            ),
        ] {
            match read(line) {
                Ok(words) => assert_eq!(words, want, "{line:?}"),
                // Of an option that lacks its value, nothing is a text.
                Err(error) => assert_eq!(line, ["reply", "1a2b", "-n"], "{error}"),
            }
        }
    }

    #[test]
    fn mistyped_options_and_one_text_too_many_are_errors() {
        for (line, wrong) in [
            (&["run", "--jsno"][..], "--jsno"),
            (&["run", "1", "--jsno"], "--jsno"),
            (&["run", "--jsno=1", "1"], "--jsno"),
            (&["run", "1", "-z"], "-z"),
            (&["edit", "3", "x", "-z"], "-z"),
            (&["edit", "3", "-s", "x", "-z"], "-z"),
            (&["insert", "x", "-z"], "-z"),
            (&["insert", "--file", "a.py", "-z"], "-z"),
            (&["cells", "-z"], "-z"),
            (&["-z", "run", "1"], "-z"),
        ] {
            let error = read(line).expect_err(wrong).to_string();
            let text = format!("unexpected argument '{wrong}'");
            assert!(error.contains(&text), "{line:?}: {error}");
        }
    }
}

//! The parser of the command line.
//!
//! Building the parser of all commands with their help takes 0.5 ms, a tenth to a third of the time of a
//! short command. If the first word names a command, only that command's parser is built. If it rejects the
//! arguments, they are parsed again by the full parser, which prints the error.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser};

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::commands::{AnyCommand, COMMANDS, Entry, help};
use crate::cli::render::problem;

/// People and AI agents on one live Jupyter kernel and one notebook
#[derive(Debug, Parser)]
#[command(name = "nb", version = env!("NB_BUILD"), after_help = EXIT_CODES, max_term_width = 100, subcommand_required = true,
    arg_required_else_help = true, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    common: Common,
}

/// The options of every command.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The notebook; without it, the only open one, else the one you used last [env: NB_NOTEBOOK]
    // An id of its own: a command's positional NOTEBOOK would hide a global one of the same id.
    #[arg(short = 'n', long = "notebook", id = "global notebook", global = true, value_name = "NOTEBOOK", help_heading = GLOBAL)]
    pub(crate) notebook: Option<PathBuf>,
    /// Act under this name [env: NB_AS]
    #[arg(long = "as", id = "global name", global = true, value_name = "NAME", help_heading = GLOBAL)]
    pub(crate) name: Option<String>,
}

const GLOBAL: &str = "Options of every command";

const EXIT_CODES: &str = "\
VS Code and JupyterLab join the kernel of a notebook when you choose \"nb shared kernel\" there.

Exit codes: 0 done · 1 nb failed · 2 usage · 3 the code raised · 4 still running (no failure) ·
5 conflict or refused · 6 no kernel, or it died · 7 the code asks (no failure) · 8 outputs differ
(nb verify) · 130 interrupted

A command means the notebook that is named first, else -n, else NB_NOTEBOOK, else the only one
that is open in the project at or above the working directory. Where several are open, commands
that end nothing mean the one that you used last, and say so.";

/// The exit code for a command line that makes no sense.
const USAGE: i32 = 2;

/// A command line.
#[derive(Debug)]
pub(crate) struct CommandLine {
    pub(crate) common: Common,
    pub(crate) command: Box<dyn AnyCommand>,
    /// Whether the answer is to be JSON.
    pub(crate) json: bool,
    /// The command as hints show it if the typed one is too long to be repeated.
    pub(crate) summary: String,
    /// Whether the command does nothing but print: it fails if it cannot.
    pub(crate) only_prints: bool,
}

/// Parses a command line. If the arguments are wrong or ask for help, prints that and exits.
pub(crate) fn read(arguments: &[OsString]) -> CommandLine {
    if let Some(read) = read_quickly(arguments) {
        return read;
    }
    let mut parser = parser();
    if arguments.iter().any(|word| word == "--help") {
        // The help of `nb` itself has one form: --help prints what -h prints.
        let help = parser.render_help();
        parser = parser.override_help(help);
    }
    let is_json = arguments
        .iter()
        .take_while(|word| *word != "--")
        .any(|word| word == "--json");
    let matches = parser.clone().try_get_matches_from(arguments);
    let matches = matches.unwrap_or_else(|error| reject(error, is_json));
    read_matches(&matches).unwrap_or_else(|error| reject(error.format(&mut parser), is_json))
}

/// Prints why the arguments cannot be parsed, or the help that they ask for, and exits.
fn reject(error: clap::Error, is_json: bool) -> ! {
    let error = &without_tip_for_values(error);
    if is_json && error.exit_code() == USAGE {
        problem::report(&usage_problem(error), true);
        std::process::exit(USAGE);
    }
    error.exit()
}

/// Removes the tip to pass an unknown option as a value, behind `--`: it helps with a text such as `-5 + 3`, and misleads
/// a person who misspelled an option.
fn without_tip_for_values(mut error: clap::Error) -> clap::Error {
    let is_option = matches!(
        error.get(ContextKind::InvalidArg),
        Some(ContextValue::String(word)) if word.starts_with("--")
    );
    if is_option
        && let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested)
    {
        tips.retain(|tip| !tip.to_string().contains(" as a value, "));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// Returns the parser's error as a problem: its first paragraph is the message, the others are hints.
fn usage_problem(error: &clap::Error) -> Problem {
    let text = error.render().to_string();
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let words: Vec<_> = paragraph.split_whitespace().collect();
        words.join(" ")
    });
    let mut paragraphs = paragraphs.filter(|paragraph| !paragraph.is_empty());
    let message = paragraphs.next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    Problem::new(ProblemKind::Usage, message).all_hints(paragraphs)
}

/// Returns the parser of all commands. Its own help lists the commands that matter most.
pub(crate) fn parser() -> clap::Command {
    let parser = Cli::command().subcommands(COMMANDS.iter().map(Entry::parser));
    let template = help::template(&parser);
    parser.help_template(template)
}

/// Returns the arguments as [`parser`] would parse them; `None` if only the full parser can.
fn read_quickly(arguments: &[OsString]) -> Option<CommandLine> {
    let first = arguments.get(1)?;
    let entry = COMMANDS.iter().find(|it| first == it.name)?;
    // `help` is a command of `nb` itself.
    let all = clap::Command::new("nb").disable_help_subcommand(true);
    let all = Common::augment_args(all).subcommand(entry.arguments());
    let matches = all.try_get_matches_from(arguments).ok()?;
    read_matches(&matches).ok()
}

fn read_matches(matches: &clap::ArgMatches) -> Result<CommandLine, clap::Error> {
    let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
    let (name, own) = matches.subcommand().ok_or_else(missing)?;
    let entry = COMMANDS.iter().find(|it| it.name == name);
    let entry = entry.ok_or_else(missing)?;
    Ok(CommandLine {
        common: Common::from_arg_matches(matches)?,
        command: (entry.read)(own)?,
        json: entry.is_json(own),
        summary: entry.summary(),
        only_prints: entry.only_prints,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_in_full(words: &[OsString]) -> CommandLine {
        let matches = parser().try_get_matches_from(words);
        let matches = matches.unwrap_or_else(|error| panic!("{error}"));
        read_matches(&matches).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_arguments_hold_together() {
        parser().debug_assert();
    }

    #[test]
    fn the_parsers_error_is_a_problem_with_the_usage_as_a_hint() {
        let words = ["nb", "cells", "--bogus", "--json"];
        let error = parser().try_get_matches_from(words).unwrap_err();
        let problem = usage_problem(&error);
        assert_eq!(problem.message, "unexpected argument '--bogus' found");
        let hints: Vec<_> = problem.hints.iter().map(ToString::to_string).collect();
        let hints = hints.join("\n");
        assert!(hints.contains("Usage: nb cells"), "{hints}");
    }

    #[test]
    fn a_misspelled_option_gets_no_tip_to_pass_it_as_a_value() {
        let says = |words: &[&str]| {
            let error = parser().try_get_matches_from(words).unwrap_err();
            without_tip_for_values(error).to_string()
        };
        let unknown = says(&["nb", "cells", "--colour"]);
        assert!(
            unknown.contains("unexpected argument '--colour'"),
            "{unknown}"
        );
        assert!(!unknown.contains("as a value"), "{unknown}");
        assert!(says(&["nb", "cells", "--jsn"]).contains("'--json'"));
        assert!(says(&["nb", "edit", "t.ipynb", "0", "-5 + 3"]).contains("'-- -5'"));
    }

    #[test]
    fn every_command_takes_the_global_options() {
        for (command, more) in [
            ("open", ""),
            ("status", ""),
            ("run", "1"),
            ("log", ""),
            ("shutdown", ""),
        ] {
            let words = ["nb", command, "-n", "a.ipynb", "--as", "ada", more];
            let words = words.into_iter().filter(|word| !word.is_empty());
            let words: Vec<OsString> = words.map(OsString::from).collect();
            let common = read_in_full(&words).common;
            assert_eq!(common.notebook, Some("a.ipynb".into()), "{command}");
            assert_eq!(common.name.as_deref(), Some("ada"), "{command}");
        }
    }

    #[test]
    fn it_is_read_as_in_full_or_not_at_all() {
        for (line, is_quick) in [
            ("nb cells", true),
            ("nb cells a.ipynb 3 -1 --since 0123456789 --json", true),
            ("nb cell -n a.ipynb 3f2c --limit 100", true),
            ("nb clear a.ipynb --all", true),
            ("nb edit a.ipynb 3 x=1 --as ada --if-rev 0123456789", true),
            ("nb exec --as ada a.ipynb --from 3 --max-time 5", true),
            ("nb insert a.ipynb -a 3 -t markdown text", true),
            ("nb jobs --json", true),
            ("nb open a.ipynb --sandbox --memory 1G", true),
            ("nb open a.ipynb --kernel ir --no-serve", true),
            ("nb rm a.ipynb 3 --force", true),
            ("nb run -n a.ipynb 1+1", true),
            ("nb search x a.ipynb", true),
            ("nb shutdown a.ipynb", true),
            ("nb status --json", true),
            ("nb vars x", true),
            ("nb wait -n a.ipynb", true),
            ("nb help cells", true),
            // Unknown or wrong arguments are left to the full parser.
            ("nb", false),
            ("nb -n a.ipynb cells", false),
            ("nb cells --help", false),
            ("nb cells --nonsense", false),
            ("nb edit --replace", false),
            ("nb open a.ipynb --kernel ir --python p", false),
            ("nb ls a.ipynb", false),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let quick = read_quickly(&words);
            assert_eq!(quick.is_some(), is_quick, "{line}");
            let Some(quick) = quick else { continue };
            let whole = read_in_full(&words);
            assert_eq!(format!("{quick:?}"), format!("{whole:?}"), "{line}");
        }
    }
}

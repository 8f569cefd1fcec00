//! `nb help`: the commands, all of them, or one.

use std::process::ExitCode;

use clap::{Args, Command, CommandFactory as _};

use super::fault::{Fault, Kind};
use super::{Cli, print};

/// Show the help of a command; `nb help all` lists all of them
#[derive(Args, Debug)]
#[command(override_usage = "nb help [all | COMMAND]")]
pub(super) struct Help {
    /// A command, or `all`
    word: Option<String>,
}

/// All commands, by what they are about.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "The kernel",
        &[
            "open",
            "status",
            "interrupt",
            "restart",
            "shutdown",
            "kernels",
            "doctor",
            "gc",
            "adopt",
            "serve",
            "unserve",
        ],
    ),
    (
        "The notebook",
        &[
            "cells", "cell", "insert", "edit", "rm", "move", "clear", "search", "diff", "apply",
            "undo", "restore", "save", "fmt",
        ],
    ),
    (
        "Running",
        &["exec", "run", "vars", "wait", "jobs", "reply", "log"],
    ),
    ("The rest", &["demo", "completions", "help"]),
];

impl Help {
    /// Runs the command.
    pub(super) fn main(self) -> ExitCode {
        let text = match self.word.as_deref() {
            None => Cli::command().render_long_help().ansi().to_string(),
            Some("all") => all(),
            Some(word) => {
                let mut cli = Cli::command();
                cli.build();
                let Some(command) = cli.find_subcommand_mut(word) else {
                    return Fault::new(Kind::Usage, format!("there is no command {word:?}"))
                        .hint("nb help all lists the commands")
                        .report(false);
                };
                command.render_long_help().ansi().to_string()
            }
        };
        let _ = print::raw(text.as_bytes());
        ExitCode::SUCCESS
    }
}

/// Returns the command line with nothing hidden.
pub(super) fn unhidden() -> Command {
    Cli::command().mut_subcommands(|command| command.hide(false))
}

fn all() -> String {
    let cli = Cli::command();
    let mut text = String::new();
    for (title, names) in GROUPS {
        text.push_str(&format!("{title}:\n"));
        for name in names {
            let about = cli.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {name:<11}  {about}\n"));
        }
        text.push('\n');
    }
    text.push_str("nb help COMMAND tells more, with examples; so does nb COMMAND --help.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_stands_in_one_group() {
        let mut listed: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).collect();
        listed.sort();
        let cli = Cli::command();
        let mut there: Vec<_> = cli.get_subcommands().map(Command::get_name).collect();
        there.sort();
        assert_eq!(listed.into_iter().copied().collect::<Vec<_>>(), there);
    }

    #[test]
    fn the_first_screen_shows_about_a_dozen() {
        let cli = Cli::command();
        let shown = cli.get_subcommands().filter(|it| !it.is_hide_set()).count();
        assert!((10..=14).contains(&shown), "{shown}");
    }
}

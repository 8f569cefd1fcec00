//! `nb help`: prints the list of commands, or the help of one.

use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::commands::{COMMANDS, Command, Entry, Group, MakeParser};
use crate::cli::render::{print, problem};

/// Show help: of a command, of `all` commands, or for an `agent`
#[derive(Args, Debug)]
#[command(override_usage = "nb help [all | agent | COMMAND...]")]
pub(crate) struct Help {
    /// A command, `all` or `agent`
    #[arg(value_name = "WORD")]
    words: Vec<String>,
}

/// How an agent works with `nb`.
const AGENT: &str = include_str!("../../../docs/agent.md");

impl Command for Help {
    fn alone(&self, make_parser: MakeParser) -> Option<ExitCode> {
        let mut parser = make_parser();
        let words: Vec<_> = self.words.iter().map(String::as_str).collect();
        let text = match words[..] {
            [] => parser.render_help().ansi().to_string(),
            ["all"] => all(&parser),
            ["agent"] => AGENT.to_owned(),
            _ => {
                parser.build();
                let mut command = &mut parser;
                for word in &words {
                    // A part of a command has no parts of its own that the help names.
                    let Some(found) = command.find_subcommand_mut(word) else {
                        let message = format!("there is no command {:?}", words.join(" "));
                        let problem = Problem::new(ProblemKind::Usage, message)
                            .hint("nb help all lists the commands");
                        return Some(problem::report(&problem, false));
                    };
                    command = found;
                }
                command.render_long_help().ansi().to_string()
            }
        };
        Some(print::code(&print::raw(text.as_bytes())))
    }
}

/// Returns the list of all commands, in groups.
fn all(parser: &clap::Command) -> String {
    let groups = groups(parser, |_| true);
    format!("{groups}nb help COMMAND tells more, with examples; so does nb COMMAND --help.\n")
}

/// Returns the template of the help of `nb` itself, which lists ten commands.
pub(crate) fn template(parser: &clap::Command) -> String {
    let groups = groups(parser, |entry| entry.is_first);
    format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}\
        All commands: nb help all. One, with examples: nb help COMMAND. For an AI agent: nb help agent.\n\n\
        Options of every command:\n{{options}}{{after-help}}"
    )
}

/// Returns some of the commands with what they do, in groups, with a line between two groups.
fn groups(parser: &clap::Command, is_listed: fn(&Entry) -> bool) -> String {
    let mut text = String::new();
    for (title, group) in [
        ("The kernel", Group::Kernel),
        ("The notebook", Group::Notebook),
        ("Running", Group::Running),
        ("The rest", Group::Rest),
    ] {
        let entries = COMMANDS.iter().filter(|entry| entry.group == group);
        let mut entries = entries.filter(|entry| is_listed(entry)).peekable();
        if entries.peek().is_none() {
            continue;
        }
        text.push_str(&format!("{title}:\n"));
        for entry in entries {
            let name = entry.name;
            let about = parser.find_subcommand(name);
            let about = about.and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {name:<11}  {about}\n"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::parser;

    #[test]
    fn every_command_stands_in_the_list_once() {
        let text = all(&parser::parser());
        for entry in &COMMANDS {
            let line = format!("  {:<11}  ", entry.name);
            assert_eq!(text.matches(&line).count(), 1, "{}", entry.name);
        }
    }

    #[test]
    fn the_page_for_agents_names_commands_and_options_that_exist() {
        let parser = parser::parser();
        let lines: Vec<_> = AGENT.lines().collect();
        assert!(lines.len() <= 50, "{} lines", lines.len());
        let commands = AGENT.split([' ', '`']).filter(|word| *word == "nb").count();
        assert!(commands > 20, "{commands}");
        let text = AGENT.replace("ipynb ", "");
        let commands = text.split("nb ").skip(1);
        for words in commands.map(|rest| rest.split(['\n', ';', '`']).next().unwrap_or_default()) {
            let mut words = words.split_whitespace();
            let name = words.next().unwrap_or_default();
            let command = parser.find_subcommand(name);
            let command = command.unwrap_or_else(|| panic!("nb {name}"));
            let options = words.filter_map(|word| word.trim_end_matches(',').strip_prefix("--"));
            for option in options {
                let mut arguments = command.get_arguments();
                assert!(
                    arguments.any(|it| it.get_long() == Some(option)),
                    "nb {name} --{option}"
                );
            }
        }
    }

    #[test]
    fn the_help_of_nb_itself_is_one_screen() {
        let help = parser::parser().render_help().to_string();
        assert!(help.lines().count() <= 40, "{help}");
        let listed = COMMANDS.iter().filter(|entry| entry.is_first);
        assert_eq!(listed.count(), 10);
        insta::assert_snapshot!(help, @r#"
        People and AI agents on one live Jupyter kernel and one notebook

        Usage: nb [OPTIONS] <COMMAND>

        The kernel:
          open         Open a notebook: create it if needed, and keep a kernel alive for it
          status       Show the kernels of this project, who uses them, and whether front ends find them
          shutdown     End the kernel for good; `nb open` starts another

        The notebook:
          cells        List the cells, one line each
          cell         Show cells: their source and their outputs
          insert       Insert a cell: at the end, or where you say
          edit         Edit a cell: the whole text, a part of it, its type or its metadata
          undo         Take an edit back: your last one, or the one that OP names

        Running:
          exec         Run cells in the notebook's kernel, their outputs in the notebook
          run          Run code on the notebook's kernel, outside the notebook

        All commands: nb help all. One, with examples: nb help COMMAND. For an AI agent: nb help agent.

        Options of every command:
          -n, --notebook <NOTEBOOK>  The notebook; without it, the only open one, else the one you used last
                                     [env: NB_NOTEBOOK]
              --as <NAME>            Act under this name [env: NB_AS]
          -h, --help                 Print help
          -V, --version              Print version

        VS Code and JupyterLab join the kernel of a notebook when you choose "nb shared kernel" there.

        Exit codes: 0 done · 1 nb failed · 2 usage · 3 the code raised · 4 still running (no failure) ·
        5 conflict or refused · 6 no kernel, or it died · 7 the code asks (no failure) · 8 outputs differ
        (nb verify) · 130 interrupted

        A command means the notebook that is named first, else -n, else NB_NOTEBOOK, else the only one
        that is open in the project at or above the working directory. Where several are open, commands
        that end nothing mean the one that you used last, and say so.
        "#);
    }
}

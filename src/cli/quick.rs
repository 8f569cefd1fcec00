//! Reads the arguments of the most used commands.
//!
//! To build the parser of all commands with their help takes 0.5 ms, a tenth to a third of the time of a
//! short command. Where the first word names one of these commands, only its own parser is built. What
//! that parser does not accept is parsed again in full, and the full parser says what is wrong.

use std::ffi::OsString;

use clap::{Args, Command as Parser, FromArgMatches as _};

use super::{Cli, Common};
use super::{cell, cells, clear, edit, exec, insert, jobs, open, rm, run, search, shutdown};
use super::{status, vars};

/// Adds a command's options to it.
type Augment = fn(Parser) -> Parser;

const COMMANDS: [(&str, Augment); 15] = [
    ("cell", cell::Cell::augment_args),
    ("cells", cells::Cells::augment_args),
    ("clear", clear::Clear::augment_args),
    ("edit", edit::Edit::augment_args),
    ("exec", exec::Exec::augment_args),
    ("insert", insert::Insert::augment_args),
    ("jobs", jobs::Jobs::augment_args),
    ("open", open::Open::augment_args),
    ("rm", rm::Rm::augment_args),
    ("run", run::Run::augment_args),
    ("search", search::Search::augment_args),
    ("shutdown", shutdown::Shutdown::augment_args),
    ("status", status::Status::augment_args),
    ("vars", vars::Vars::augment_args),
    ("wait", jobs::Wait::augment_args),
];

/// Returns the arguments as [`Cli`] would read them; none where that is for it to do.
pub(super) fn read(arguments: &[OsString]) -> Option<Cli> {
    let first = arguments.get(1)?;
    let (name, augment) = COMMANDS.iter().find(|(name, _)| first == name)?;
    let command = augment(Parser::new(*name));
    let all = Common::augment_args(Parser::new("nb")).subcommand(command);
    let matches = all.try_get_matches_from(arguments).ok()?;
    Cli::from_arg_matches(&matches).ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

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
            // What it does not know, or is wrong, is for the whole.
            ("nb", false),
            ("nb -n a.ipynb cells", false),
            ("nb cells --help", false),
            ("nb cells --nonsense", false),
            ("nb edit --replace", false),
            ("nb open a.ipynb --kernel ir --python p", false),
            ("nb list a.ipynb", false),
            ("nb help cells", false),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let quick = read(&words);
            assert_eq!(quick.is_some(), is_quick, "{line}");
            let Some(quick) = quick else { continue };
            let whole = Cli::try_parse_from(&words).expect("it is understood in full too");
            assert_eq!(format!("{quick:?}"), format!("{whole:?}"), "{line}");
        }
    }
}

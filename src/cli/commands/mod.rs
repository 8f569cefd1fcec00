//! The commands, one file each: parse, call `api`, print the answer, pick the exit code.

mod adopt;
mod apply;
mod cell;
mod cells;
mod change;
mod clear;
mod completions;
mod consent;
mod demo;
mod diff;
mod doctor;
mod edit;
mod exec;
mod fmt;
mod follow;
mod gc;
mod help;
mod insert;
mod interrupt;
mod jobs;
mod kernels;
mod log;
mod move_cell;
mod open;
mod open_choice;
mod restart;
mod restore;
mod rm;
mod run;
mod save;
mod search;
mod serve;
mod shutdown;
mod status;
mod status_watch;
mod undo;
mod vars;

use std::fmt::Debug;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;

use clap::{ArgMatches, Args};

use crate::api::problem::Problem;
use crate::cli::Context;

/// A command: its arguments as they are typed, and what it does with them.
pub(crate) trait Command: Args + Debug + Sized {
    /// Its name.
    const NAME: &'static str;
    /// Other names: those of nb-cli and of the shell.
    const ALIASES: &'static [&'static str] = &[];
    /// What it is about.
    const GROUP: Group;
    /// Whether the first screen of the help shows it: those that one begins with.
    const IS_FIRST: bool = false;

    /// Returns the notebook that stands among its own words, if one does.
    fn notebook(&self) -> Option<PathBuf> {
        None
    }

    /// Returns whether the answer, and so a problem too, is to be JSON.
    fn json(&self) -> bool {
        false
    }

    /// Returns the command for hints, where what was typed is too long to be repeated.
    fn summary() -> String {
        format!("nb {}", Self::NAME)
    }

    /// Runs a command that needs no project and no settings; none for the others.
    fn alone(&self) -> Option<ExitCode> {
        None
    }

    /// Runs the command, where [`Command::alone`] has not.
    async fn run(self, context: &Context) -> Result<ExitCode, Problem>;
}

/// What a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// The kernel's life.
    Kernel,
    /// The notebook's cells.
    Notebook,
    /// Running cells and code.
    Running,
    /// The rest.
    Rest,
}

/// All commands, as the help lists them.
pub(crate) const COMMANDS: [Entry; 35] = [
    Entry::of::<open::Open>(),
    Entry::of::<status::Status>(),
    Entry::of::<interrupt::Interrupt>(),
    Entry::of::<restart::Restart>(),
    Entry::of::<shutdown::Shutdown>(),
    Entry::of::<kernels::Kernels>(),
    Entry::of::<doctor::Doctor>(),
    Entry::of::<gc::Gc>(),
    Entry::of::<adopt::Adopt>(),
    Entry::of::<serve::Serve>(),
    Entry::of::<serve::Unserve>(),
    Entry::of::<cells::Cells>(),
    Entry::of::<cell::Cell>(),
    Entry::of::<insert::Insert>(),
    Entry::of::<edit::Edit>(),
    Entry::of::<rm::Rm>(),
    Entry::of::<move_cell::MoveCell>(),
    Entry::of::<clear::Clear>(),
    Entry::of::<search::Search>(),
    Entry::of::<diff::Diff>(),
    Entry::of::<apply::Apply>(),
    Entry::of::<undo::Undo>(),
    Entry::of::<restore::Restore>(),
    Entry::of::<save::Save>(),
    Entry::of::<fmt::Fmt>(),
    Entry::of::<exec::Exec>(),
    Entry::of::<run::Run>(),
    Entry::of::<vars::Vars>(),
    Entry::of::<jobs::Wait>(),
    Entry::of::<jobs::Jobs>(),
    Entry::of::<jobs::Reply>(),
    Entry::of::<log::Log>(),
    Entry::of::<demo::Demo>(),
    Entry::of::<completions::Completions>(),
    Entry::of::<help::Help>(),
];

/// A command without its arguments.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) group: Group,
    pub(crate) augment: fn(clap::Command) -> clap::Command,
    pub(crate) read: fn(&ArgMatches) -> Result<Box<dyn AnyCommand>, clap::Error>,
    aliases: &'static [&'static str],
    is_first: bool,
}

impl Entry {
    const fn of<C: Command + 'static>() -> Self {
        Self {
            name: C::NAME,
            group: C::GROUP,
            augment: C::augment_args,
            read: |matches| Ok(Box::new(C::from_arg_matches(matches)?)),
            aliases: C::ALIASES,
            is_first: C::IS_FIRST,
        }
    }

    /// Returns the parser of its arguments, with its help.
    pub(crate) fn parser(&self) -> clap::Command {
        (self.augment)(clap::Command::new(self.name))
            .aliases(self.aliases)
            .hide(!self.is_first)
    }
}

/// A command with its arguments, whichever it is.
pub(crate) trait AnyCommand: Debug {
    fn notebook(&self) -> Option<PathBuf>;
    fn json(&self) -> bool;
    fn summary(&self) -> String;
    fn alone(&self) -> Option<ExitCode>;
    fn run<'a>(self: Box<Self>, context: &'a Context) -> Running<'a>;
}

/// A command that runs.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Result<ExitCode, Problem>> + 'a>>;

impl<C: Command + 'static> AnyCommand for C {
    fn notebook(&self) -> Option<PathBuf> {
        Command::notebook(self)
    }

    fn json(&self) -> bool {
        Command::json(self)
    }

    fn summary(&self) -> String {
        C::summary()
    }

    fn alone(&self) -> Option<ExitCode> {
        Command::alone(self)
    }

    fn run<'a>(self: Box<Self>, context: &'a Context) -> Running<'a> {
        Box::pin(Command::run(*self, context))
    }
}

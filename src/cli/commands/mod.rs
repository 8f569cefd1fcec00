//! The commands, one file each: parse, call `api`, print the answer, pick the exit code.

mod agent;
mod apply;
mod cell;
mod cells;
mod change;
mod chat;
mod clear;
mod completions;
mod consent;
mod cp;
mod demo;
mod diff;
mod doctor;
mod edit;
mod events;
mod exec;
mod export;
mod fmt;
mod follow;
mod gc;
mod graph;
pub(crate) mod help;
mod insert;
mod interrupt;
mod jobs;
mod kernels;
mod live;
mod log;
mod mcp;
mod move_cell;
mod mv;
mod open;
mod packages;
mod replace;
mod restart;
mod restore;
mod rm;
mod run;
mod save;
mod search;
mod serve;
mod server;
mod shutdown;
mod split_join;
mod status;
mod undo;
mod vars;
mod verify;
mod watch;
mod web;

use std::fmt::Debug;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Args};

use crate::api::problem::Problem;
use crate::cli::Context;

/// Makes the parser of all commands.
pub(crate) type MakeParser = fn() -> clap::Command;

/// A command: its arguments as typed, and what it does with them.
pub(crate) trait Command: Args + Debug {
    /// Removes and returns the notebook that is among the command's own words, if one is: the requests are
    /// about it.
    fn take_notebook(&mut self) -> Option<PathBuf> {
        None
    }

    /// Runs a command that needs no project and no settings; returns `None` for other commands.
    fn alone(&self, _make_parser: MakeParser) -> Option<ExitCode> {
        None
    }

    /// Runs the command, unless [`Command::alone`] has run it.
    async fn run(self, _context: &Context) -> Result<ExitCode, Problem> {
        Ok(ExitCode::SUCCESS)
    }
}

/// The groups of commands in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    /// Commands that start, list and end kernels.
    Kernel,
    /// Commands that show and edit a notebook's cells.
    Notebook,
    /// Commands that run cells and code.
    Running,
    /// All other commands.
    Rest,
}

use Group::{Kernel, Notebook, Rest, Running};

/// All commands, as the help lists them.
pub(crate) const COMMANDS: [Entry; 51] = [
    Entry::of::<open::Open>("open", Kernel)
        .aliases("create")
        .first(),
    Entry::of::<status::Status>("status", Kernel)
        .only_prints()
        .first(),
    Entry::of::<interrupt::Interrupt>("interrupt", Kernel).aliases("stop"),
    Entry::of::<restart::Restart>("restart", Kernel),
    Entry::of::<shutdown::Shutdown>("shutdown", Kernel)
        .aliases("kill")
        .first(),
    Entry::of::<kernels::Kernels>("kernels", Kernel).only_prints(),
    Entry::of::<doctor::Doctor>("doctor", Kernel).only_prints(),
    Entry::of::<gc::Gc>("gc", Kernel),
    Entry::of::<mv::Mv>("mv", Kernel)
        .aliases("rename")
        .words("FROM TO"),
    Entry::of::<serve::Serve>("serve", Kernel),
    Entry::of::<serve::Unserve>("unserve", Kernel),
    Entry::of::<server::Server>("server", Kernel).words("list"),
    Entry::of::<packages::Packages>("packages", Kernel),
    Entry::of::<cp::Cp>("cp", Kernel).words("FILE DESTINATION"),
    Entry::of::<cells::Cells>("cells", Notebook)
        .aliases("list ls")
        .only_prints()
        .first(),
    Entry::of::<cell::Cell>("cell", Notebook)
        .aliases("show read")
        .only_prints()
        .first()
        .words("CELL")
        .json("Print one JSON object; with --limit 0 the outputs are as the file has them"),
    Entry::of::<insert::Insert>("insert", Notebook)
        .aliases("add")
        .first(),
    Entry::of::<edit::Edit>("edit", Notebook)
        .aliases("update")
        .first(),
    Entry::of::<rm::Rm>("rm", Notebook).aliases("remove delete"),
    Entry::of::<move_cell::MoveCell>("move", Notebook),
    Entry::of::<replace::Replace>("replace", Notebook).words("OLD NEW"),
    Entry::of::<split_join::Split>("split", Notebook),
    Entry::of::<split_join::Join>("join", Notebook),
    Entry::of::<clear::Clear>("clear", Notebook),
    Entry::of::<search::Search>("search", Notebook)
        .aliases("grep find")
        .only_prints()
        .words("PATTERN"),
    Entry::of::<graph::Graph>("graph", Notebook).only_prints(),
    Entry::of::<diff::Diff>("diff", Notebook).only_prints(),
    Entry::of::<apply::Apply>("apply", Notebook).words("-"),
    Entry::of::<export::Export>("export", Notebook).only_prints(),
    Entry::of::<undo::Undo>("undo", Notebook).first(),
    Entry::of::<restore::Restore>("restore", Notebook),
    Entry::of::<save::Save>("save", Notebook),
    Entry::of::<fmt::Fmt>("fmt", Notebook),
    Entry::of::<exec::Exec>("exec", Running)
        .aliases("execute")
        .first()
        .words("CELL"),
    Entry::of::<watch::Watch>("watch", Running)
        .json("Print one JSON object for each change, and one for each run"),
    Entry::of::<verify::Verify>("verify", Running),
    Entry::of::<run::Run>("run", Running).first().words("CODE"),
    Entry::of::<vars::Vars>("vars", Running).only_prints(),
    Entry::of::<jobs::Wait>("wait", Running),
    Entry::of::<jobs::Jobs>("jobs", Running),
    Entry::of::<jobs::Reply>("reply", Running),
    Entry::of::<log::Log>("log", Running).only_prints(),
    Entry::of::<events::Events>("events", Running)
        .json("Print one JSON object for each event, after one that says from where on"),
    Entry::of::<agent::Agent>("agent", Rest).words("install PROGRAM"),
    Entry::of::<live::Live>("live", Rest)
        .json("")
        .words("--stdio"),
    Entry::of::<mcp::Mcp>("mcp", Rest).json(""),
    Entry::of::<web::Web>("web", Rest).json(""),
    Entry::of::<chat::Chat>("chat", Rest).words("TEXT").json(""),
    Entry::of::<demo::Demo>("demo", Rest).json(""),
    Entry::of::<completions::Completions>("completions", Rest).json(""),
    Entry::of::<help::Help>("help", Rest).json(""),
];

/// A command without its arguments.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) group: Group,
    pub(crate) read: fn(&ArgMatches) -> Result<Box<dyn AnyCommand>, clap::Error>,
    augment: fn(clap::Command) -> clap::Command,
    /// Other names, separated by spaces.
    pub(crate) aliases: &'static str,
    /// Whether the help of `nb` itself lists the command.
    pub(crate) is_first: bool,
    /// The words that hints show for the command if the typed ones are too long to be repeated.
    words: &'static str,
    /// The help of the command's `--json`; empty if it has none.
    json: &'static str,
    /// Whether the command does nothing but print.
    pub(crate) only_prints: bool,
}

impl Entry {
    const fn of<C: Command + 'static>(name: &'static str, group: Group) -> Self {
        Self {
            name,
            group,
            read: |matches| Ok(Box::new(C::from_arg_matches(matches)?)),
            augment: C::augment_args,
            aliases: "",
            is_first: false,
            words: "",
            json: "Print one JSON object",
            only_prints: false,
        }
    }

    const fn only_prints(mut self) -> Self {
        self.only_prints = true;
        self
    }

    const fn first(mut self) -> Self {
        self.is_first = true;
        self
    }

    const fn aliases(mut self, aliases: &'static str) -> Self {
        self.aliases = aliases;
        self
    }

    const fn words(mut self, words: &'static str) -> Self {
        self.words = words;
        self
    }

    const fn json(mut self, help: &'static str) -> Self {
        self.json = help;
        self
    }

    /// Returns the command as hints show it if the typed one is too long to be repeated.
    pub(crate) fn summary(&self) -> String {
        format!("nb {} {}", self.name, self.words)
            .trim_end()
            .to_owned()
    }

    /// Returns the parser of the command's arguments.
    pub(crate) fn arguments(&self) -> clap::Command {
        let command = (self.augment)(clap::Command::new(self.name));
        if self.json.is_empty() {
            return command;
        }
        let json = Arg::new(JSON).long(JSON).action(ArgAction::SetTrue);
        // Also behind a word such as `list` in `nb server list`.
        let json = json.global(true);
        command.arg(json.help(self.json).help_heading(None))
    }

    /// Returns the parser of the command's arguments, with its aliases.
    pub(crate) fn parser(&self) -> clap::Command {
        let aliases = self.aliases.split_whitespace();
        self.arguments().aliases(aliases)
    }

    /// Says whether the answer, or the problem instead of it, is printed as JSON.
    pub(crate) fn is_json(&self, matches: &ArgMatches) -> bool {
        !self.json.is_empty() && matches.get_flag(JSON)
    }
}

/// The option by which an answer is printed as JSON.
const JSON: &str = "json";

/// Any command with its arguments.
pub(crate) trait AnyCommand: Debug {
    fn take_notebook(&mut self) -> Option<PathBuf>;
    fn alone(&self, make_parser: MakeParser) -> Option<ExitCode>;
    fn run<'a>(self: Box<Self>, context: &'a Context) -> RunningCommand<'a>;
}

/// The future of a command that runs.
pub(crate) type RunningCommand<'a> = Pin<Box<dyn Future<Output = Result<ExitCode, Problem>> + 'a>>;

impl<C: Command + 'static> AnyCommand for C {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        Command::take_notebook(self)
    }

    fn alone(&self, make_parser: MakeParser) -> Option<ExitCode> {
        Command::alone(self, make_parser)
    }

    fn run<'a>(self: Box<Self>, context: &'a Context) -> RunningCommand<'a> {
        Box::pin(Command::run(*self, context))
    }
}

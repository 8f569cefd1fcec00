//! `nb log`: shows who did what, and the versions of a cell.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{
    self, DeletedCellsAnswer, DeletedCellsRequest, LogAnswer, LogFile, LogFileRequest, LogRequest,
    LogSince, VersionsAnswer, VersionsRequest, deleted_line, version_lines,
};
use crate::cli::Context;
use crate::cli::args::cells::CellOptions;
use crate::cli::args::{take_notebook, time as moment};
use crate::cli::commands::Command;
use crate::cli::render::{columns, print};
use crate::hint::shell::quote;
use crate::notebook::visible_line;
use crate::text::log::line;

/// How often a log file that is followed is read.
const POLL_PAUSE: Duration = Duration::from_millis(200);

/// Show who did what: executions, edits, saves, restarts; of a cell, its versions
///
/// One line each, the newest last. Executions are those through nb and through every front end on the
/// shared kernel, and those of clients straight on it that were heard. What ran as a job names it, for
/// nb wait and nb jobs; --json has the code. An edit by a command of nb has its OP, which nb undo takes;
/// what people saved from an editor is known from the next command of nb on. With a cell (also a deleted
/// one, by its id): its versions, which nb restore brings back.
#[derive(Args, Debug)]
#[command(override_usage = "nb log [OPTIONS] [NOTEBOOK] [CELL]", after_help = EXAMPLES)]
pub(crate) struct Log {
    /// [NOTEBOOK] [CELL]
    #[arg(num_args = 0..=2, value_name = "WORDS", allow_negative_numbers = true, hide = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    cell_options: CellOptions,
    /// Only from then on: `last` (when you looked last), 14:02, 2026-01-31, 90min, 3d
    #[arg(long, value_name = "TIME", conflicts_with_all = ["proxy", "kernel"])]
    since: Option<String>,
    /// Only what this name did; human is everybody at a terminal or a front end, agent the others
    #[arg(long, value_name = "NAME", conflicts_with_all = ["proxy", "kernel"])]
    by: Option<String>,
    /// The cells that were deleted and can be brought back
    #[arg(long, conflicts_with_all = ["proxy", "kernel", "since"])]
    deleted: bool,
    /// The calls of agents over MCP: the client, the tool, the result, what its code does
    #[arg(long, conflicts_with_all = ["proxy", "kernel", "deleted"])]
    audit: bool,
    /// What the project's proxies wrote: who joined and left, what failed
    #[arg(long, conflicts_with = "kernel")]
    proxy: bool,
    /// What the kernel itself wrote on its stdout and stderr
    #[arg(long)]
    kernel: bool,
    /// With --proxy or --kernel: go on with what is written from now on, until interrupted
    #[arg(short, long, conflicts_with = "json")]
    follow: bool,
    /// Show at most this many of the last lines; 0 is all
    #[arg(long, value_name = "N", default_value_t = 100)]
    lines: usize,
}

const EXAMPLES: &str = "\
Examples:
  nb log train.ipynb
  nb log --since last                  since you looked last
  nb log --since 2h --by human
  nb log train.ipynb 3f2c              the versions of a cell
  nb log train.ipynb --deleted         the cells that nb restore can bring back
  nb log --kernel -f";

impl Command for Log {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        // A log file may also be named by a folder of its project.
        let is_named = (self.proxy || self.kernel) && !self.words.is_empty();
        match is_named {
            true => Some(self.words.remove(0).into()),
            false => take_notebook(&mut self.words),
        }
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        if self.proxy || self.kernel {
            return self.log_file(context).await;
        }
        if self.follow {
            let message = "--follow goes with --proxy or --kernel";
            return Err(Problem::new(ProblemKind::Usage, message));
        }
        let mut cells = self.cell_options.selectors(&self.words)?;
        let (cell, count) = (cells.pop(), self.lines);
        if !cells.is_empty() {
            return Err(Problem::new(ProblemKind::Usage, "name one cell"));
        }
        if self.deleted {
            let request = DeletedCellsRequest { by: self.by, count };
            let answer = api::deleted_cells(&context.caller, request).await?;
            return context.print(&answer, show_deleted);
        }
        if let Some(cell) = cell {
            let request = VersionsRequest { cell, count };
            let answer = api::cell_versions(&context.caller, request).await?;
            return context.print(&answer, show_versions);
        }
        let is_part = self.since.is_some() || self.by.is_some() || self.audit;
        let request = LogRequest {
            since: match self.since.as_deref() {
                None => LogSince::Beginning,
                Some("last") => LogSince::LastNotification,
                Some(text) => LogSince::At(moment::read(text)?),
            },
            by: self.by,
            count,
            audit: self.audit,
        };
        let answer = api::log(&context.caller, request).await?;
        context.print(&answer, |answer| show_log(answer, is_part))
    }
}

impl Log {
    /// Prints the log file of the proxies or of the kernel.
    async fn log_file(self, context: &Context) -> Result<ExitCode, Problem> {
        let request = LogFileRequest {
            of: match self.kernel {
                true => LogFile::Kernel,
                false => LogFile::Proxies,
            },
            lines: self.lines,
        };
        if context.json {
            let answer = api::log_file(&context.caller, request).await?;
            return context.print(&answer, |_| Ok(()));
        }
        let (mut log, end) = api::follow_log_file(&context.caller, request).await?;
        let mut printed = print::exact(&end);
        while self.follow && printed.is_ok() {
            tokio::time::sleep(POLL_PAUSE).await;
            let more = log.more();
            let more = more.map_err(|error| Problem::failed("read the log", &error))?;
            printed = print::exact(&more);
        }
        context.printed(&printed)
    }
}

/// Prints who did what.
fn show_log(answer: &LogAnswer, is_part: bool) -> io::Result<()> {
    if answer.log.is_empty() {
        print::note(match is_part {
            false => "nothing has happened here yet that nb knows of",
            true => "nothing of the kind has happened here",
        });
    }
    let width = columns::of_terminal();
    let mut entries = answer.log.iter();
    entries.try_for_each(|it| {
        let line = line(it, &answer.notebook);
        let line = visible_line(&line);
        print::line(&width.map_or_else(|| line.to_string(), |width| columns::cut(&line, width)))
    })
}

/// Prints the versions of one cell.
fn show_versions(answer: &VersionsAnswer) -> io::Result<()> {
    let (cell, notebook) = (&answer.cell, quote(&answer.named));
    print::note(&match answer.deleted {
        false => format!("cell {cell}; nb restore {notebook} {cell}@REVISION brings one back"),
        true => format!("cell {cell} was deleted; nb restore {notebook} {cell} brings it back"),
    });
    print::lines(version_lines(&answer.versions))
}

/// Prints the deleted cells.
fn show_deleted(answer: &DeletedCellsAnswer) -> io::Result<()> {
    if answer.deleted.is_empty() {
        print::note("no cell was deleted here that nb knows of");
    }
    let mut cells = answer.deleted.iter();
    cells.try_for_each(|it| print::line(&deleted_line(&it.cell, it.first_line.as_deref())))
}

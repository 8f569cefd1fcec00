//! `nb exec`: runs cells of the notebook in the shared kernel.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, CellsToRun, Doubts, EditRequest, ExecAnswer, ExecRequest};
use crate::cli::Context;
use crate::cli::args::cells::CellOptions;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::commands::follow::{FollowLimits, Form};
use crate::cli::render::print;
use crate::kernel::process::limits::amount;
use crate::notebook::CellSelector;
use crate::text;

/// Run cells in the notebook's kernel, their outputs in the notebook
///
/// The cells run in the order of the notebook, and stop at the first that raises, unless it is tagged
/// raises-exception. Cells tagged skip-execution are left out unless they are named. A recorder
/// process writes the outputs into the notebook as they come: ending this command, or being killed,
/// loses nothing (nb wait goes on). Off a terminal it waits 45 s at most; exit code 4 then says that
/// the job goes on.
#[derive(Args, Debug)]
#[command(override_usage = "nb exec [OPTIONS] [NOTEBOOK] [CELL]...", after_help = EXAMPLES)]
pub(crate) struct Exec {
    /// The notebook, and the cells: an index (3, -1), an id, In[12], a range (2..5, 2..=5)
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    cell_options: CellOptions,
    /// All cells
    #[arg(long)]
    all: bool,
    /// From this cell on
    #[arg(long, value_name = "CELL", allow_negative_numbers = true)]
    from: Option<String>,
    /// Up to this cell, which is run too
    #[arg(long, value_name = "CELL", allow_negative_numbers = true)]
    to: Option<String>,
    /// Only cells that show an error
    #[arg(long)]
    failed: bool,
    /// Only cells with this tag
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// Only cells whose text is not what this kernel ran of them last
    #[arg(long)]
    changed: bool,
    /// Only cells that are out of date, and the cells whose values these need again
    ///
    /// With cells: of these. An edit of the notebook meanwhile ends it, exit code 5.
    #[arg(long)]
    stale: bool,
    /// Also the cells that these depend on, if they are out of date
    #[arg(long)]
    with_upstream: bool,
    /// Also all cells that depend on these
    #[arg(long)]
    with_downstream: bool,
    /// Print what would run and why, and run nothing
    #[arg(long, conflicts_with_all = ["replay", "restart", "detach"])]
    plan: bool,
    /// With --stale or --with-…: plan anew when somebody edits the notebook meanwhile
    #[arg(long, conflicts_with = "detach")]
    follow: bool,
    /// Take each cell to depend on all cells above it: for languages whose code nb does not read
    #[arg(long)]
    assume_order: bool,
    /// What ran without error in the kernel before this one, in that order, whoever ran it
    #[arg(long, conflicts_with_all = ["all", "from", "to", "failed", "tag", "changed", "stale", "with_upstream", "with_downstream"])]
    replay: bool,
    /// Replace the kernel by a new one first: its variables are gone
    #[arg(long)]
    restart: bool,
    /// With --restart: even when that ends others' work
    #[arg(long, requires = "restart")]
    force: bool,
    /// Go on with the next cell where one raises
    #[arg(long)]
    allow_errors: bool,
    /// Interrupt a cell that runs longer than this, 0 is never
    #[arg(long, value_name = "SECONDS")]
    max_time: Option<f64>,
    /// Do not write the outputs into the notebook
    #[arg(long)]
    no_save: bool,
    /// Write at most about this much of a cell's text into the notebook, head and tail; 0 is no limit
    ///
    /// The whole stays in the job for a while, and the outputs name the command that shows it.
    #[arg(long, value_name = "SIZE", value_parser = amount, default_value = "4MiB")]
    max_output: u64,
    /// Begin and do not wait: nb wait follows it
    #[arg(short, long)]
    detach: bool,
    #[command(flatten)]
    limits: FollowLimits,
    #[command(flatten)]
    form: Form,
}

const EXAMPLES: &str = "\
Examples:
  nb exec train.ipynb 3f2c            one cell
  nb exec --all                       all of them
  nb exec 4..8 --allow-errors
  nb exec --from 3f2c --max-time 60
  nb exec --changed                   what was edited since it ran, or never ran
  nb exec --stale                     that, and what depends on it: as after Restart & Run All
  nb exec 3f2c --with-downstream --plan
  nb exec --all --restart             all of them on a new kernel
  nb exec --replay                    what a kernel had run before it died or was restarted
  nb exec --all -d; nb wait           the job's id is printed; nb wait follows it";

impl Command for Exec {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let cells = self.cells()?;
        if self.plan {
            let answer = api::plan(&context.caller, cells).await?;
            return context.print(&answer, |answer| print::lines(text::graph::plan(answer)));
        }
        let follow = context.follow_options(&self.limits, &self.form, None);
        let request = ExecRequest {
            cells,
            restart: self.restart,
            force: self.force,
            allow_errors: self.allow_errors,
            max_time: self.max_time,
            saves: !self.no_save,
            max_output: self.max_output,
            replans: self.follow,
            follow: (!self.detach).then_some(follow),
        };
        let watcher = context.watcher(&self.form);
        let run = async |force| {
            let request = ExecRequest {
                force,
                ..request.clone()
            };
            api::exec(&context.caller, request, &watcher).await
        };
        let answer = context.with_confirmation(self.force, run).await;
        watcher.end();
        let answer = answer?;
        context.end_of_exec(&answer, &self.form)
    }
}

impl Exec {
    fn cells(&self) -> Result<CellsToRun, Problem> {
        let cell = |word: &Option<String>| -> Result<Option<CellSelector>, Problem> {
            Ok(word.as_deref().map(str::parse).transpose()?)
        };
        Ok(CellsToRun {
            named: self.cell_options.selectors(&self.words)?,
            all: self.all,
            from: cell(&self.from)?,
            to: cell(&self.to)?,
            failed: self.failed,
            tags: self.tag.clone(),
            changed: self.changed,
            stale: self.stale,
            with_upstream: self.with_upstream,
            with_downstream: self.with_downstream,
            assume_order: self.assume_order,
            replay: self.replay,
        })
    }
}

impl Context {
    fn end_of_exec(&self, answer: &ExecAnswer, form: &Form) -> Result<ExitCode, Problem> {
        let (notebook, replay) = match answer {
            ExecAnswer::Job {
                job,
                earlier,
                doubts,
                ..
            } => {
                if !self.json {
                    for job in earlier {
                        self.printed(&self.print_report(job))?;
                    }
                }
                let code = self.end_of_run(job, answer, form)?;
                self.print_doubts(doubts.as_ref());
                return Ok(code);
            }
            ExecAnswer::Nothing {
                notebook,
                replay,
                doubts,
                ..
            } => {
                self.print_doubts(doubts.as_ref());
                (notebook, replay)
            }
        };
        self.print(answer, |_| match replay {
            Some(replay) if replay.generation == 0 => print::line(&format!(
                "{notebook}: nothing ran in a kernel before this one"
            )),
            Some(_) => print::line("nothing of it can be run again"),
            None => print::line("there is nothing to run: no cell is selected"),
        })
    }

    fn print_doubts(&self, doubts: Option<&Doubts>) {
        let text = doubts.and_then(text::graph::doubts);
        if let Some(text) = text.filter(|_| !self.json) {
            print::note(&text.to_string());
        }
    }
}

/// Running what was written, in the same call.
#[derive(Args, Debug)]
pub(crate) struct ExecAfterEdit {
    /// Run the cell once it is written, and print its outputs
    #[arg(short = 'x', long)]
    exec: bool,
    #[command(flatten)]
    limits: FollowLimits,
}

impl ExecAfterEdit {
    /// Applies operations to a notebook and, with `--exec`, runs the cells that they wrote. Nothing runs if
    /// conflicts kept part of the edit out of the notebook.
    pub(crate) async fn edit(
        &self,
        context: &Context,
        request: EditRequest,
        command: &str,
    ) -> Result<ExitCode, Problem> {
        if !self.exec {
            return context.edit(request, command).await;
        }
        let mut edit = context.edited(request, command).await?;
        let code = context.take_error(&mut edit, command);
        if !context.json {
            context.printed(&context.print_edit(&edit))?;
        }
        let form = Form::default();
        let follow = context.follow_options(&self.limits, &form, None);
        let watcher = context.watcher(&form);
        let answer = api::exec_edited(&context.caller, &edit, follow, &watcher).await;
        watcher.end();
        match answer? {
            Some(answer) => context.end_of_exec(&answer, &form),
            None => {
                // Without `--json` the edit has been printed above.
                context.print(&edit, |_| Ok(()))?;
                Ok(code)
            }
        }
    }
}

//! `nb exec`: cells of the notebook, run in the shared kernel.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::api::EditRequest;
use crate::api::places;
use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::args::cells::{Which, missing};
use crate::cli::args::first_notebook;
use crate::cli::commands::follow::{Following, Form, Patience};
use crate::cli::commands::restart::replaced;
use crate::cli::commands::{Command, Group};
use crate::cli::render::{print, replay};
use crate::editing::notebook_file::NotebookFile;
use crate::editing::view;
use crate::execution::exec::{self, AlreadyRun, ExecError, MAX_OUTPUT, Wanted};
use crate::execution::replay::Replay;
use crate::kernel::process::limits::amount;
use crate::kernel::shell::quote;
use crate::notebook::{CellSelector, Document};

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
    which: Which,
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
    /// What ran without error in the kernel before this one, in that order, whoever ran it
    #[arg(long, conflicts_with_all = ["all", "from", "to", "failed", "tag", "changed"])]
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
    patience: Patience,
    #[command(flatten)]
    pub(crate) form: Form,
}

const EXAMPLES: &str = "\
Examples:
  nb exec train.ipynb 3f2c            one cell
  nb exec --all                       all of them
  nb exec 4..8 --allow-errors
  nb exec --from 3f2c --max-time 60
  nb exec --changed                   what was edited since it ran, or never ran
  nb exec --all --restart             all of them on a new kernel
  nb exec --replay                    what a kernel had run before it died or was restarted
  nb exec --all -d; nb wait           the job's id is printed; nb wait follows it";

impl Command for Exec {
    const NAME: &'static str = "exec";
    const ALIASES: &'static [&'static str] = &["execute"];
    const GROUP: Group = Group::Running;
    const IS_FIRST: bool = true;

    fn notebook(&self) -> Option<PathBuf> {
        first_notebook(&self.words)
    }

    fn json(&self) -> bool {
        self.form.json
    }

    fn summary() -> String {
        "nb exec CELL".to_owned()
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let page = context.page(&mut self.words).await?;
        let mut view = view::open(&page, context.by())?;
        let named = self.which.selectors(&self.words)?;
        let mut places = self.places(&view.document, &named)?;
        if self.restart {
            let notebook = Some(page.path.clone());
            replaced(context, notebook, None, self.force, self.form.json).await?;
            // A restart takes seconds, in which somebody may have edited the notebook. The cells that
            // were meant are run, as they are now.
            let before = std::mem::replace(&mut view, view::open(&page, context.by())?);
            places = match places.map(|places| moved(&before.document, &view.document, &places)) {
                Some(Some(places)) => Some(places),
                _ => self.places(&view.document, &named)?,
            };
        }
        let not_run = self
            .changed
            .then(|| AlreadyRun::of(&page.project, &page.key));
        let which = exec::Which {
            places,
            skips: named.is_empty(),
            failed: self.failed,
            tags: self.tag.clone(),
            not_run: not_run.transpose()?,
        };
        let replay = match self.replay {
            true => Some(self.replay(&page, &view.document).await?),
            false => None,
        };
        let cells = match &replay {
            Some(replay) => replay.job(&view.document),
            None => exec::cells(&view.document, &which),
        };
        if cells.is_empty()
            && let Some(replay) = &replay
        {
            let text = match replay.generation {
                0 => format!("{}: nothing ran in a kernel before this one", page.key),
                _ => "nothing of it can be run again".to_owned(),
            };
            let _ = if self.form.json {
                let answer = json!({ "notebook": page.key, "cells": [], "replay": replay });
                context.answer(&answer)
            } else {
                print::line(&text)
            };
            return Ok(ExitCode::SUCCESS);
        }
        if cells.is_empty() && (self.changed || self.failed) {
            let text = "there is nothing to run: no cell is meant by this";
            let _ = if self.form.json {
                context.answer(&json!({ "notebook": page.key, "cells": [] }))
            } else {
                print::line(text)
            };
            return Ok(ExitCode::SUCCESS);
        }
        if cells.is_empty() {
            let text = "none of these cells is code: nothing was run";
            return Err(Problem::new(ProblemKind::Usage, text).hint("nb cells lists the cells"));
        }
        let wanted = Wanted {
            cells,
            allow_errors: self.allow_errors,
            max_time: limit(self.max_time)?,
            saves: !self.no_save,
            max_output: Some(self.max_output).filter(|most| *most > 0),
        };
        let folder = exec::begin(&page.project, &page.key, context.by(), wanted).await?;
        let following = Following::new(context, folder, &self.patience, self.form);
        if self.detach {
            return following.leave();
        }
        let following = match &replay {
            Some(replay) => following.with(json!({ "replay": replay })),
            None => following,
        };
        following.follow().await
    }
}

impl Exec {
    /// Looks up what is to be run again, and says so; an empty one where nothing ran before.
    async fn replay(&self, page: &NotebookFile, document: &Document) -> Result<Replay, Problem> {
        let replay = Replay::of(&page.project, &page.key, document).await;
        let replay = replay.map_err(|error| match error {
            ExecError::NoKernel { .. } => {
                let hint = format!("nb open {0} && nb exec {0} --replay", quote(&page.path));
                Problem::new(ProblemKind::NoKernel, error.to_string()).hint(hint)
            }
            error => error.into(),
        })?;
        if let Some(replay) = &replay
            && !self.form.json
        {
            for line in replay::lines(replay, document, &page.path) {
                print::note(&line);
            }
        }
        Ok(replay.unwrap_or_default())
    }

    /// Returns the places of the cells that are named; none are all.
    fn places(
        &self,
        document: &Document,
        named: &[CellSelector],
    ) -> Result<Option<Vec<usize>>, Problem> {
        let filters = self.failed || self.changed || self.replay || !self.tag.is_empty();
        let end = |word: &Option<String>| match word {
            Some(word) => Ok::<_, Problem>(Some(document.find(&word.parse::<CellSelector>()?)?)),
            None => Ok(None),
        };
        let (from, to) = (end(&self.from)?, end(&self.to)?);
        let is_part = from.is_some() || to.is_some();
        match (named.is_empty(), self.all || filters || is_part) {
            (true, false) => {
                Err(missing("which cells? --all runs all of them").hint("nb exec --all"))
            }
            (false, _) if self.all || is_part || self.replay => Err(Problem::new(
                ProblemKind::Usage,
                "cells are named twice: by themselves and by --all, --from, --to or --replay",
            )),
            (false, _) => Ok(Some(places(document, named)?)),
            (true, true) if is_part => {
                let last = document.cells().len().saturating_sub(1);
                Ok(Some((from.unwrap_or(0)..=to.unwrap_or(last)).collect()))
            }
            (true, true) => Ok(None),
        }
    }
}

/// Returns the places that cells have in a later state of their notebook; none where one is gone.
fn moved(before: &Document, after: &Document, places: &[usize]) -> Option<Vec<usize>> {
    let place = |place: &usize| {
        let id = before.cells().get(*place)?.id();
        after.cells().iter().position(|cell| cell.id() == id)
    };
    let mut places: Vec<_> = places.iter().map(place).collect::<Option<_>>()?;
    places.sort_unstable();
    Some(places)
}

/// Returns the seconds after which a cell is interrupted; 0 is never.
pub(crate) fn limit(max_time: Option<f64>) -> Result<Option<f64>, Problem> {
    match max_time {
        Some(seconds) if !seconds.is_finite() || seconds < 0.0 => {
            let text = format!("--max-time {seconds} is no number of seconds");
            Err(Problem::new(ProblemKind::Usage, text))
        }
        max_time => Ok(max_time.filter(|seconds| *seconds > 0.0)),
    }
}

/// Running what was written, in the same call.
#[derive(Args, Debug)]
pub(crate) struct Then {
    /// Run the cell once it is written, and print its outputs
    #[arg(short = 'x', long)]
    exec: bool,
    #[command(flatten)]
    patience: Patience,
}

impl Then {
    /// Does operations on a notebook and, if that is wanted, runs the cells that they wrote. What did
    /// not get into the notebook as it was meant is not run.
    pub(crate) async fn edit(
        &self,
        context: &Context,
        request: EditRequest,
        json: bool,
        command: &str,
    ) -> Result<ExitCode, Problem> {
        if !self.exec {
            return context.edit(request, json, command).await;
        }
        let mut answer = context.edited(request, command).await?;
        let cells = answer.document.cells().iter();
        let written = |id: &str| answer.changes.iter().any(|change| change.cell == id);
        let places = cells.enumerate().filter(|(_, cell)| written(cell.id()));
        let which = exec::Which {
            places: Some(places.map(|(place, _)| place).collect()),
            ..exec::Which::default()
        };
        let cells = match answer.conflicts.is_empty() {
            true => exec::cells(&answer.document, &which),
            false => Vec::new(),
        };
        let code = context.take_error(&mut answer, command);
        if !json {
            context.tell(&answer);
        }
        let Some(concerned) = context.caller.concerned().filter(|_| !cells.is_empty()) else {
            if json {
                let _ = context.answer(&answer);
            }
            return Ok(code);
        };
        let wanted = Wanted {
            cells,
            saves: true,
            max_output: Some(MAX_OUTPUT),
            ..Wanted::default()
        };
        let (project, key) = (&concerned.project, &concerned.key);
        let folder = exec::begin(project, key, context.by(), wanted).await?;
        let edited = json!({
            "op": answer.op, "changes": answer.changes, "revision": answer.revision,
        });
        Following::new(context, folder, &self.patience, Form::of_json(json))
            .with(edited)
            .follow()
            .await
    }
}

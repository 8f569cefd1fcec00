//! `nb log`: who did what, and the versions of a cell.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::activity::{company, notification};
use crate::api::log::{self, Execution, Happening, Wanted, What};
use crate::api::problem::editing::of_selection;
use crate::api::problem::{Problem, ProblemKind};
use crate::api::versions;
use crate::cli::Context;
use crate::cli::args::cells::Which;
use crate::cli::args::{first_notebook, time as moment};
use crate::cli::commands::{Command, Group};
use crate::cli::render::{columns, print, tail};
use crate::editing::history::{self, NotSelected, Selected};
use crate::editing::notebook_file::NotebookFile;
use crate::editing::view;
use crate::kernel::shell::quote;
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::target;
use crate::notebook::{CellSelector, ChangeKind};
use crate::project::Project;
use crate::project::event::{NotebookChange, Outcome};

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
    which: Which,
    /// Only from then on: `last` (when you looked last), 14:02, 2026-01-31, 90min, 3d
    #[arg(long, value_name = "TIME", conflicts_with_all = ["proxy", "kernel"])]
    since: Option<String>,
    /// Only what this name did; human is everybody at a terminal or a front end, agent the others
    #[arg(long, value_name = "NAME", conflicts_with_all = ["proxy", "kernel"])]
    by: Option<String>,
    /// The cells that were deleted and can be brought back
    #[arg(long, conflicts_with_all = ["proxy", "kernel", "since"])]
    deleted: bool,
    /// What the project's proxies wrote: who joined and left, what failed
    #[arg(long, conflicts_with = "kernel")]
    proxy: bool,
    /// What the kernel itself wrote on its stdout and stderr
    #[arg(long)]
    kernel: bool,
    /// With --proxy or --kernel: go on with what is written from now on, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Show at most this many of the last lines; 0 is all
    #[arg(long, value_name = "N", default_value_t = 100)]
    lines: usize,
    /// Print one JSON object
    #[arg(long, conflicts_with = "follow")]
    pub(crate) json: bool,
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
    const NAME: &'static str = "log";
    const GROUP: Group = Group::Running;

    fn notebook(&self) -> Option<PathBuf> {
        first_notebook(&self.words)
    }

    fn json(&self) -> bool {
        self.json
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        if self.proxy || self.kernel {
            return self.text_file(context).await;
        }
        if self.follow {
            let message = "--follow goes with --proxy or --kernel";
            return Err(Problem::new(ProblemKind::Usage, message));
        }
        let page = context.page(&mut self.words).await?;
        let mut cells = self.which.selectors(&self.words)?;
        let cell = match cells.len() {
            0 => None,
            1 => cells.pop(),
            _ => return Err(Problem::new(ProblemKind::Usage, "one cell is meant here")),
        };
        let shown = match cell {
            _ if self.deleted => self.deleted(context, &page)?,
            Some(cell) => self.versions(context, &page, &cell)?,
            None => self.happenings(context, &page)?,
        };
        // A closed pipe is a quiet end, and nothing else can be done about the rest.
        let _ = shown;
        Ok(ExitCode::SUCCESS)
    }
}

impl Log {
    /// Shows who did what.
    fn happenings(
        &self,
        context: &Context,
        page: &NotebookFile,
    ) -> Result<io::Result<()>, Problem> {
        let (project, key) = (&page.project, &page.key);
        let wanted = Wanted {
            since: match self.since.as_deref() {
                None => None,
                Some("last") => notification::last_told(project, key, context.by()),
                Some(text) => Some(moment::read(text)?),
            },
            by: self.by.clone(),
            count: self.lines,
        };
        // What was saved since the last command is written down now. A notebook that cannot be
        // read has a past all the same.
        let document = view::open(page, context.by()).map(|view| view.document);
        let list = log::happenings(project, key, &wanted, document.as_ref().ok());
        if self.json {
            let revision = document.ok().map(|document| document.revision());
            return Ok(context.answer(&json!({
                "notebook": key,
                "path": page.real,
                "revision": revision,
                "log": list,
            })));
        }
        if list.is_empty() {
            print::note(match (self.since.is_some(), self.by.is_some()) {
                (false, false) => "nothing has happened here yet that nb knows of",
                _ => "nothing of the kind has happened here",
            });
        }
        let width = columns::of_terminal();
        let lines: Vec<_> = list.iter().map(|it| line(it, key, width)).collect();
        Ok(lines.iter().try_for_each(|line| print::line(line)))
    }

    /// Shows the versions of one cell.
    fn versions(
        &self,
        context: &Context,
        page: &NotebookFile,
        cell: &CellSelector,
    ) -> Result<io::Result<()>, Problem> {
        let document = view::open(page, context.by())?.document;
        let gone = history::deleted(page, &document);
        let id = match history::select(&document, &gone, cell) {
            Ok(Selected::Present(index)) => document.cells()[index].id().to_owned(),
            Ok(Selected::Deleted(deleted)) => deleted.cell.clone(),
            Err(NotSelected { source, .. }) => {
                let lines = versions::deleted(page, &document, &gone);
                let problem = of_selection(&source, &source.to_string());
                return Err(problem.more_lines(&lines));
            }
        };
        let mut list = history::versions(page, &document, &id);
        if self.lines > 0 && list.len() > self.lines {
            list.drain(..list.len() - self.lines);
        }
        let is_there = document.cells().iter().any(|cell| cell.id() == id);
        if self.json {
            return Ok(context.answer(&json!({
                "notebook": page.key,
                "path": page.real,
                "revision": document.revision(),
                "cell": id,
                "deleted": !is_there,
                "versions": versions::listed(page, &document, list),
            })));
        }
        let lines = versions::lines(page, &document, &list);
        let notebook = quote(&page.path);
        print::note(&match is_there {
            true => format!("cell {id}; nb restore {notebook} {id}@REVISION brings one back"),
            false => format!("cell {id} was deleted; nb restore {notebook} {id} brings it back"),
        });
        Ok(lines.iter().try_for_each(|line| print::line(line)))
    }

    /// Shows the cells that are not there any more.
    fn deleted(&self, context: &Context, page: &NotebookFile) -> Result<io::Result<()>, Problem> {
        let document = view::open(page, context.by())?.document;
        let mut list = history::deleted(page, &document);
        if let Some(name) = &self.by {
            list.retain(|it| {
                it.by
                    .as_deref()
                    .is_some_and(|by| company::is_same(by, name))
            });
        }
        if self.lines > 0 {
            list.truncate(self.lines);
        }
        list.reverse();
        if self.json {
            return Ok(context.answer(&json!({
                "notebook": page.key,
                "path": page.real,
                "revision": document.revision(),
                "deleted": list,
            })));
        }
        if list.is_empty() {
            print::note("no cell was deleted here that nb knows of");
        }
        let lines = versions::deleted(page, &document, &list);
        Ok(lines.iter().try_for_each(|line| print::line(line)))
    }

    /// Shows what the proxies or the kernel wrote.
    async fn text_file(self, context: &Context) -> Result<ExitCode, Problem> {
        let path = self.path(context).await?;
        let shown = if self.json {
            tail::read(&path, self.lines)
                .and_then(|lines| context.answer(&json!({ "path": path, "lines": lines })))
        } else {
            tail::show(&path, self.lines, self.follow)
        };
        match shown {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Problem::new(
                ProblemKind::Failed,
                format!("nothing was written yet: there is no {}", path.display()),
            )),
            Err(error) => Err(Problem::failed(&format!("read {}", path.display()), &error)),
        }
    }

    async fn path(&self, context: &Context) -> Result<PathBuf, Problem> {
        let given = self.words.first().map(PathBuf::from);
        if self.kernel {
            let target = context.target(given).await?;
            return Ok(target.project.kernel_log(&target.key));
        }
        let given = given.or_else(|| context.caller.notebook.clone());
        let named = target::named(given.as_deref(), &ProcessVariables);
        let from: &Path = named.as_deref().unwrap_or(&context.caller.here);
        let project = Project::find(from).ok_or_else(|| {
            Problem::new(
                ProblemKind::NoKernel,
                format!("no notebook is open in {}", from.display()),
            )
            .hint("nb open NOTEBOOK.ipynb")
        })?;
        Ok(project.proxy_log())
    }
}

fn line(happening: &Happening, notebook: &str, width: Option<usize>) -> String {
    let by = match (&happening.what, happening.by.as_deref()) {
        (What::Saved(_), None) => "somebody",
        (_, None) => "",
        (_, Some(by)) => by,
    };
    let who = match by {
        "" => String::new(),
        by => format!("{by} "),
    };
    let at = print::moment(happening.at);
    let line = format!("{at}  {who}{}", what(&happening.what, notebook));
    match width {
        Some(width) => columns::cut(&line, width),
        None => line,
    }
}

fn what(what: &What, notebook: &str) -> String {
    match what {
        What::Ran(it) => ran(it, notebook),
        What::Edited(it) => {
            let deed = match it.deed.as_deref() {
                Some("undo") => {
                    format!("took back {}: ", it.undoes.as_deref().unwrap_or("an edit"))
                }
                Some("restore") => "restored: ".to_owned(),
                _ => String::new(),
            };
            let mut parts = vec![format!("{deed}{}", changes(it))];
            if it.forced {
                parts.push("forced".to_owned());
            }
            if it.conflicts > 0 {
                let s = if it.conflicts == 1 { "" } else { "s" };
                parts.push(format!("{} conflict{s}", it.conflicts));
            }
            parts.extend(it.op.as_deref().map(|op| format!("op {op}")));
            parts.push(format!("notebook {}", it.after));
            parts.join(" · ")
        }
        What::Saved(it) => {
            let mut parts = vec![format!("saved: {}", changes(it))];
            for lost in &it.overwritten {
                parts.push(format!(
                    "that wiped out {}'s edit of {} (op {})",
                    lost.by, lost.cell, lost.op
                ));
            }
            parts.push(format!("notebook {}", it.after));
            parts.join(" · ")
        }
        What::Kernel { event, generation } => {
            let words = match *event {
                "opened" => "started the kernel",
                "restarted" => "restarted the kernel: variables are gone",
                "stopped" => "shut the kernel down",
                "interrupted" => "interrupted the kernel",
                "withdrew" => "withdrew cells that waited for the kernel",
                "died" => "the kernel died: variables are gone",
                other => other,
            };
            let generation = generation.map(|it| format!(" · generation {it}"));
            format!("{words}{}", generation.unwrap_or_default())
        }
    }
}

/// Says what ran: `ran 3f2c "df = load()" ok, 1.2 s · job 7f3a01bc`.
fn ran(it: &Execution, notebook: &str) -> String {
    let took = it.took_ms.map(std::time::Duration::from_millis);
    let took = took.map(|it| format!(", {}", print::took(it)));
    let end = match it.status {
        None => " (no end is known)",
        Some(Outcome::Ok) => " ok",
        Some(Outcome::Error) => ": it failed",
        Some(Outcome::Interrupted) => ": it was interrupted",
        Some(Outcome::Withdrawn) => ": it was withdrawn",
        Some(Outcome::Aborted) => ": it was not run, since one before it failed",
        Some(Outcome::KernelDied) => ": the kernel ended",
        Some(Outcome::Unseen) => ": its end was not seen",
        Some(_) => ": nothing was told of its end",
    };
    let source = company::source(it.code.as_deref());
    let source = source.filter(|source| *source != it.label);
    let what: Vec<_> = [Some(it.label.clone()), source]
        .into_iter()
        .flatten()
        .collect();
    let mut parts = vec![format!(
        "ran {}{end}{}",
        what.join(" "),
        took.unwrap_or_default()
    )];
    let other = it.notebook.as_deref().filter(|other| *other != notebook);
    parts.extend(other.map(|other| format!("in {other}")));
    parts.extend(it.job.as_ref().map(|job| format!("job {job}")));
    if it.past_nb {
        parts.push("straight on the kernel".to_owned());
    }
    parts.join(" · ")
}

/// Says what was done to which cells: `edited 3f2c 9f8e7d6c5b → 1a2b3c4d5e, removed 77de`.
fn changes(it: &NotebookChange) -> String {
    const MOST: usize = 4;
    let mut parts: Vec<String> = Vec::new();
    for step in it.changes.iter().take(MOST) {
        let word = match step.what {
            ChangeKind::Inserted => "inserted",
            ChangeKind::Edited => "edited",
            ChangeKind::Removed => "removed",
            ChangeKind::Moved => "moved",
            ChangeKind::Outputs if step.kept.is_some() => "cleared",
            ChangeKind::Outputs => "brought back the outputs of",
            ChangeKind::Nothing => continue,
        };
        let revisions = match (step.what, step.before, step.after) {
            (ChangeKind::Edited, Some(before), Some(after)) => format!(" {before} → {after}"),
            (ChangeKind::Inserted, _, Some(revision))
            | (ChangeKind::Removed, Some(revision), _) => {
                format!(" {revision}")
            }
            _ => String::new(),
        };
        let cell = &step.cell;
        parts.push(match step.what {
            ChangeKind::Moved => format!("{word} {cell} to {}", step.index),
            _ => format!("{word} {cell}{revisions}"),
        });
    }
    match it.changes.len().saturating_sub(MOST) {
        0 if parts.is_empty() => parts.push("no cell".to_owned()),
        0 => {}
        more => parts.push(format!("{more} more")),
    }
    parts.join(", ")
}

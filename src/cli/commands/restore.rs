//! `nb restore`: an earlier version of a cell, or a deleted cell.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::api::problem::{Problem, ProblemKind, causes};
use crate::cli::Context;
use crate::cli::render::conflict::with_repeat;

use crate::api::problem::of_selection;
use crate::cli::args::cells::Which;
use crate::cli::args::first_notebook;
use crate::cli::commands::change::Manner;
use crate::cli::commands::{Command, Group};
use crate::cli::render::{print, versions};
use crate::editing::history::{self, RestoreError, Restored};
use crate::editing::notebook_file::NotebookFile;
use crate::editing::view;

/// Bring back an earlier version of a cell, or a deleted cell
///
/// nb remembers what each cell was whenever one of its commands looked or wrote: also what people
/// saved from an editor, and what an editor's Overwrite wiped out. Without a revision it is the
/// version before the present one; nb log NOTEBOOK CELL lists them. A deleted cell, named by its id,
/// comes back beside the cell that it stood beside. Outputs stay as they are; a cell that has none
/// gets those of the version, where they are remembered.
#[derive(Args, Debug)]
#[command(override_usage = "nb restore [OPTIONS] [NOTEBOOK] CELL[@REVISION]", after_help = EXAMPLES)]
pub(crate) struct Restore {
    /// [NOTEBOOK] CELL[@REVISION]
    #[arg(num_args = 0..=2, value_name = "WORDS", allow_negative_numbers = true, hide = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    which: Which,
    /// The revision to bring back; a beginning is enough
    #[arg(long, value_name = "REVISION")]
    rev: Option<String>,
    #[command(flatten)]
    pub(crate) manner: Manner,
}

const EXAMPLES: &str = "\
Examples:
  nb restore train.ipynb 3f2c          what the cell was before its last change
  nb restore train.ipynb 3f2c@9f8e     what it was as that revision
  nb restore 77de                      a deleted cell
  nb log train.ipynb --deleted         which there are";

impl Command for Restore {
    const NAME: &'static str = "restore";
    const GROUP: Group = Group::Notebook;

    fn notebook(&self) -> Option<PathBuf> {
        first_notebook(&self.words)
    }

    fn json(&self) -> bool {
        self.manner.json
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let page = context.page(&mut self.words).await?;
        let mut revision = self.rev.take();
        if let Some(word) = self.words.first_mut()
            && let Some((cell, after)) = word.rsplit_once('@')
        {
            revision = revision.or_else(|| Some(after.to_owned()));
            *word = cell.to_owned();
        }
        let cell = self.which.one(&mut self.words)?;
        if let Some(word) = self.words.first() {
            let message = format!("one cell is restored at a time; {word:?} is one word too many");
            return Err(Problem::new(ProblemKind::Usage, message)
                .hint("a revision follows an @: 3f2c@9f8e"));
        }
        let editor = context.editor(&self.manner);
        let restored = history::restore(&page, &cell, revision.as_deref(), &editor);
        let restored = restored.map_err(|error| of_restore(error, context, &page))?;
        if self.manner.json {
            let more = json!({
                "cell": restored.cell,
                "restored": restored.version,
                "was_deleted": restored.was_deleted,
            });
            return Ok(context.tell_with(&page, &restored.done, Some(more), "restore"));
        }
        let _ = print::line(&words(&restored));
        Ok(context.tell(&page, &restored.done, false, "restore"))
    }
}

fn words(restored: &Restored) -> String {
    let Restored {
        cell,
        revision,
        version,
        ..
    } = restored;
    let when = version.at.map(|at| {
        let by = version.by.as_deref().map(|by| format!(" by {by}"));
        format!(", made{} {}", by.unwrap_or_default(), print::moment(at))
    });
    let when = when.unwrap_or_default();
    match restored.was_deleted {
        true => format!("deleted cell {cell} is back as revision {revision}{when}"),
        false => format!("cell {cell} is revision {revision} again{when}"),
    }
}

fn of_restore(error: RestoreError, context: &Context, page: &NotebookFile) -> Problem {
    let message = causes(&error);
    let problem = |kind| Problem::new(kind, message.clone());
    let document = || view::open(page, context.by()).map(|view| view.document);
    let notebook = crate::kernel::shell::quote(&page.path);
    match error {
        RestoreError::NotebookFile(error) => error.into(),
        RestoreError::Edit(error) => with_repeat(error.into(), "restore"),
        RestoreError::NoSuchCell {
            ref source,
            ref deleted,
        } => {
            let problem = of_selection(source, &message);
            match document() {
                Ok(document) if !deleted.is_empty() => {
                    problem.more_lines(&versions::deleted(page, &document, deleted))
                }
                _ => problem,
            }
        }
        RestoreError::Ambiguous { ref candidates, .. } => {
            let lines = document().map(|it| versions::deleted(page, &it, candidates));
            problem(ProblemKind::Failed)
                .lines(&lines.unwrap_or_default())
                .hint("give more of the id")
        }
        RestoreError::NoSuchVersion {
            versions: ref list, ..
        } => {
            let lines = document().map(|it| versions::lines(page, &it, list));
            problem(ProblemKind::Failed).lines(&lines.unwrap_or_default())
        }
        RestoreError::Forgotten {
            versions: ref list, ..
        } => {
            let lines = document().map(|it| versions::lines(page, &it, list));
            problem(ProblemKind::Failed)
                .lines(&lines.unwrap_or_default())
                .hint(versions::not_kept(page))
        }
        RestoreError::NoEarlier { ref cell } => problem(ProblemKind::Failed)
            .hint(format!("nb log {notebook} {cell} lists its versions"))
            .hint(format!("nb diff {notebook} --git shows what git has")),
    }
}

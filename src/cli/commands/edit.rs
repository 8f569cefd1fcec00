//! `nb edit`: changes the source, type or metadata of a cell.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api;
use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::args::cells::CellOptions;
use crate::cli::args::metadata::Metadata;
use crate::cli::args::source::Source;
use crate::cli::args::take_notebook;
use crate::cli::commands::change::WriteOptions;
use crate::cli::commands::exec::ExecAfterEdit;
use crate::cli::commands::insert::cell_type;
use crate::cli::commands::{Command, diff};
use crate::hint;
use crate::hint::{Verb, nb};
use crate::notebook::{CellSelector, CellType, Operation, Revision};

/// Edit a cell: the whole text, a part of it, its type or its metadata
///
/// The first word is the notebook if it ends in .ipynb, the next one the cell (its index from 0, its
/// id or the beginning of it, In[12]), the last one the new text. The text is taken as it is; `-`
/// reads it from stdin. A text that begins with a dash stands behind `--`, or in --source. Other lines
/// that others have changed since you saw the cell are kept. If they have changed the same lines, the
/// cell is shown and stays (exit code 5): the next try works.
#[derive(Args, Debug)]
#[command(override_usage = "nb edit [OPTIONS] [NOTEBOOK] CELL [SOURCE]", after_help = EXAMPLES)]
pub(crate) struct Edit {
    /// The notebook, the cell, and its new text
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    cell_options: CellOptions,
    #[command(flatten)]
    source: Source,
    /// Add the text at the end of the cell, as lines of its own
    #[arg(long, conflicts_with_all = ["replace", "cell_type"])]
    append: bool,
    /// Replace a part of the text, which must be there exactly once
    #[arg(
        long,
        num_args = 2,
        value_names = ["OLD", "NEW"],
        allow_hyphen_values = true,
        conflicts_with_all = ["source", "file"]
    )]
    replace: Vec<String>,
    /// With --replace: wherever it is
    #[arg(long, requires = "replace")]
    all: bool,
    /// Make it a cell of this type
    #[arg(short = 't', long = "type", value_name = "TYPE", value_parser = cell_type)]
    cell_type: Option<CellType>,
    #[command(flatten)]
    metadata: Metadata,
    /// Only if the cell still has this revision
    #[arg(long, value_name = "REVISION")]
    if_rev: Option<Revision>,
    /// Show what would differ, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    after_edit: ExecAfterEdit,
    #[command(flatten)]
    writing: WriteOptions,
}

const EXAMPLES: &str = "\
Examples:
  nb edit analysis.ipynb 3f2c 'x = 2'
  nb edit 3f2c - <<'EOF'                         the text from stdin
  for x in data:
      print(x)
  EOF
  nb edit 4 --replace 'lr = 0.1' 'lr = 0.01'     a part that is there exactly once
  nb edit 3f2c --append 'df.head()'
  nb edit -1 --type markdown
  nb edit 3f2c --meta tags='[\"draft\"]' --meta jupyter.source_hidden=true
  nb edit 3f2c --if-rev 9f8e7d6c5b --file cell.py";

impl Command for Edit {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let cell = self.cell_options.one(&mut self.words)?;
        let operations = self.operations(&cell)?;
        let request = self.writing.request(operations);
        if self.dry_run {
            let answer = api::preview_edit(&context.caller, request).await?;
            return context.print(&answer, diff::show);
        }
        self.after_edit.edit(context, request, "edit").await
    }
}

impl Edit {
    /// Parses the words into operations, without reading the notebook.
    fn operations(&self, cell: &CellSelector) -> Result<Vec<Operation>, Problem> {
        let replaces = !self.replace.is_empty();
        let word = match self.words.as_slice() {
            [] => None,
            [source] if !self.source.is_given() && !replaces => Some(source.as_str()),
            _ => {
                return Err(Problem::new(
                    ProblemKind::Usage,
                    "more than one text is given: put the text in quotes",
                ));
            }
        };
        let mut source = self.source.read(word)?;
        let metadata = self.metadata.values()?;
        let appends_nothing = self.append && source.is_none();
        let mut operations = Vec::new();
        // The revision is that from before all operations, so only the first one checks it.
        let mut if_rev = self.if_rev;
        if let Some(source) = source.take_if(|_| self.append) {
            operations.push(Operation::Append {
                cell: cell.clone(),
                if_rev: if_rev.take(),
                source,
            });
        }
        if source.is_some() || self.cell_type.is_some() || !metadata.is_empty() {
            operations.push(Operation::Edit {
                cell: cell.clone(),
                if_rev: if_rev.take(),
                source,
                cell_type: self.cell_type,
                metadata,
            });
        }
        for pair in self.replace.chunks_exact(2) {
            let [old, new] = pair else { continue };
            operations.push(Operation::Replace {
                cell: cell.clone(),
                if_rev: if_rev.take(),
                old: old.clone(),
                new: new.clone(),
                all: self.all,
            });
        }
        if operations.is_empty() || appends_nothing {
            let edit = || nb(Verb::Edit).word("CELL");
            return Err(
                Problem::new(ProblemKind::Usage, "there is nothing to change")
                    .hint(hint![
                        edit().word("SOURCE"),
                        ", ",
                        edit().word("-"),
                        " reads stdin, ",
                        edit().option("--file").word("PATH")
                    ])
                    .hint(hint![
                        edit().option("--replace").word("OLD").word("NEW"),
                        ", --type TYPE, --meta KEY=VALUE"
                    ]),
            );
        }
        Ok(operations)
    }
}
